"""Sources of rows: arrays, tensors and data frames, .npy files, and Parquet files.

Rows have a fixed order and are numbered from 0. A source reads any range of rows, and has a
fingerprint: a hash that changes with the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from prcut.errors import InvalidInputError
from prcut.numerics.validation import check_finite
from prcut.runtime.fingerprint import fingerprint_array, fingerprint_files
from prcut.runtime.folder import absolute_path, locate

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

# bytes of features read at a time
_READ_BYTES = 2**24
# row ranges that a sample is drawn from at most, so that it does not read all of 10⁹ rows
_SAMPLED_RANGES = 256


class Source(Protocol):
    """Rows of features in a fixed order, with the ids of a column where there is one."""

    n_samples: int
    n_features: int
    dtype: np.dtype[Any]
    path: str | None
    """Absolute, or a URI; None of an array in memory."""
    fingerprint: str
    """Changes with the data: see :func:`fingerprint_files`."""
    group_starts: np.ndarray
    """Rows at which reading can begin without decoding earlier ones, int64, ascending."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read rows ``start:stop`` as float16 or float32, checked to be finite."""

    def read_ids(self, start: int, stop: int) -> pa.Array | None:
        """Read the ids of rows ``start:stop``; None without an id column."""


def open_source(
    data: Any,
    *,
    column: str | None = None,
    id_column: str | None = None,
    filesystem: fs.FileSystem | None = None,
) -> Source:
    """Open ``data`` as a source.

    Parameters
    ----------
    data : array, path or URI of a .npy file, a Parquet file or a folder of them, or Source
        Floats of 16, 32 or 64 bits; 64 bits are read as 32. An opened source is returned as it is.
        Tensors, and frames or Arrow streams with one column of vectors, become arrays.
    column : str, optional
        Parquet: the column of lists with the features; may be left out when only one column holds
        lists of floats, int8 or uint8. For wide files, the numeric columns, such as ``"f*"`` or
        ``"x,y,z"``.
    id_column : str, optional
        Parquet: a column of integers or strings that names the rows.
    filesystem : pyarrow.fs.FileSystem, optional
        Where a path is, when it is not local and not a URI.
    """
    from prcut.runtime.parquet import ParquetSource, refuse_other_formats

    if isinstance(data, ArraySource | ParquetSource):
        return data
    if not isinstance(data, str | Path) and isinstance(rows := as_rows(data), np.ndarray):
        return ArraySource(rows)
    if not isinstance(data, str | Path):
        raise InvalidInputError(
            f"data is a {type(data).__name__}, expected an array or the path of a .npy or Parquet "
            "file or folder."
        )
    if str(data).endswith(".npy"):
        return ArraySource(map_npy(Path(data)), absolute_path(data))
    refuse_other_formats(str(data))
    return ParquetSource(str(data), column, id_column, filesystem)


def map_npy(path: Path) -> np.ndarray:
    """Map a .npy file of any shape into memory; nothing in it is ever unpickled."""
    if not path.is_file():  # opening a pipe would wait for its writer
        raise InvalidInputError(f"{path} {'is not a file' if path.exists() else 'does not exist'}.")
    try:
        # not np.load, which also opens archives and, if it may, pickles
        array: np.ndarray = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, TypeError, SyntaxError, TokenError, ArithmeticError) as error:
        raise InvalidInputError(f"{path} cannot be read as a .npy file: {error}") from error
    if array.ndim == 2 and array.shape[1] == 0:  # a forged number of rows would take no space
        raise InvalidInputError(f"{path} has n_features=0 columns, expected at least one.")
    return array


def rows_per_read(source: Source) -> int:
    """Return how many rows to read at a time, 16 MB of features."""
    return max(1, _READ_BYTES // max(1, source.n_features * source.dtype.itemsize))


def cut_row_ranges(source: Source, n_rows: int) -> np.ndarray:
    """Cut the rows into ranges of about ``n_rows``; return their starts and the last stop, int64.

    A range starts where a row group does, if that makes it at most twice as long: each is read by
    a task of its own, which would otherwise decode the rows before it as well.
    """
    starts, total = source.group_starts, source.n_samples
    cuts = [0]
    while cuts[-1] < total:
        limit = cuts[-1] + n_rows
        bounds = cuts[-1], limit, limit + n_rows
        after, within, stop = np.searchsorted(starts, bounds, side="right").tolist()
        if limit >= total:
            cuts.append(total)
        else:  # the last group that starts up to the limit, or else the first one after it
            cuts.append(int(starts[max(after, within - 1)]) if after < stop else limit)
    return np.asarray(cuts, np.int64)


def sample_rows(source: Source, n_rows: int, seed: int | Sequence[int]) -> np.ndarray:
    """Draw about ``n_rows`` rows, in order, from row ranges spread evenly over the source."""
    return draw_rows(source, n_rows, seed)[1]


def draw_rows(
    source: Source, n_rows: int, seed: int | Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of about ``n_rows`` rows, in order, and the rows: see ``sample_rows``."""
    rng = np.random.default_rng(seed)
    cuts = cut_row_ranges(source, rows_per_read(source))
    chosen = np.linspace(0, len(cuts) - 2, min(len(cuts) - 1, _SAMPLED_RANGES)).astype(int)
    ranges = [(int(cuts[number]), int(cuts[number + 1])) for number in np.unique(chosen)]
    n_seen = sum(stop - start for start, stop in ranges)
    numbers, samples = [], []
    for start, stop in ranges:
        wanted = min(stop - start, -(-n_rows * (stop - start) // n_seen))
        offsets = np.sort(rng.choice(stop - start, wanted, replace=False))
        numbers.append(start + offsets)
        samples.append(source.read(start, stop)[offsets])
    return np.concatenate(numbers), np.concatenate(samples)


def read_all(source: Source) -> np.ndarray:
    """Read all rows into one array, checked to be finite; without a copy where that is possible."""
    kept = source.array if isinstance(source, ArraySource) else None
    if kept is not None and (kept.dtype != source.dtype or not kept.flags.c_contiguous):
        kept = None
    shape = source.n_samples, source.n_features
    try:
        rows = np.empty(shape, source.dtype) if kept is None else kept
    except (MemoryError, ValueError) as error:
        raise InvalidInputError(f"data of shape {shape} do not fit in memory: {error}") from error
    step = rows_per_read(source)
    for start in range(0, source.n_samples, step):
        stop = min(start + step, source.n_samples)
        checked = source.read(start, stop)
        if kept is None:
            rows[start:stop] = checked
    return rows


class ArraySource:
    """Rows of an array in memory or mapped from a .npy file."""

    def __init__(self, array: np.ndarray, path: str | None = None) -> None:
        if array.ndim != 2 or array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise InvalidInputError(
                f"data has shape {array.shape} and dtype {array.dtype}, expected floats of shape "
                "(n_samples, n_features)."
            )
        self.array, self.path = array, path
        self.n_samples, self.n_features = array.shape
        is_half = array.dtype == np.float16
        self.dtype: np.dtype[Any] = np.dtype(np.float16 if is_half else np.float32)
        if path is None:
            self.fingerprint = fingerprint_array(array)
        else:
            filesystem, local = locate(path)
            self.fingerprint = fingerprint_files(filesystem, [filesystem.get_file_info(local)])
        self.group_starts = np.empty(0, np.int64)  # reading can begin anywhere

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read rows ``start:stop``."""
        rows = np.ascontiguousarray(self.array[start:stop], self.dtype)
        return check_finite(rows, start, "data")

    def read_ids(self, start: int, stop: int) -> pa.Array | None:  # noqa: ARG002
        """Return None: an array has no ids."""
        return None


def as_rows(data: Any) -> Any:
    """Return tensors and columns of vectors as arrays; leave anything else as it is.

    A tensor may need gradients, be on a device or of bfloat16. A frame of pandas or Polars, a table
    of pyarrow, or what else has ``__arrow_c_stream__``, may have one column of vectors, beside
    columns of other kinds.

    >>> as_rows([[1.0, 2.0]])
    [[1.0, 2.0]]
    """
    if isinstance(data, list | tuple) and data and isinstance(data[0], str):
        raise InvalidInputError(
            f"X has texts, such as {data[0][:40]!r}; embed them first: prcut.embed(X, 'minilm')."
        )
    if hasattr(data, "detach"):
        tensor = data.detach().cpu()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    if getattr(getattr(data, "dtype", None), "name", None) == "bfloat16":
        return data.astype(np.float32)
    if hasattr(data, "iloc"):
        return _rows_of_pandas(data)
    return _rows_of_arrow(data) if hasattr(data, "__arrow_c_stream__") else data


def _rows_of_pandas(data: Any) -> Any:
    columns = {"": data} if data.ndim == 1 else {name: data[name] for name in data.columns}
    names = [name for name, values in columns.items() if _holds_vectors(values)]
    if not names:
        return data
    if len(names) > 1:
        raise InvalidInputError(
            f"X has {len(names)} columns of vectors, {names}; pass one of them."
        )
    name = names[0]
    import pyarrow as pa

    from prcut.runtime.parquet import to_matrix

    try:
        return _floats(to_matrix(pa.array(columns[name].to_list()), str(name), 0))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"column {name!r} does not hold vectors of numbers: {error}"
        ) from error


def _holds_vectors(values: Any) -> bool:
    # a frame may have two columns of one name, which gives a frame of both
    is_column = values.ndim == 1 and len(values) > 0 and not hasattr(values.dtype, "categories")
    return is_column and isinstance(values.iloc[0], list | tuple | np.ndarray)


def _rows_of_arrow(data: Any) -> Any:
    import pyarrow as pa

    from prcut.runtime.parquet import only_vector_column, to_matrix

    try:
        table = pa.table(data)
    except (pa.ArrowException, TypeError, ValueError):  # one column, which is no table
        table = pa.table({"": pa.chunked_array(data)})
    kinds = [kind for kind in table.schema.types if pa.types.is_nested(kind)]
    if not kinds and not any(pa.types.is_fixed_size_list(kind) for kind in table.schema.types):
        return data if hasattr(data, "__array__") else table
    name = only_vector_column(table.schema, "X")
    column = table[name].combine_chunks()
    parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return _floats(np.concatenate([to_matrix(part, name, 0) for part in parts]))


def _floats(rows: np.ndarray) -> np.ndarray:
    """Return floats; small whole numbers fit in half precision."""
    if rows.dtype.kind == "f":
        return rows
    return rows.astype(np.float16 if rows.dtype.itemsize == 1 else np.float32)
