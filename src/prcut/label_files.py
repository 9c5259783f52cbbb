"""Clusters of every row as Parquet: one file per file of the data, in constant memory.

::

    a.parquet  b.parquet    the id column (or ``row``), ``label``, ``confidence``
    _prcut/                 plan and records, under a name that readers of Parquet pass over

A file is written under a temporary name and renamed; files that an earlier run finished are kept.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prcut.assigner import Assigner
from prcut.assignment import check_numbers, row_chunks
from prcut.engine import Engine, Here
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.fitting import choose_device
from prcut.level_assigner import LevelAssigner
from prcut.progress import Progress
from prcut.read_ahead import read_ahead
from prcut.sources import ParquetSource, Source, SourceFile, open_source, piece_rows
from prcut.storage import Folder, plan_key

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STATE_FOLDER", "LabelFiles", "assign_parquet"]

_FORMAT = 1
# where plan and records are
STATE_FOLDER = "_prcut"
# rows of a file made from an array, and of a row group
_FILE_ROWS, _GROUP_ROWS = 2**23, 2**18


class LabelFiles(NamedTuple):
    """What :func:`assign_parquet` has written.

    Attributes
    ----------
    path : str
    n_samples : int
    n_files, n_kept : int
        Files in all, and those that an earlier run had finished.
    """

    path: str
    n_samples: int
    n_files: int
    n_kept: int


def assign_parquet(
    assigner: Assigner | LevelAssigner,
    data: Any,
    path: str | Path,
    *,
    column: str | None = None,
    id_column: str | None = None,
    top: int = 0,
    device: str = "auto",
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> LabelFiles:
    """Write the cluster of every row of ``data``, or finish what an earlier run began.

    Columns are the ids under their own name (without an id column ``row``, int64, counted through
    all files), ``label`` int32 and ``confidence`` float32, the probability of that cluster; with
    ``top`` also ``clusters`` and ``probs``, lists of so many, the most probable first.

    Parameters
    ----------
    assigner : Assigner or LevelAssigner
    data : array, or path or URI of a .npy file, a Parquet file, or a folder of Parquet files
        See :func:`prcut.sources.open_source`, also for ``column`` and ``id_column``.
    path : str or path
        A new or empty folder, local or a URI; files are named as those of the data.
    top : int
        Clusters with their probabilities to write for every row.
    device : str
    engine : Engine, optional
        Where files are written; by default here.
    on_progress : callable, optional
        Called with a :class:`prcut.progress.Progress` after every few thousand rows.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow.parquet as pq
    >>> rows = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = assign_parquet(Assigner(4, 3), rows, folder, device="cpu")
    ...     pq.read_table(folder).schema.names
    ['row', 'label', 'confidence']
    """
    source = open_source(data, column=column, id_column=id_column)
    _check(assigner, source, top)
    assigner = assigner.float().to(choose_device(device)).eval()
    files = source.files if isinstance(source, ParquetSource) else _array_files(source)
    plan = {
        "kind": "labels",
        "format": _FORMAT,
        "model": _checksum(assigner),
        "fingerprint": source.fingerprint,
        "column": getattr(source, "column", None),
        "id_column": getattr(source, "id_column", None),
        "top": top,
        "files": [file.name for file in files],
    }
    folder = Folder(path)
    _check_target(folder)
    (folder / STATE_FOLDER).start(plan)
    folder.clear_unfinished()
    key = plan_key(plan)
    n_kept = sum(_is_finished(folder, file, number, key) for number, file in enumerate(files))
    write = partial(_write_file, folder, assigner, source, files, top, key)
    engine = engine or Here()
    engine.run("assign", write, len(files), total=source.n_samples, on_progress=on_progress)
    rows = {"n_samples": source.n_samples, "n_files": len(files)}
    (folder / STATE_FOLDER).write_json("manifest.json", {"key": key, "plan": plan, **rows})
    return LabelFiles(str(path), source.n_samples, len(files), n_kept)


def _write_file(
    folder: Folder,
    assigner: Assigner | LevelAssigner,
    source: Source,
    files: list[SourceFile],
    top: int,
    key: str,
    number: int,
    advance: Callable[[int], None],
) -> None:
    file = files[number]
    if _is_finished(folder, file, number, key):
        return advance(file.stop - file.start)
    target, name = _place(folder, file.name)
    written = target.write_bytes(name, _Labels(assigner, source, top, advance).file(file))
    record = {"key": key, "name": file.name, "size": written["size"]}
    return (folder / STATE_FOLDER).write_json(_record(number), record)


def _check(assigner: Assigner | LevelAssigner, source: Source, top: int) -> None:
    # a table of logits knows its own rows and no others
    if not isinstance(assigner, Assigner | LevelAssigner):
        raise InvalidInputError(
            f"the model is a {type(assigner).__name__}, which cannot assign new rows; fit one "
            "with features."
        )
    if source.n_features != assigner.n_features:
        raise InvalidInputError(
            f"data has n_features={source.n_features} columns, the model was fitted to "
            f"{assigner.n_features}."
        )
    if isinstance(top, bool) or not 0 <= top <= assigner.n_clusters:
        raise InvalidInputError(f"{top=} must be from 0 to n_clusters={assigner.n_clusters}.")
    if top and isinstance(assigner, LevelAssigner):
        raise InvalidInputError(f"{top=}: a model of levels gives every row one cluster; use 0.")
    id_column = getattr(source, "id_column", None)
    if id_column in ("label", "confidence", "clusters", "probs"):
        raise InvalidInputError(f"{id_column=} is the name of a result; rename the column.")


def _check_target(folder: Folder) -> None:
    """Never write among files that are not ours: the data themselves may be there."""
    folder.check_is_no_file()
    inside = folder.names(folders=True)
    if inside and STATE_FOLDER not in inside:
        raise InvalidInputError(
            f"{folder.path} holds other files; choose a new or empty folder for the labels."
        )


def _checksum(assigner: Assigner | LevelAssigner) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(assigner.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


# -- files -----------------------------------------------------------------------------------


def _array_files(source: Source) -> list[SourceFile]:
    starts = range(0, max(1, source.n_samples), _FILE_ROWS)
    return [
        SourceFile(f"part-{number:05d}.parquet", start, min(start + _FILE_ROWS, source.n_samples))
        for number, start in enumerate(starts)
    ]


def _place(folder: Folder, name: str) -> tuple[Folder, str]:
    """The folder and name of a file in it, at the depth it has in the data."""
    path = PurePosixPath(name)
    for part in path.parts[:-1]:
        folder = folder / part
    return folder, path.name


def _record(number: int) -> str:
    return f"file-{number:05d}.json"


def _is_finished(folder: Folder, file: SourceFile, number: int, key: str) -> bool:
    state = folder / STATE_FOLDER
    if not state.exists(_record(number)):
        return False
    try:
        record = state.read_json(_record(number))
    except CorruptFileError:
        return False
    target, name = _place(folder, file.name)
    expected = {"key": key, "name": file.name, "size": target.size(name)}
    return bool(record == expected)


# -- rows ------------------------------------------------------------------------------------


class _Labels:
    """Makes the content of the files."""

    def __init__(
        self,
        assigner: Assigner | LevelAssigner,
        source: Source,
        top: int,
        advance: Callable[[int], None],
    ) -> None:
        self._assigner, self._source, self._top, self._advance = assigner, source, top, advance

    def file(self, file: SourceFile) -> Iterator[bytes]:
        """The bytes of a Parquet file, a row group at a time."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = _Sink()
        schema = self._schema()
        with pq.ParquetWriter(pa.PythonFile(sink, "w"), schema) as writer:
            waiting: list[pa.RecordBatch] = []
            for batch in self._batches(file, schema):
                waiting.append(batch)
                if sum(map(len, waiting)) >= _GROUP_ROWS:
                    writer.write_table(pa.Table.from_batches(waiting))
                    waiting.clear()
                    yield sink.drain()
            if waiting:
                writer.write_table(pa.Table.from_batches(waiting))
        yield sink.drain()

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        source, top = self._source, self._top
        name, kind = getattr(source, "id_column", None), getattr(source, "id_type", None)
        fields = [(name or "row", kind if name else pa.int64())]
        fields += [("label", pa.int32()), ("confidence", pa.float32())]
        if top:
            fields += [
                ("clusters", pa.list_(pa.int32(), top)),
                ("probs", pa.list_(pa.float32(), top)),
            ]
        return pa.schema(fields)

    def _batches(self, file: SourceFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with closing(read_ahead(self._pieces(file))) as pieces:
            row = file.start
            for features, ids in pieces:
                label, confidence, *lists = _assign(self._assigner, features, self._top, row)
                row += len(features)
                columns = [ids.cast(schema.types[0]), pa.array(label), pa.array(confidence)]
                columns += [
                    pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), self._top)
                    for values in lists
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
                self._advance(len(label))

    def _pieces(self, file: SourceFile) -> Iterator[tuple[np.ndarray, pa.Array]]:
        import pyarrow as pa

        source = self._source
        step = piece_rows(source)
        for start in range(file.start, file.stop, step):
            stop = min(start + step, file.stop)
            ids = source.read_ids(start, stop)
            yield source.read(start, stop), pa.array(range(start, stop)) if ids is None else ids


@torch.inference_mode()
def _assign(
    assigner: Assigner | LevelAssigner, features: np.ndarray, top: int, first_row: int = 0
) -> list[np.ndarray]:
    """Label and confidence of every row and, with ``top``, its clusters and probabilities."""
    parts = []
    for rows, chunk in row_chunks(assigner, features):
        if isinstance(assigner, LevelAssigner):
            leaf, confidence = assigner.walk(chunk)
            parts.append([leaf.int(), confidence])
        else:
            parts.append(_best(assigner(chunk), top))
        check_numbers(parts[-1][1], first_row + rows.start)
    return [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]


def _best(logits: Tensor, top: int) -> list[Tensor]:
    """As :func:`_assign`, of logits that may be written over.

    >>> label, confidence = _best(torch.tensor([[0.0, 2.0, 0.0]]), 0)
    >>> label.tolist(), confidence.allclose(torch.tensor([0.0, 2.0, 0.0]).softmax(0).max())
    ([1], True)
    """
    values, clusters = logits.topk(top, 1) if top else logits.max(1, keepdim=True)
    # the largest probability is 1 / Σ exp(logit − largest): no table of probabilities is kept
    total = logits.sub_(values[:, :1]).exp_().sum(1)
    label, confidence = clusters[:, 0].int(), total.reciprocal()
    if not top:
        return [label, confidence]
    probs = (values - values[:, :1]).exp_() / total[:, None]
    return [label, confidence, clusters.int(), probs]


class _Sink(io.RawIOBase):
    """A file that hands on what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._pieces.append(bytes(content))
        self._position += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._position

    def drain(self) -> bytes:
        """What was written since the last call."""
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content
