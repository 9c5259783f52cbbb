"""Vectors of users' own texts and images as Parquet, in constant memory.

::

    part-00000.parquet …    a file per file of the data: the id column, columns that are kept,
                            ``vector`` (float16 lists of one length)
    _prcut/                 plan, records, and chunks of files that are not finished

Rows are encoded in chunks, each sealed when it is done; a file's chunks are joined at its end. What
is killed at any moment is resumed by the same call, and ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from prcut.errors import InvalidInputError
from prcut.pipeline.embedding import (
    check_half,
    choose_batch_size,
    encode_chunk,
    fingerprint_weights,
)
from prcut.pipeline.encoders.base import Encoder
from prcut.pipeline.encoders.load import load_encoder
from prcut.pipeline.labels import STATE_FOLDER, check_new
from prcut.runtime.device import choose_device
from prcut.runtime.engine import Engine, LocalEngine, read_ahead
from prcut.runtime.folder import Folder, plan_key
from prcut.runtime.items import Items
from prcut.runtime.parquet_bytes import encode_parquet
from prcut.runtime.progress import OnProgress

_FORMAT = 1
VECTOR = "vector"
# rows that a killed task loses at most; images are kept encoded until their batch comes
_CHUNK_ROWS = {"texts": 4096, "images": 512}
_GROUP_ROWS = 2**15


class EmbeddedFiles(NamedTuple):
    """What :func:`embed_files` has written; an earlier run had finished ``n_kept`` files."""

    path: str
    id_column: str
    n_samples: int
    n_features: int
    n_files: int
    n_kept: int


def embed_files(
    data: str | Path,
    model: str,
    path: str | Path,
    *,
    text_column: str | None = None,
    image_column: str | None = None,
    id_column: str | None = None,
    keep: Sequence[str] = (),
    batch_size: int | None = None,
    device: str = "auto",
    engine: Engine | None = None,
    on_progress: OnProgress = None,
) -> EmbeddedFiles:
    """Write the vector of every text or image of ``data``, or finish what an earlier call began.

    Parameters
    ----------
    data, text_column, image_column, id_column, keep
        See :class:`prcut.runtime.items.Items`.
    model, batch_size, device
        See :func:`prcut.embed`.
    path : str or path
        A new or empty folder, local or a URI.
    engine : Engine, optional
        Where tasks run, one per file; by default in this process.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress` after every batch.
    """
    options = {"text_column": text_column, "image_column": image_column, "id_column": id_column}
    items = Items(data, keep=keep, **options)
    if VECTOR in items.schema.names:
        raise InvalidInputError(f"column {VECTOR!r} is the name of a result; rename the column.")
    folder = Folder(path)
    check_new(folder)
    size = choose_batch_size(batch_size, choose_device(device))
    try:
        encoder = _encoder(model, device, items.kind)
        plan = {
            "kind": "embeddings",
            "format": _FORMAT,
            "model": model,
            "library": encoder.library,
            "preparation": encoder.preparation,
            "weights": fingerprint_weights(encoder.module),
            "fingerprint": items.fingerprint,
            "column": items.column,
            "id_column": items.id_column,
            "chunk_rows": _CHUNK_ROWS[items.kind],
            "files": [file.name for file in items.files],
        }
        job = _Job(folder, items, model, device, size, plan_key(plan))
        job.state.start(plan)
        folder.clear_unfinished()
        n_kept = sum(job.is_finished(number) for number in range(len(items.files)))
        engine, write = engine or LocalEngine(), partial(_write_file, job)
        total, n_files = items.n_samples, len(items.files)
        engine.run("embed", write, n_files, total=total, on_progress=on_progress)
    finally:
        _encoder.cache_clear()
    _remove_chunks(job.state, "chunk-")  # of a file that was finished, but not tidied
    first = next(number for number, file in enumerate(items.files) if file.stop > file.start)
    n_features = job.state.read_json(f"file-{first:05d}.json")["n_features"]
    sizes = {"n_samples": items.n_samples, "n_features": n_features, "n_files": n_files}
    job.state.write_json("manifest.json", {"key": job.key, "plan": plan, **sizes})
    return EmbeddedFiles(str(path), items.id_column, **sizes, n_kept=n_kept)


# once per process, which may be that of a worker
@lru_cache(maxsize=1)
def _encoder(model: str, device: str, kind: str) -> Encoder:
    return load_encoder(model, choose_device(device), kind)


class _Job(NamedTuple):
    """What every task needs to know."""

    folder: Folder
    items: Items
    model: str
    device: str
    batch_size: int
    key: str

    @property
    def state(self) -> Folder:
        """Folder of the plan, the records and the chunks."""
        return self.folder / STATE_FOLDER

    def is_finished(self, number: int) -> bool:
        """Return whether a file is written, or has no rows."""
        file, record = self.items.files[number], self.state.read_record(f"file-{number:05d}.json")
        if record is None or record.get("key") != self.key:
            return file.start == file.stop
        name = f"part-{number:05d}.parquet"
        return bool(record["files"].get(name, {}).get("size") == self.folder.size(name))


def _write_file(job: _Job, number: int, advance: Callable[[int], None]) -> None:
    file = job.items.files[number]
    if job.is_finished(number):
        advance(file.stop - file.start)
        return
    chunks = _write_chunks(job, number, advance)
    schema = _read_chunk(job.state, chunks[0]).schema
    batches = (_read_chunk(job.state, name) for name in chunks)
    name = f"part-{number:05d}.parquet"
    written = job.folder.write_bytes(name, encode_parquet(schema, batches, _GROUP_ROWS))
    n_features = schema.field(VECTOR).type.list_size
    record = {"key": job.key, "n_features": n_features, "files": {name: written}}
    job.state.write_json(f"file-{number:05d}.json", record)
    _remove_chunks(job.state, f"chunk-{number:05d}-")


def _remove_chunks(state: Folder, prefix: str) -> None:
    for name in state.names():
        if name.startswith(prefix):
            state.remove(name)


def _write_chunks(job: _Job, number: int, advance: Callable[[int], None]) -> list[str]:
    """Encode the rows of a file; return the names of its chunks."""
    items, done = job.items, job.items.files[number].start
    names: list[str] = []
    is_image = items.kind == "images"
    encoder = _encoder(job.model, job.device, items.kind)
    with closing(read_ahead(items.read(number, _CHUNK_ROWS[items.kind]))) as chunks:
        for kept, chunk in chunks:
            names.append(name := f"chunk-{number:05d}-{len(names):06d}.arrow")
            if job.state.is_sealed(f"{name}.json", job.key):
                advance(len(kept))
            else:
                load = items.load if is_image else None
                rows = encode_chunk(chunk, encoder, job.batch_size, advance, load)
                check_half(rows, done)
                written = job.state.write_bytes(name, iter([_encode_chunk(kept, rows)]))
                job.state.write_json(f"{name}.json", {"key": job.key, "files": {name: written}})
            done += len(kept)
    return names


def _encode_chunk(kept: pa.RecordBatch, rows: np.ndarray) -> memoryview:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    batch = pa.RecordBatch.from_arrays(
        [*kept.columns, vectors], schema=kept.schema.append(pa.field(VECTOR, vectors.type))
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


def _read_chunk(state: Folder, name: str) -> pa.RecordBatch:
    return pa.ipc.open_file(state.read_bytes(name)).get_batch(0)
