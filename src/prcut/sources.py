"""Where rows come from: an array, a .npy file, or a folder of Parquet files, read in order.

Rows are numbered from 0 through all files in the order of their names. A source reads any range of
rows; reading ranges one after the other decodes every Parquet page once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.storage import locate

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

__all__ = [
    "ArraySource",
    "ParquetSource",
    "Source",
    "SourceFile",
    "cut_pieces",
    "map_npy",
    "open_source",
    "piece_rows",
    "read_all",
    "sample_rows",
]

# rows decoded at a time from a Parquet row group, which may itself be far larger than memory
_BATCH_ROWS = 2**14
# bytes of features read at a time
_PIECE_BYTES = 2**24
# pieces that a sample is drawn from at most: of 10⁹ rows not all are read
_SAMPLED_PIECES = 256


class SourceFile(NamedTuple):
    """A file of a source: its name inside the folder that was opened, and its rows."""

    name: str
    start: int
    stop: int


class Source(Protocol):
    """Rows of features in a fixed order, with the ids of a column where there is one."""

    n_samples: int
    n_features: int
    dtype: np.dtype[Any]
    fingerprint: str
    """Changes when the data do, as far as sizes, names and a sample of rows tell."""
    group_starts: np.ndarray
    """Rows at which reading may begin without decoding others, int64, ascending."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start:stop`` as float16 or float32, checked to be finite."""

    def read_ids(self, start: int, stop: int) -> pa.Array | None:
        """The ids of rows ``start:stop``, or None without an id column."""


def open_source(
    data: Any,
    *,
    column: str | None = None,
    id_column: str | None = None,
    filesystem: fs.FileSystem | None = None,
) -> Source:
    """The source for ``data``.

    Parameters
    ----------
    data : array, or path or URI of a .npy file, a Parquet file, or a folder of Parquet files
        Floats of 16, 32 or 64 bits; 64 bits are read as 32.
    column : str, optional
        Parquet: the column of lists with the features; may be left out when only one column holds
        lists of floats.
    id_column : str, optional
        Parquet: a column of integers or strings that names the rows.
    filesystem : pyarrow.fs.FileSystem, optional
        Where a path is, when it is not local and not a URI.
    """
    if isinstance(data, np.ndarray):
        return ArraySource(data)
    if not isinstance(data, str | Path):
        raise InvalidInputError(
            f"data is a {type(data).__name__}, expected an array or the path of a .npy or Parquet "
            "file or folder."
        )
    if str(data).endswith(".npy"):
        return ArraySource(map_npy(Path(data)))
    return ParquetSource(str(data), column, id_column, filesystem)


def map_npy(path: Path) -> np.ndarray:
    """A .npy file of any shape, mapped; refused where it is none, and never unpickled."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise InvalidInputError(f"{path} is not a file.")
    try:
        # not np.load, which also opens archives and, if it may, pickles
        array: np.ndarray = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, TypeError, SyntaxError, TokenError, ArithmeticError) as error:
        raise InvalidInputError(f"{path} cannot be read as a .npy file: {error}") from error
    if array.ndim == 2 and array.shape[1] == 0:  # any number of rows takes no room
        raise InvalidInputError(f"{path} has n_features=0 columns, expected at least one.")
    return array


def piece_rows(source: Source) -> int:
    """Rows that are read at a time, 16 MB of features.

    >>> piece_rows(ArraySource(np.zeros((10, 64), np.float32)))
    65536
    """
    return max(1, _PIECE_BYTES // max(1, source.n_features * source.dtype.itemsize))


def cut_pieces(source: Source, n_rows: int) -> np.ndarray:
    """Where pieces of some ``n_rows`` rows begin, and where the last ends, int64.

    They begin where reading may begin, and have twice as many rows at most: a piece is read by a
    process of its own, which else would decode what lies before it.

    >>> cut_pieces(ArraySource(np.zeros((10, 1))), 4).tolist()
    [0, 4, 8, 10]
    """
    starts, total = source.group_starts, source.n_samples
    cuts = [0]
    while cuts[-1] < total:
        first, limit = cuts[-1], cuts[-1] + n_rows
        within = int(np.searchsorted(starts, limit, side="right")) - 1
        if limit >= total:
            best = total
        elif within >= 0 and starts[within] > first:
            best = int(starts[within])
        else:
            after = int(starts[within + 1]) if within + 1 < len(starts) else limit
            best = after if after <= first + 2 * n_rows else limit
        cuts.append(best)
    return np.asarray(cuts, np.int64)


def sample_rows(source: Source, n_rows: int, seed: int | Sequence[int]) -> np.ndarray:
    """Some ``n_rows`` rows in order, from pieces spread evenly over the source.

    >>> sample_rows(ArraySource(np.arange(10.0)[:, None]), 3, seed=0).shape
    (3, 1)
    """
    rng = np.random.default_rng(seed)
    cuts = cut_pieces(source, piece_rows(source))
    chosen = np.linspace(0, len(cuts) - 2, min(len(cuts) - 1, _SAMPLED_PIECES)).astype(int)
    pieces = [(int(cuts[piece]), int(cuts[piece + 1])) for piece in np.unique(chosen)]
    seen = sum(stop - start for start, stop in pieces)
    parts = []
    for start, stop in pieces:
        wanted = min(stop - start, -(-n_rows * (stop - start) // seen))
        places = np.sort(rng.choice(stop - start, wanted, replace=False))
        parts.append(source.read(start, stop)[places])
    return np.concatenate(parts)


def read_all(source: Source) -> np.ndarray:
    """All rows as one array, checked to be finite.

    A float16 or float32 array with its rows in order stays where it is, mapped or in memory.
    """
    kept = source.array if isinstance(source, ArraySource) else None
    if kept is not None and (kept.dtype != source.dtype or not kept.flags.c_contiguous):
        kept = None
    shape = source.n_samples, source.n_features
    try:
        rows = np.empty(shape, source.dtype) if kept is None else kept
    except (MemoryError, ValueError) as error:
        raise InvalidInputError(f"data of shape {shape} do not fit in memory: {error}") from error
    step = piece_rows(source)
    for start in range(0, source.n_samples, step):
        stop = min(start + step, source.n_samples)
        piece = source.read(start, stop)  # checks it
        if kept is None:
            rows[start:stop] = piece
    return rows


class ArraySource:
    """Rows of an array in memory or mapped from a .npy file."""

    def __init__(self, array: np.ndarray) -> None:
        if array.ndim != 2 or array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise InvalidInputError(
                f"data has shape {array.shape} and dtype {array.dtype}, expected floats of shape "
                "(n_samples, n_features)."
            )
        self.array = array
        self.n_samples, self.n_features = array.shape
        self.dtype = _stored_dtype(array.dtype)
        digest = hashlib.sha256(f"{array.shape}{array.dtype}".encode())
        for row in np.linspace(0, self.n_samples - 1, num=min(64, self.n_samples), dtype=np.int64):
            digest.update(np.ascontiguousarray(array[row]).tobytes())
        self.fingerprint = digest.hexdigest()
        self.group_starts = np.empty(0, np.int64)  # any row is as good

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start:stop``."""
        rows = np.ascontiguousarray(self.array[start:stop], self.dtype)
        return _check_finite(rows, start, "data")

    def read_ids(self, start: int, stop: int) -> pa.Array | None:  # noqa: ARG002
        """None: an array has no ids."""
        return None


class ParquetSource:
    """Rows of one list column of Parquet files."""

    def __init__(
        self,
        path: str,
        column: str | None,
        id_column: str | None,
        filesystem: fs.FileSystem | None,
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        filesystem, path = locate(path, filesystem)
        root = Path(path) if filesystem.get_file_info(path).type.name == "Directory" else None
        self._filesystem = filesystem
        self._files = _parquet_files(filesystem, path)
        counts, digest = [], hashlib.sha256()
        groups: list[int] = []
        schemas: list[pa.Schema] = []
        for name in self._files:
            try:
                metadata = pq.read_metadata(name, filesystem=filesystem)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise InvalidInputError(f"{name} cannot be read as Parquet: {error}") from error
            size = filesystem.get_file_info(name).size
            counts.append(metadata.num_rows)
            inside = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            groups += inside
            _check_counts(metadata.num_rows, inside, size, name)
            schemas.append(metadata.schema.to_arrow_schema())
            for wanted in filter(None, (column, id_column)):
                _check_has_column(schemas[-1], wanted, name)
            digest.update(f"{Path(name).name} {size} {metadata.num_rows}\n".encode())
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.n_samples = int(self._starts[-1])
        self.group_starts = np.unique(np.concatenate([[0], np.cumsum(groups, dtype=np.int64)]))
        names = (Path(name).relative_to(root or Path(name).parent) for name in self._files)
        self.files = [
            SourceFile(name.as_posix(), int(start), int(stop))
            for name, start, stop in zip(names, self._starts, self._starts[1:], strict=False)
        ]
        schema = schemas[0]
        self.column = _feature_column(schema, column, self._files[0])
        self.id_column = id_column
        self.id_type = None
        for name, one in zip(self._files, schemas, strict=True):
            _feature_column(one, self.column, name)
            if id_column is not None:
                _check_id_column(one, id_column, name)
                self.id_type = self.id_type or one.field(id_column).type
                if one.field(id_column).type != self.id_type:
                    raise InvalidInputError(
                        f"column {id_column!r} of {name} is {one.field(id_column).type}, that of "
                        f"{self._files[0]} is {self.id_type}; make them the same."
                    )
        is_half = pa.types.is_float16(schema.field(self.column).type.value_type)
        self.dtype = _stored_dtype(np.float16 if is_half else np.float32)
        digest.update(f"{self.column} {self.id_column}".encode())
        self.fingerprint = digest.hexdigest()
        self._stream: dict[str, _Stream] = {}
        self.n_features = 0
        first = self._read_column(self.column, 0, min(1, self.n_samples))
        if first.null_count:
            raise InvalidInputError(f"column {self.column!r} has a null list in row 0.")
        self.n_features = len(first[0]) if len(first) else 0

    def __getstate__(self) -> dict[str, Any]:
        # open files stay behind when a source is sent to another process
        return {**self.__dict__, "_stream": {}}

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start:stop``."""
        lists = self._read_column(self.column, start, stop)
        rows = np.empty((stop - start, self.n_features), self.dtype)
        done = 0
        for chunk in lists.chunks:
            rows[done : done + len(chunk)] = self._to_rows(chunk, start + done)
            done += len(chunk)
        return _check_finite(rows, start, self.column)

    def read_ids(self, start: int, stop: int) -> pa.Array | None:
        """The ids of rows ``start:stop``."""
        if self.id_column is None:
            return None
        ids = self._read_column(self.id_column, start, stop).combine_chunks()
        if ids.null_count:
            raise InvalidInputError(
                f"column {self.id_column!r} has {ids.null_count} nulls in rows {start}..{stop - 1}."
            )
        return ids

    def read_values(self, column: str, rows: np.ndarray) -> list[Any]:
        """Values of any column in ``rows``, ascending; row groups without any are passed over."""
        import pyarrow.parquet as pq

        schema = pq.read_schema(self._files[0], filesystem=self._filesystem)
        _check_has_column(schema, column, self._files[0])
        found: list[Any] = []
        for start, stop in pairwise(self.group_starts):
            low, high = np.searchsorted(rows, [start, stop])
            for first in range(
                int(start), int(rows[high - 1]) + 1 if high > low else 0, _BATCH_ROWS
            ):
                last = min(first + _BATCH_ROWS, int(stop))
                inside = rows[(rows >= first) & (rows < last)]
                values = self._read_column(column, first, last)
                found += values.take(inside - first).to_pylist()
        return found

    def _read_column(self, column: str, start: int, stop: int) -> pa.ChunkedArray:
        stream = self._stream.get(column)
        if stream is None or stream.position != start:
            stream = self._stream[column] = _Stream(self._batches(column, start), start)
        return stream.take(stop - start)

    def _batches(self, column: str, start: int) -> Iterator[pa.Array]:
        """Batches of a column from row ``start`` on, through all files."""
        for name, file_start, file_stop in zip(
            self._files, self._starts, self._starts[1:], strict=False
        ):
            if file_stop <= start:
                continue
            batches = self._file_batches(name, column, max(0, start - int(file_start)))
            while (batch := self._next(batches, name)) is not None:
                yield batch

    def _file_batches(self, name: str, column: str, skip: int) -> Iterator[pa.Array]:
        import pyarrow.parquet as pq

        with self._filesystem.open_input_file(name) as handle:
            file = pq.ParquetFile(handle)
            groups: list[int] = []
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if not groups and skip >= rows:
                    skip -= rows
                else:
                    groups.append(group)
            for batch in file.iter_batches(_BATCH_ROWS, groups, [column]):
                if skip < len(batch):
                    yield batch.column(0)[skip:]
                skip = max(0, skip - len(batch))

    def _next(self, batches: Iterator[pa.Array], name: str) -> pa.Array | None:
        """The next batch, or None; what pyarrow finds wrong in a file is worded."""
        import pyarrow as pa
        from pyarrow import fs

        try:
            return next(batches, None)
        except OSError as error:
            # of a disk or a network, and worth another try; pyarrow calls bad bytes so as well
            if error.errno is not None or not isinstance(self._filesystem, fs.LocalFileSystem):
                raise
            raise CorruptFileError(f"{name} cannot be read as Parquet: {error}") from error
        except (pa.ArrowException, ValueError) as error:
            raise CorruptFileError(f"{name} cannot be read as Parquet: {error}") from error

    def _to_rows(self, lists: pa.Array, first_row: int) -> np.ndarray:
        """A chunk of lists as a matrix."""
        import pyarrow as pa

        if lists.null_count:
            raise InvalidInputError(
                f"column {self.column!r} has {lists.null_count} null lists near row {first_row}."
            )
        if not pa.types.is_fixed_size_list(lists.type):
            lengths = np.diff(lists.offsets.to_numpy())
            if (lengths != self.n_features).any():
                row = first_row + int((lengths != self.n_features).argmax())
                raise InvalidInputError(
                    f"column {self.column!r} holds a list of {lengths[row - first_row]} values in "
                    f"row {row}, expected n_features={self.n_features} in every row."
                )
        values = lists.flatten()
        if len(values) != len(lists) * self.n_features:
            raise InvalidInputError(
                f"column {self.column!r} holds lists of another length near row {first_row}, "
                f"expected n_features={self.n_features} in every row."
            )
        if values.null_count:
            raise InvalidInputError(
                f"column {self.column!r} has {values.null_count} null values near row {first_row}."
            )
        matrix: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(-1, self.n_features)
        return matrix


class _Stream:
    """Batches cut to the lengths asked for."""

    def __init__(self, batches: Iterator[pa.Array], position: int) -> None:
        self._batches = batches
        self._rest: pa.Array | None = None
        self.position = position

    def take(self, n_rows: int) -> pa.ChunkedArray:
        import pyarrow as pa

        taken: list[pa.Array] = []
        wanted = n_rows
        while wanted > 0:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                raise CorruptFileError("the Parquet files hold fewer rows than they say.")
            taken.append(batch[:wanted])
            self._rest = batch[wanted:] if len(batch) > wanted else None
            wanted -= len(taken[-1])
        self.position += n_rows
        return pa.chunked_array(taken) if taken else pa.chunked_array([], pa.null())


def _check_counts(n_rows: int, groups: list[int], n_bytes: int, name: str) -> None:
    """Refuse a file whose row groups are not its rows, or that has room for no such number."""
    # a page, which takes some bytes at least, counts its rows by 31 bits
    if n_rows != sum(groups) or min(groups, default=0) < 0 or n_rows > n_bytes * 2**31:
        raise CorruptFileError(
            f"{name} says it holds {n_rows} rows, and {sum(groups)} in its groups; it is altered "
            "or forged."
        )


def _parquet_files(filesystem: fs.FileSystem, path: str) -> list[str]:
    from pyarrow import fs

    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise InvalidInputError(f"{path} does not exist.")
    if info.is_file:
        return [path]
    found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    files = sorted(
        file.path
        for file in found
        # names that begin so are markers and leftovers of other writers
        if file.is_file and file.path.endswith(".parquet") and file.base_name[0] not in "._"
    )
    if not files:
        raise InvalidInputError(f"{path} holds no .parquet file.")
    return files


def _feature_column(schema: pa.Schema, column: str | None, file: str) -> str:
    import pyarrow as pa

    def holds_floats(field: pa.Field) -> bool:
        is_list = pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
        is_list = is_list or pa.types.is_large_list(field.type)
        return bool(is_list and pa.types.is_floating(field.type.value_type))

    candidates = [field.name for field in schema if holds_floats(field)]
    if column is None and len(candidates) == 1:
        return str(candidates[0])
    if column is None:
        raise InvalidInputError(
            f"{file} has {len(candidates)} columns of float lists ({', '.join(candidates)}); "
            "name one by column=."
        )
    _check_has_column(schema, column, file)
    if column not in candidates:
        raise InvalidInputError(
            f"column {column!r} of {file} is {schema.field(column).type}, expected lists of floats."
        )
    return column


def _check_has_column(schema: pa.Schema, column: str, file: str) -> None:
    if column not in schema.names:
        raise InvalidInputError(
            f"{file} has no column {column!r}; it has {', '.join(schema.names)}."
        )


def _check_id_column(schema: pa.Schema, id_column: str, file: str) -> None:
    import pyarrow as pa

    _check_has_column(schema, id_column, file)
    kind = schema.field(id_column).type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (pa.types.is_integer(kind) or is_text):
        raise InvalidInputError(
            f"column {id_column!r} of {file} is {kind}, expected integers or strings."
        )


def _stored_dtype(dtype: Any) -> np.dtype[Any]:
    """Half precision stays, everything else is single: neighbours need no more."""
    return np.dtype(np.float16 if np.dtype(dtype) == np.float16 else np.float32)


def _check_finite(rows: np.ndarray, start: int, name: str) -> np.ndarray:
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        raise InvalidInputError(
            f"{name} holds NaN or infinity in {int((~finite).sum())} of the rows "
            f"{start}..{start + len(rows) - 1}, the first is row {start + int(finite.argmin())}; "
            "remove or replace them."
        )
    return rows
