"""Rows in Parquet files, read in order, and Parquet files written as a stream of bytes.

Rows are numbered from 0 through all files in the order of their names. Reading row ranges one after
the other decodes every page once. Features are one column of vectors, or a column of numbers each.

Vectors are lists of floats, int8 or uint8. Whole numbers of 8 bits are read as float16, which holds
them exactly.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import filter as match_names
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.numerics.validation import check_finite
from prcut.runtime.fingerprint import fingerprint_files
from prcut.runtime.folder import absolute_path, locate

# Rows decoded at a time. A row group may be larger than memory, and the scanner of pyarrow.dataset
# decodes whole row groups: ParquetFile.iter_batches does not.
_BATCH_ROWS = 2**14
# what reads other files, by the ends of their names
_READERS = {
    ".csv": "csv.read_csv",
    ".json": "json.read_json",
    ".jsonl": "json.read_json",
    ".ndjson": "json.read_json",
}


class SourceFile(NamedTuple):
    """A file of a source: its name inside the folder that was opened, and its row range."""

    name: str
    start: int
    stop: int


class ParquetSource:
    """Rows of one column of vectors of a Parquet file, or of all Parquet files in a folder.

    See :func:`prcut.runtime.sources.open_source` for the parameters, and
    :class:`prcut.runtime.sources.Source` for what a source offers.
    """

    def __init__(
        self, path: str, column: str | None, id_column: str | None, filesystem: fs.FileSystem | None
    ) -> None:
        self.path: str | None = absolute_path(path)
        self._filesystem, path = locate(path, filesystem)
        infos = _list_files(self._filesystem, path)
        footers = [_read_footer(self._filesystem, info) for info in infos]
        counts = [sum(footer.group_rows) for footer in footers]
        ends = np.cumsum([0, *counts], dtype=np.int64).tolist()
        groups = [rows for footer in footers for rows in footer.group_rows]
        self.n_samples: int = ends[-1]
        self.group_starts = np.unique(np.cumsum([0, *groups], dtype=np.int64))
        self._paths = [info.path for info in infos]
        root = Path(path).parent if self._paths == [path] else Path(path)
        self.files = [
            SourceFile(Path(name).relative_to(root).as_posix(), start, stop)
            for name, (start, stop) in zip(self._paths, pairwise(ends), strict=True)
        ]
        schema = footers[0].schema
        self.column = column or only_vector_column(schema, footers[0].path)
        self.id_column = id_column
        # several, where the pattern of a wide file was given
        self._wide = match_columns(schema, self.column, footers[0].path)
        for footer in footers:
            for one in self._wide or [self.column]:
                kind = _column_type(footer.schema, one, footer.path)
                of_list = _list_type(kind)
                is_right = pa.types.is_floating(of_list) or _is_small(of_list)
                if not (self._wide or is_right):
                    raise InvalidInputError(
                        f"column {one!r} of {footer.path} is {kind}, expected lists of floats, "
                        "int8 or uint8."
                    )
            if id_column is not None:
                _check_ids(footer, id_column, footers[0])
        self.id_type = schema.field(id_column).type if id_column else None
        of_list = pa.float32() if self._wide else _list_type(schema.field(self.column).type)
        # float16 where it holds the numbers exactly
        is_half = of_list == pa.float16() or _is_small(of_list)
        self.dtype: np.dtype[Any] = np.dtype(np.float16 if is_half else np.float32)
        about = f"{counts} {self.column} {self.id_column}"
        self.fingerprint = fingerprint_files(self._filesystem, infos, about)
        # of a column: the row after the last that was read, the rest of its batch, later batches
        self._streams: dict[str, tuple[int, list[pa.Array], Iterator[pa.Array]]] = {}
        self.n_features = 0
        if self.n_samples:
            (first,) = self._read_column(self.column, 0, 1)
            self.n_features = to_matrix(first, self.column, 0).shape[1]

    def __getstate__(self) -> dict[str, Any]:
        # open files stay behind when a source is sent to another process
        return {**self.__dict__, "_streams": {}}

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read rows ``start:stop``."""
        rows = np.empty((stop - start, self.n_features), self.dtype)
        done = 0
        for lists in self._read_column(self.column, start, stop):
            found = to_matrix(lists, self.column, start + done, self.n_features)
            rows[done : done + len(lists)] = found
            done += len(lists)
        return check_finite(rows, start, self.column)

    def read_ids(self, start: int, stop: int) -> pa.Array | None:
        """Read the ids of rows ``start:stop``."""
        if self.id_column is None:
            return None
        batches = self._read_column(self.id_column, start, stop)
        ids = pa.chunked_array(batches, self.id_type).combine_chunks()
        check_no_nulls(ids, self.id_column, "ids", start, stop)
        return ids

    def read_values(self, column: str, rows: np.ndarray) -> list[Any]:
        """Read values of any column in ``rows``, ascending; other row groups are skipped."""
        if column != self.column:
            schema = pq.read_schema(self._paths[0], filesystem=self._filesystem)
            _column_type(schema, column, self._paths[0])
        found: list[Any] = []
        for start, stop in pairwise(self.group_starts.tolist()):
            inside = rows[slice(*np.searchsorted(rows, [start, stop]))]
            last = int(inside[-1]) + 1 if len(inside) else start
            for first in range(start, last, _BATCH_ROWS):
                values = self._read_column(column, first, min(first + _BATCH_ROWS, stop))
                taken = inside[(inside >= first) & (inside < first + _BATCH_ROWS)]
                found += pa.chunked_array(values).take(taken - first).to_pylist()
        return found

    def _read_column(self, column: str, start: int, stop: int) -> list[pa.Array]:
        """Read rows ``start:stop`` in batches; resume where the last call for the column ended."""
        position, rest, batches = self._streams.pop(column, (-1, [], iter(())))
        if position != start:
            rest, batches = [], self._batches(column, start)
        taken: list[pa.Array] = []
        while start < stop:
            batch = rest.pop() if rest else next(batches, None)
            if batch is None:
                raise CorruptFileError("the Parquet files hold fewer rows than they declare.")
            taken.append(batch[: stop - start])
            if len(batch) > stop - start:
                rest.append(batch[stop - start :])
            start += len(taken[-1])
        self._streams[column] = stop, rest, batches
        return taken

    def _batches(self, column: str, start: int) -> Iterator[pa.Array]:
        """Yield batches of a column from row ``start`` to the end of the last file."""
        wide = self._wide if column == self.column else []
        for path, (_, file_start, file_stop) in zip(self._paths, self.files, strict=True):
            if file_stop <= start:
                continue
            skip = max(0, start - file_start)
            with self._naming(path), self._filesystem.open_input_file(path) as handle:
                file = pq.ParquetFile(handle)
                groups = list(range(file.num_row_groups))
                while groups and (rows := file.metadata.row_group(groups[0]).num_rows) <= skip:
                    skip -= rows
                    del groups[0]
                for batch in file.iter_batches(_BATCH_ROWS, groups, wide or [column]):
                    yield (stack_columns(batch, wide) if wide else batch.column(0))[skip:]
                    skip = max(0, skip - len(batch))

    @contextmanager
    def _naming(self, path: str) -> Iterator[None]:
        """Name the file when pyarrow finds bad bytes in it."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            # an OSError with a number, or of a network, is worth another try; pyarrow raises one
            # without a number for bad bytes
            is_local = isinstance(self._filesystem, fs.LocalFileSystem)
            if isinstance(error, OSError) and (error.errno is not None or not is_local):
                raise
            raise CorruptFileError(f"{path} cannot be read as Parquet: {error}") from error


def _list_files(filesystem: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise InvalidInputError(f"{path} does not exist.")
    if info.is_file:
        return [info]
    found = [
        file
        for file in filesystem.get_file_info(fs.FileSelector(path, recursive=True))
        # names that begin so are markers and leftovers of other writers
        if file.is_file and file.extension == "parquet" and file.base_name[0] not in "._"
    ]
    if not found:
        raise InvalidInputError(f"{path} holds no .parquet file.")
    return sorted(found, key=lambda file: str(file.path))


class _Footer(NamedTuple):
    """What the end of a Parquet file says of it."""

    path: str
    schema: pa.Schema
    group_rows: list[int]


def _check_counts(n_rows: int, group_rows: list[int], n_bytes: int, path: str) -> None:
    in_groups = sum(group_rows)
    # a page takes some bytes at least, and counts its rows in 31 bits
    if n_rows != in_groups or min(group_rows, default=0) < 0 or n_rows > n_bytes * 2**31:
        raise CorruptFileError(
            f"{path} declares {n_rows} rows, and {in_groups} in its row groups; it is altered or "
            "forged."
        )


def _read_footer(filesystem: fs.FileSystem, info: fs.FileInfo) -> _Footer:
    try:
        metadata = pq.read_metadata(info.path, filesystem=filesystem)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(f"{info.path} cannot be read as Parquet: {error}") from error
    group_rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    _check_counts(metadata.num_rows, group_rows, info.size, info.path)
    return _Footer(info.path, metadata.schema.to_arrow_schema(), group_rows)


def _check_ids(footer: _Footer, id_column: str, first: _Footer) -> None:
    path, schema, _ = footer
    kind = _column_type(schema, id_column, path)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (pa.types.is_integer(kind) or is_text):
        raise InvalidInputError(
            f"column {id_column!r} of {path} is {kind}, expected integers or strings."
        )
    if kind != (expected := first.schema.field(id_column).type):
        raise InvalidInputError(
            f"column {id_column!r} of {path} is {kind}, that of {first.path} is {expected}; "
            "make them the same."
        )


def _column_type(schema: pa.Schema, column: str, path: str) -> pa.DataType:
    n_found = schema.names.count(column)
    if n_found != 1:
        found = f"{n_found} columns" if n_found else "no column"
        raise InvalidInputError(f"{path} has {found} {column!r}; it has {', '.join(schema.names)}.")
    return schema.field(column).type


def match_columns(schema: pa.Schema, pattern: str, path: str) -> list[str]:
    """Return the columns of numbers that ``f*`` or ``x,y,z`` selects; [] where it names one column.

    >>> schema = pa.schema({"id": pa.int64(), "f0": pa.float32(), "f1": pa.float32()})
    >>> match_columns(schema, "f*", "rows.parquet"), match_columns(schema, "f0", "rows.parquet")
    (['f0', 'f1'], [])
    """
    if pattern in schema.names or not set("*?[,") & set(pattern):
        return []
    matched = [match_names(schema.names, one.strip()) for one in pattern.split(",")]
    if not all(matched):
        shown = ", ".join(schema.names[:20])
        raise InvalidInputError(f"column={pattern!r} matches no column of {path}; it has {shown}.")
    names = list(dict.fromkeys(name for names in matched for name in names))
    for name in names:
        kind = schema.field(name).type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            raise InvalidInputError(
                f"column {name!r} of {path}, which column={pattern!r} matches, is {kind}, expected "
                "numbers."
            )
    return names


def stack_columns(batch: pa.RecordBatch, names: list[str]) -> pa.FixedSizeListArray:
    """Return columns of numbers as one of lists; a null becomes NaN, which the reader refuses."""
    columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
    values = np.column_stack([column.astype(np.float32) for column in columns])
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), len(names))


def refuse_other_formats(path: str) -> None:
    """Say how a text file becomes Parquet."""
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None or not Path(path).is_file():
        return
    target = str(Path(path).with_suffix(".parquet"))
    raise InvalidInputError(
        f'{path} is not Parquet; convert it once, with python -c "from pyarrow import '
        f"{reader.partition('.')[0]}, parquet; parquet.write_table({reader}({path!r}), "
        f"{target!r})\", then name its columns of numbers, such as by column='f*'."
    )


def only_vector_column(schema: pa.Schema, path: str) -> str:
    """Return the name of the only column of float lists or, without any, of int8 or uint8 lists."""
    kinds = {field.name: _list_type(field.type) for field in schema}
    names = [name for name, kind in kinds.items() if pa.types.is_floating(kind)]
    names = names or [name for name, kind in kinds.items() if _is_small(kind)]
    if not names:
        raise InvalidInputError(
            f"{path} has no column of float lists; name its columns of numbers, such as by "
            f"column='f*'. It has {', '.join(schema.names[:20])}."
        )
    if len(names) > 1:
        raise InvalidInputError(
            f"{path} has {len(names)} columns of float lists ({', '.join(names)}); "
            "name one by column=."
        )
    return str(names[0])


def to_matrix(
    values: pa.Array, column: str, first_row: int, n_features: int | None = None
) -> np.ndarray:
    """Return vectors as rows; reject nulls, and lengths that differ or are not ``n_features``."""
    stop = first_row + len(values)
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    check_no_nulls(values, column, "lists", first_row, stop)
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    expected = lengths[0] if n_features is None else n_features
    if (lengths != expected).any():
        row = int((lengths != expected).argmax())
        raise InvalidInputError(
            f"column {column!r} holds a list of {lengths[row]} values in row {first_row + row}, "
            f"expected n_features={expected} in every row."
        )
    inside = values.flatten()
    check_no_nulls(inside, column, "values", first_row, stop)
    matrix: np.ndarray = inside.to_numpy(zero_copy_only=False).reshape(len(values), -1)
    return matrix


def check_no_nulls(values: Any, column: str, what: str, start: int, stop: int) -> None:
    """Refuse missing values in rows ``start:stop``."""
    if values.null_count:
        raise InvalidInputError(
            f"column {column!r} has {values.null_count} null {what} in rows {start}..{stop - 1}; "
            "remove or replace them."
        )


def _list_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a list, null for anything else."""
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return kind.value_type if any(check(kind) for check in is_list) else pa.null()


def _is_small(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int8(kind) or pa.types.is_uint8(kind))


def encode_parquet(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], group_rows: int
) -> Iterator[bytes]:
    """Yield the bytes of a Parquet file, a row group of at least ``group_rows`` at a time."""
    sink = _Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, "w"), schema) as writer:
        group: list[pa.RecordBatch] = []
        for batch in batches:
            group.append(batch)
            if sum(map(len, group)) >= group_rows:
                writer.write_table(pa.Table.from_batches(group))
                group.clear()
                yield sink.drain()
        if group:
            writer.write_table(pa.Table.from_batches(group))
    yield sink.drain()


class _Sink(io.BytesIO):
    """A file that hands on what is written to it."""

    _n_drained = 0

    def tell(self) -> int:
        return self._n_drained + super().tell()

    def drain(self) -> bytes:
        """Return what was written since the last call, and forget it."""
        content = self.getvalue()
        self._n_drained += len(content)
        self.seek(0)
        self.truncate()
        return content
