"""Rows in one column of vectors of Parquet files, read in order.

Rows are numbered from 0 through all files in the order of their names. Reading row ranges one after
the other decodes every page once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.numerics.validation import check_finite
from prcut.runtime.columns import match_columns, stack_columns
from prcut.runtime.fingerprint import fingerprint_files
from prcut.runtime.folder import absolute_path, locate
from prcut.runtime.vector_column import (
    check_no_nulls,
    check_vector,
    only_vector_column,
    split_column,
    to_matrix,
    vector_dtype,
)

# Rows decoded at a time. A row group may be larger than memory, and the scanner of pyarrow.dataset
# decodes whole row groups: ParquetFile.iter_batches does not.
_BATCH_ROWS = 2**14


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
        self._paths = [info.path for info in infos]
        footers = [_read_footer(self._filesystem, info) for info in infos]
        counts = [sum(footer.group_rows) for footer in footers]
        self._set_rows(path, counts, [rows for footer in footers for rows in footer.group_rows])
        schema = footers[0].schema
        self.column = column or only_vector_column(schema, footers[0].path)
        self.id_column = id_column
        # several, where the pattern of a wide file was given
        self._wide = match_columns(schema, self.column, footers[0].path)
        # what is read, and what its bytes hold if it is a column of bytes
        self._read_from, self._held = split_column(self.column, schema.names)
        columns = self._wide or [self._read_from]
        for footer in footers:
            kinds = [_column_type(footer.schema, one, footer.path) for one in columns]
            if not self._wide:
                check_vector(kinds[0], self._held, self._read_from, footer.path)
            if id_column is not None:
                _check_ids(footer, id_column, footers[0])
        self.id_type = schema.field(id_column).type if id_column else None
        kind = pa.list_(pa.float32()) if self._wide else schema.field(self._read_from).type
        self.dtype: np.dtype[Any] = vector_dtype(kind, self._held)
        about = f"{counts} {self.column} {self.id_column}"
        self.fingerprint = fingerprint_files(self._filesystem, infos, about)
        # of a column: the row after the last that was read, the rest of its batch, later batches
        self._streams: dict[str, tuple[int, list[pa.Array], Iterator[pa.Array]]] = {}
        self.n_features = self._count_features()

    def _set_rows(self, path: str, counts: list[int], group_rows: list[int]) -> None:
        ends = np.cumsum([0, *counts], dtype=np.int64).tolist()
        self.n_samples: int = ends[-1]
        self.group_starts = np.unique(np.cumsum([0, *group_rows], dtype=np.int64))
        names = [Path(file) for file in self._paths]
        root = names[0].parent if self._paths == [path] else Path(path)
        self.files = [
            SourceFile(name.relative_to(root).as_posix(), start, stop)
            for name, (start, stop) in zip(names, pairwise(ends), strict=True)
        ]

    def _count_features(self) -> int:
        if self.n_samples == 0:
            return 0
        (first,) = self._read_column(self._read_from, 0, 1)
        return int(to_matrix(first, self._held, self.column, 0).shape[1])

    def __getstate__(self) -> dict[str, Any]:
        # open files stay behind when a source is sent to another process
        return {**self.__dict__, "_streams": {}}

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read rows ``start:stop``."""
        rows = np.empty((stop - start, self.n_features), self.dtype)
        done = 0
        for lists in self._read_column(self._read_from, start, stop):
            found = to_matrix(lists, self._held, self.column, start + done, self.n_features)
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
        wide = self._wide if column == self._read_from else []
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
