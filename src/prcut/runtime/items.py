"""Texts and images of users' own files, streamed in a fixed order with their ids.

Formats are told by the ends of names: ``.parquet``, ``.csv``, ``.tsv``, ``.jsonl`` and ``.txt`` (a
text per line), all but the first also with ``.gz``; ``.npy`` (uint8 images); a folder of such files
or of images. Memory holds a chunk of rows at a time, however many there are. Names of files and
values of rows are only ever text: no part of them becomes a name of a file that is written.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyarrow import fs

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.runtime.folder import locate
from prcut.runtime.parquet_source import SourceFile
from prcut.runtime.sources import map_npy

# bytes of a CSV file that are parsed at a time; a row may not be longer
_BLOCK_BYTES = 2**24
# images of a folder that make one file of the result
_FOLDER_ROWS = 2**14
_TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", ".txt")
_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")

Chunk = tuple[pa.RecordBatch, Sequence[Any]]
"""Columns that are kept of some rows, and the rows' items: texts, or what ``load`` decodes."""


class Items:
    """Texts or images in a fixed order, with the columns that are kept of their rows.

    Parameters
    ----------
    data : path or URI
        A file or a folder of files, see the module.
    text_column, image_column : str, optional
        The column of the texts, or of the images: encoded bytes, or paths, relative to the file's
        folder. One of the two is needed where the file has columns.
    id_column : str, optional
        Column of integers or strings that names the rows; without one, images of a folder are
        named by their ``path``, and others counted by ``row``.
    keep : sequence of str
        Further columns to keep.
    """

    def __init__(
        self,
        data: str | Path,
        *,
        text_column: str | None = None,
        image_column: str | None = None,
        id_column: str | None = None,
        keep: Sequence[str] = (),
    ) -> None:
        self._filesystem, self._root = locate(data)
        infos, self._format = _list_files(self._filesystem, self._root)
        if text_column and image_column:
            raise InvalidInputError("give a column of texts or one of images, not both.")
        has_columns = self._format in _TABLES and self._format != ".txt"
        if has_columns and not (text_column or image_column):
            raise InvalidInputError(f"{data} has columns; name that of the texts or of the images.")
        known = (None, "text") if self._format == ".txt" else (None,)
        asked = (text_column, image_column, id_column, *keep)
        if not has_columns and any(name not in known for name in asked):
            raise InvalidInputError(f"{data} has no columns; leave out the names of columns.")
        is_text = text_column is not None or self._format == ".txt"
        self.kind = "texts" if is_text else "images"
        self.column = text_column or image_column or ("text" if is_text else "path")
        self._paths = [info.path for info in infos]
        self.id_column = id_column or ("path" if self._format == "folder" else "row")
        self._stored = [*dict.fromkeys([*([id_column] if id_column else []), *keep])]
        self._types: dict[str, pa.DataType] = {}
        self._types = {name: self._type_of(name) for name in self._stored}
        first = (self.id_column, self._types.get(self.id_column, _id_type(self.id_column)))
        rest = [(name, self._types[name]) for name in self._stored if name != self.id_column]
        self.schema = pa.schema([first, *rest])
        self.files = self._count()
        self.n_samples = self.files[-1].stop
        sizes = [(info.path.removeprefix(self._root), info.size) for info in infos]
        content = json.dumps([sizes, self.files, self.column, str(self.schema)])
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()

    def read(self, number: int, chunk_rows: int) -> Iterator[Chunk]:
        """Yield the rows of a file in chunks of that many."""
        start, done = self.files[number].start, 0
        for batch in _regroup(self._batches(number), chunk_rows):
            values, kept = batch.column(self.column), batch
            if values.null_count:
                row = done + values.is_null().to_numpy(zero_copy_only=False).argmax()
                raise InvalidInputError(
                    f"column {self.column!r} of {self.files[number].name} is empty in row {row}; "
                    "remove or fill it."
                )
            if self.id_column == "row" and "row" not in self._stored:
                rows = pa.array(np.arange(start + done, start + done + len(batch)))
                kept = kept.append_column("row", rows)
            done += len(batch)
            yield kept.select(self.schema.names).cast(self.schema), self._items(number, values)
        if done != self.files[number].stop - start:
            raise CorruptFileError(
                f"{self.files[number].name} had {self.files[number].stop - start} rows and now has "
                f"{done}; run again."
            )

    def load(self, item: Any) -> np.ndarray:
        """Return an image of :meth:`read` as uint8 (height, width[, 3])."""
        if isinstance(item, np.ndarray):
            return item
        where = "a row" if isinstance(item, bytes) else repr(item)
        if isinstance(item, str):
            if not self._filesystem.get_file_info(item).is_file:
                raise InvalidInputError(f"the image {item!r} is not a file that can be read.")
            with self._filesystem.open_input_file(item) as file:
                item = file.read()
        return decode_image(item, where)

    # -- files of every format ---------------------------------------------------------------------

    def _items(self, number: int, values: pa.Array) -> Sequence[Any]:
        if self._format == ".npy":
            images: np.ndarray = map_npy(Path(self._paths[0]))[values.to_numpy()]
            return images  # type: ignore[return-value]  # it has all that is used of a sequence
        found = values.to_pylist()
        if self.kind == "texts":
            return [str(one) for one in found]
        home = self._root if self._format == "folder" else self._paths[number].rpartition("/")[0]
        return [_find_image(one, home) for one in found]

    def _type_of(self, name: str) -> pa.DataType:
        """Return the type of a column in the first file; what is no integer is kept as text."""
        if self._format == ".parquet":
            return self._schema(0).field(name).type
        batch = next(self._table_batches(0, {name: None}), None)
        is_whole = batch is not None and pa.types.is_integer(batch.column(name).type)
        return pa.int64() if is_whole else pa.string()

    def _schema(self, number: int) -> pa.Schema:
        with self._open(number) as stream:
            schema = pq.read_schema(stream)
        for name in (self.column, *self._stored):
            _check_column(name, schema.names, self._paths[number])
        return schema

    def _count(self) -> list[SourceFile]:
        if self._format == "folder":
            cuts = [*range(0, len(self._paths), _FOLDER_ROWS), len(self._paths)]
            pairs = enumerate(pairwise(cuts))
            return [SourceFile(f"images {number}", *bounds) for number, bounds in pairs]
        counts = [self._count_rows(number) for number in range(len(self._paths))]
        ends = np.cumsum([0, *counts]).tolist()
        if not ends[-1]:
            raise InvalidInputError(f"{self._root} holds no rows.")
        names = [PurePosixPath(path).name for path in self._paths]
        return [SourceFile(*one) for one in zip(names, ends[:-1], ends[1:], strict=True)]

    def _count_rows(self, number: int) -> int:
        if self._format == ".parquet":
            self._schema(number)
            with self._open(number) as stream:
                return int(pq.read_metadata(stream).num_rows)
        return sum(map(len, self._batches(number)))

    def _batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of any length with the column of the items and those that are stored."""
        if self._format == "folder":
            start, stop = self.files[number][1:]
            below = len(self._root.rstrip("/")) + 1
            names = [path[below:] for path in self._paths[start:stop]]
            yield pa.record_batch({"path": pa.array(names, pa.string())})
        elif self._format == ".npy":
            images = map_npy(Path(self._paths[0]))
            if images.dtype != np.uint8 or images.ndim not in (3, 4):
                raise InvalidInputError(
                    f"{self._paths[0]} has shape {images.shape} and dtype {images.dtype}, expected "
                    "uint8 images (n, height, width[, 3])."
                )
            yield pa.record_batch({"path": np.arange(len(images))})
        elif self._format == ".parquet":
            with self._open(number) as stream:
                columns = [*dict.fromkeys([self.column, *self._stored])]
                yield from pq.ParquetFile(stream).iter_batches(1024, columns=columns)
        else:
            item = {self.column: pa.string()} if self.kind == "texts" else {self.column: None}
            yield from self._table_batches(number, {**self._types, **item})

    def _table_batches(
        self, number: int, types: dict[str, pa.DataType | None]
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of a CSV, JSONL or text file; a type of None is inferred."""
        with self._open(number) as stream:
            if self._format in (".csv", ".tsv"):
                yield from _read_csv(stream, self._format, types)
            else:
                yield from _read_lines(stream, self._format, types, self._paths[number])

    @contextmanager
    def _open(self, number: int) -> Iterator[Any]:
        """Open a file, unpacked if it is packed, and name it where pyarrow finds bad bytes."""
        path = self._paths[number]
        try:
            if self._format == ".parquet":
                with self._filesystem.open_input_file(path) as file:
                    yield file
            else:
                with self._filesystem.open_input_stream(path, compression="detect") as stream:
                    yield stream
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise InvalidInputError(f"{path} cannot be read: {error}") from error


def decode_image(content: Any, where: str = "a row") -> np.ndarray:
    """Decode an image, or the record that data sets of the Hugging Face Hub have for one."""
    from PIL import Image

    if isinstance(content, dict):
        content = content.get("bytes")
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    except (OSError, TypeError, ValueError, Image.DecompressionBombError) as error:
        raise InvalidInputError(f"{where} of images is not an encoded image: {error}") from error


def _list_files(filesystem: fs.FileSystem, path: str) -> tuple[list[fs.FileInfo], str]:
    """Return the files in the order of their names, and their one format."""
    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise InvalidInputError(f"{path} does not exist.")
    known = (*_TABLES, ".npy", *_IMAGES)
    infos = [info]
    if not info.is_file:
        found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
        # names that begin so are markers and leftovers of other writers
        infos = [one for one in found if one.is_file and one.base_name[0] not in "._"]
        infos = sorted((i for i in infos if _ending(i.path) in known), key=lambda i: str(i.path))
    formats = {"folder" if _ending(one.path) in _IMAGES else _ending(one.path) for one in infos}
    is_one = len(formats) == 1 and formats <= {*_TABLES, ".npy", "folder"}
    if not is_one or (info.is_file and formats == {"folder"}):
        holds = ", ".join(sorted(formats)) or "nothing of these"
        raise InvalidInputError(
            f"{path} must be a file, or a folder of files of one kind: {', '.join(_TABLES)}, .npy, "
            f"or a folder of images; it is or holds {holds}."
        )
    if formats == {".npy"} and len(infos) > 1:
        raise InvalidInputError(f"{path} holds several .npy files; give one of them.")
    return infos, formats.pop()


def _ending(path: str) -> str:
    return PurePosixPath(path.lower().removesuffix(".gz")).suffix


def _id_type(name: str) -> pa.DataType:
    return pa.string() if name == "path" else pa.int64()


def _check_column(name: str, names: Sequence[str], path: str) -> None:
    if name not in names:
        raise InvalidInputError(f"{path} has no column {name!r}; it has {', '.join(names)}.")


def _find_image(value: Any, home: str) -> Any:
    """Return the bytes of an image, or its path."""
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str) and "://" not in value and not value.startswith("/"):
        return f"{home}/{value}"
    return value


def _regroup(batches: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of ``n_rows``, the last one shorter."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        while sum(map(len, waiting)) >= n_rows:
            whole = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
            yield whole[:n_rows]
            waiting = [whole[n_rows:]]
    if sum(map(len, waiting)):
        yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def _read_csv(
    stream: Any, ending: str, types: dict[str, pa.DataType | None]
) -> Iterator[pa.RecordBatch]:
    known = {name: kind for name, kind in types.items() if kind is not None}
    delimiter = "\t" if ending == ".tsv" else ","
    csv = pyarrow.csv
    with csv.open_csv(
        stream,
        csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        # other columns may change their type half-way, and nobody asked for them
        csv.ConvertOptions(column_types=known, include_columns=[*types], null_values=[]),
    ) as reader:
        yield from reader


def _read_lines(
    stream: Any, ending: str, types: dict[str, pa.DataType | None], path: str
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a file of JSON objects, or of texts, one per line."""
    lines = iter(io.TextIOWrapper(stream, "utf-8", newline="\n"))
    number = 0
    while batch := [*islice(lines, 1024)]:
        if ending == ".txt":
            yield pa.record_batch({"text": pa.array([line.rstrip("\r\n") for line in batch])})
            continue
        columns: dict[str, list[Any]] = {name: [] for name in types}
        for line in batch:
            number += 1
            if line.strip():
                _add_row(columns, line, types, f"line {number} of {path}")
        yield pa.record_batch({name: pa.array(columns[name], types[name]) for name in types})


def _add_row(
    columns: dict[str, list[Any]], line: str, types: dict[str, pa.DataType | None], where: str
) -> None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise InvalidInputError(f"{where} is a {type(row).__name__}, expected an object.")
    for name, values in columns.items():
        _check_column(name, [*row], where)
        value = row[name]
        if types[name] == pa.string() and value is not None and not isinstance(value, str):
            value = json.dumps(value)
        values.append(value)
