"""Clusters of every row: in the order of the source, and as Parquet, one file per file of the data.

::

    partition/labels.npy     cluster of every row, int32, −1 for a row without an edge
    partition/manifest.json  written after it
    partition/score.json     objective, ratio cut, balance weight; cluster sizes and merge tree

    labels/a.parquet         the id column (or ``row``), ``label``, ``confidence``, ``label_<k>``;
                             where rows are rejected also ``cluster``
    labels/_prcut/           plan and records, under a name that readers of Parquet skip

A file is written under a temporary name and renamed; files that an earlier run finished are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from pyarrow import dataset
from torch import Tensor

from prcut.errors import CorruptFileError, InvalidInputError, warn_of
from prcut.fit.clusters import Score
from prcut.fit.outliers import OutlierRule
from prcut.runtime.device import choose_device
from prcut.runtime.engine import Engine, LocalEngine, read_ahead
from prcut.runtime.folder import Folder, parsing, plan_key, whole_number
from prcut.runtime.parquet import ParquetSource, SourceFile, encode_parquet
from prcut.runtime.progress import Progress
from prcut.runtime.sources import Source, open_source, rows_per_read
from prcut.search.merge import MergeTree
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels, check_numbers, row_chunks

_FORMAT = 1
SCORE_RECORD = "score.json"
# holds the plan and the records
STATE_FOLDER = "_prcut"
# rows that are compared with those of the fit
_COMPARED_ROWS = 2**12
# Unlike rows lie so many times as far from the mean of the fitted rows. Those of one class alone,
# of digits, questions, news or tweets, lie 0.85 to 1.16 times as far
_AWAY = 1.5
# or so much nearer to each other, where there are enough of them
_APART, _FEW_ROWS = 0.25, 32
# rows of a file made from an array, and of a row group
_FILE_ROWS, _GROUP_ROWS = 2**23, 2**18


# -- the partition of a run -----------------------------------------------------------------------


class RowLabels:
    """Clusters of all rows of a source, read by ranges of rows."""

    def __init__(self, folder: Folder) -> None:
        manifest = folder.read_manifest(_FORMAT, "fit_run")
        with parsing(f"{folder.path}/manifest.json"):
            self.key = str(manifest["key"])
            self.n_samples = whole_number(manifest["plan"]["n_samples"])
        self._folder = folder

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Read the clusters of rows ``start:stop``, by default all; −1 where a row has none."""
        stop = self.n_samples if stop is None else stop
        labels = self._folder.read_array("labels.npy", start, stop)
        if labels.dtype != np.int32 or labels.shape != (stop - start,):
            raise CorruptFileError(f"{self._folder.path} holds no clusters of rows {start}:{stop}.")
        return labels


def find_clusters(
    folder: Folder, numbers: np.ndarray, rows: np.ndarray, assigner: Assigner
) -> np.ndarray:
    """Return the clusters of some rows, in order: the partition's, or else the assigner's."""
    found = np.full(len(numbers), -1)
    if folder.exists("manifest.json"):
        found = RowLabels(folder).read()[numbers].astype(np.int64)
    unknown = found < 0
    found[unknown] = assign_labels(assigner, rows[unknown])
    return found


def save_row_labels(folder: Folder, key: str, labels: np.ndarray) -> None:
    """Write the clusters of all rows."""
    plan = {"format": _FORMAT, "n_samples": len(labels)}
    arrays = {"labels.npy": labels.astype(np.int32, copy=False)}
    folder.seal("manifest.json", arrays, {"key": key, "plan": plan})


def save_score(folder: Folder, key: str, score: Score, balance_weight: float) -> None:
    """Write what the partition costs."""
    arrays = {"sizes.npy": score.cluster_sizes}
    if score.merge_tree is not None:
        arrays |= {f"{name}.npy": values for name, values in score.merge_tree._asdict().items()}
    content = {"key": key, "objective": score.objective, "ratio_cut": score.ratio_cut}
    folder.seal(SCORE_RECORD, arrays, {**content, "balance_weight": balance_weight})


def read_score(folder: Folder) -> tuple[Score, float]:
    """Return what the partition costs, and with which balance weight."""
    found = folder.read_json(SCORE_RECORD)
    tree = None
    if "children.npy" in found["files"]:
        tree = MergeTree(*(folder.read_array(f"{name}.npy") for name in MergeTree._fields))
    sums = float(found["objective"]), float(found["ratio_cut"]), folder.read_array("sizes.npy")
    return Score(*sums, tree), float(found["balance_weight"])


# -- labels of any rows, as Parquet ----------------------------------------------------------------


class LabelFiles(NamedTuple):
    """What :func:`assign_parquet` has written; an earlier run had finished ``n_kept`` files.

    ``n_outliers`` rows belong nowhere; None where none were looked for.
    """

    path: str
    n_samples: int
    n_files: int
    n_kept: int
    n_outliers: int | None = None


def assign_parquet(
    assigner: Assigner,
    data: Any,
    path: str | Path,
    *,
    column: str | None = None,
    id_column: str | None = None,
    top: int = 0,
    layers: Mapping[int, np.ndarray] | None = None,
    names: Mapping[str, list[str]] | None = None,
    partition: RowLabels | None = None,
    cluster_ids: np.ndarray | None = None,
    outliers: OutlierRule | None = None,
    device: str = "auto",
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> LabelFiles:
    """Write the cluster of every row of ``data``, or finish what an earlier run began.

    Columns are the ids under their own name (without an id column ``row``, int64, counted through
    all files), ``label`` int32 and ``confidence`` float32, the probability of that cluster; with
    ``top`` also ``clusters`` and ``probs``, lists of that many, the most probable first.

    Parameters
    ----------
    assigner : Assigner
    data : array, path or URI of a .npy file, a Parquet file or a folder of them, or Source
        See :func:`prcut.runtime.sources.open_source`, also for ``column`` and ``id_column``.
    path : str or path
        A new or empty folder, local or a URI; files are named as those of the data.
    top : int
        Number of clusters to write for every row, with their probabilities.
    layers : mapping of int to int64 array, shape (n_clusters,), optional
        By the number of clusters of a coarser layer, what every cluster is called in it; it becomes
        the column ``label_<number>``, int32.
    names : mapping of str to list of str, optional
        Further columns: what every cluster is called in each, of which ``name`` is one. See
        :meth:`prcut.curate.names.Names.columns`.
    partition : RowLabels, optional
        The clusters that a run found for these rows, written in place of the assigner's.
    cluster_ids : int64 array, shape (n_clusters,), optional
        What clusters keep being called from update to update: one more column, ``cluster_id``.
    outliers : OutlierRule, optional
        Rows that it refuses have the label −1 in every layer, no name, and a confidence of 0; one
        more column, ``cluster``, has the cluster that they would be in.
    device : str
    engine : Engine, optional
        Where tasks run; by default in this process.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress` after every few thousand rows.

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
    folder = Folder(path)
    columns = {f"label_{size}": pa.array(of, pa.int32()) for size, of in (layers or {}).items()}
    if cluster_ids is not None:
        columns["cluster_id"] = pa.array(cluster_ids, pa.int64())
    columns |= {column: pa.array(called, pa.string()) for column, called in (names or {}).items()}
    _check(assigner, source, folder, top, columns)
    _warn_of_other_rows(assigner, source)
    assigner = assigner.float().to(choose_device(device)).eval()
    files = source.files if isinstance(source, ParquetSource) else _array_files(source)
    plan = {
        "kind": "labels",
        "format": _FORMAT,
        "model": _checksum(assigner.state_dict()),
        "fingerprint": source.fingerprint,
        "column": getattr(source, "column", None),
        "id_column": getattr(source, "id_column", None),
        "top": top,
        "files": [file.name for file in files],
    }
    if partition is not None:
        plan["partition"] = partition.key
    if columns:
        plan["columns"] = plan_key({name: values.to_pylist() for name, values in columns.items()})
    if outliers is not None:
        plan["outliers"] = outliers.fraction, _checksum(outliers.exemplars.to_arrays())
    job = _Job(
        folder, assigner, source, files, top, columns, partition, outliers, key=plan_key(plan)
    )
    job.state.start(plan)
    folder.clear_unfinished()
    n_kept = sum(map(job.is_finished, range(len(files))))
    engine, write = engine or LocalEngine(), partial(_write_file, job)
    engine.run("assign", write, len(files), total=source.n_samples, on_progress=on_progress)
    sizes = {"n_samples": source.n_samples, "n_files": len(files)}
    if outliers is not None:
        paths = [f"{folder.path}/{file.name}" for file in files]
        written = dataset.dataset(paths, filesystem=folder.filesystem)
        sizes["n_outliers"] = written.count_rows(filter=dataset.field("label") < 0)
    job.state.write_json("manifest.json", {"key": job.key, "plan": plan, **sizes})
    return LabelFiles(str(path), **sizes, n_kept=n_kept)


def _check(assigner: Any, source: Source, folder: Folder, top: int, columns: Any) -> None:
    if not isinstance(assigner, Assigner):
        raise InvalidInputError(
            f"the model is a {type(assigner).__name__}, which cannot assign new rows; fit one "
            "with features."
        )
    n_clusters = assigner.n_clusters
    if source.n_features != assigner.n_features:
        raise InvalidInputError(
            f"data has n_features={source.n_features} columns, the model was fitted to "
            f"{assigner.n_features}."
        )
    if isinstance(top, bool) or not 0 <= top <= n_clusters:
        raise InvalidInputError(f"{top=} must be from 0 to {n_clusters=}.")
    for name, values in columns.items():
        if len(values) != n_clusters:
            raise InvalidInputError(
                f"{len(values)} values of {name!r} for {n_clusters=}; pass one for each."
            )
    id_column = getattr(source, "id_column", None)
    if id_column in {"label", "confidence", "cluster", "clusters", "probs", *columns}:
        raise InvalidInputError(f"{id_column=} is the name of a result; rename the column.")
    check_new(folder)  # the data themselves may be there


def _warn_of_other_rows(assigner: Assigner, source: Source) -> None:
    """Warn of rows that are too far apart, or too near, to be like those of the fit."""
    standard = assigner.standard_rows
    if standard is None or not source.n_samples:
        return
    rows = source.read(0, min(source.n_samples, _COMPARED_ROWS)).astype(np.float64)
    origin, scale = standard
    middles = origin, rows.mean(0)
    away, apart = (np.sqrt(np.mean(np.square((rows - one) / scale))) for one in middles)
    if away > _AWAY or (len(rows) >= _FEW_ROWS and apart < _APART):
        warn_of(
            f"rows 0..{len(rows) - 1} of the data lie {away:.3g} times as far from the mean of the "
            f"fitted rows as these did, and {apart:.3g} times as far apart: they seem to come from "
            "another encoder, or to be in other units. Embed them as the rows of fit were."
        )


def check_new(folder: Folder) -> None:
    """Refuse a file, and a folder that holds anything but what an earlier call wrote."""
    folder.check_is_no_file()
    inside = folder.names(folders=True)
    if inside and STATE_FOLDER not in inside:
        raise InvalidInputError(f"{folder.path} holds other files; choose a new or empty folder.")


def _checksum(arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        digest.update(name.encode())
        digest.update(torch.as_tensor(value).detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _array_files(source: Source) -> list[SourceFile]:
    starts = range(0, max(1, source.n_samples), _FILE_ROWS)
    return [
        SourceFile(f"part-{number:05d}.parquet", start, min(start + _FILE_ROWS, source.n_samples))
        for number, start in enumerate(starts)
    ]


class _Job(NamedTuple):
    """What every task needs to know."""

    folder: Folder
    assigner: Assigner
    source: Source
    files: list[SourceFile]
    top: int
    columns: dict[str, pa.Array]  # what every cluster is called in each
    partition: RowLabels | None
    outliers: OutlierRule | None
    key: str

    @property
    def state(self) -> Folder:
        """Folder of the plan and the records."""
        return self.folder / STATE_FOLDER

    def target(self, number: int) -> tuple[Folder, str]:
        """Return the folder and the name of a file, at the depth it has in the data."""
        folder, path = self.folder, PurePosixPath(self.files[number].name)
        for name in path.parent.parts:
            folder = folder / name
        return folder, path.name

    def is_finished(self, number: int) -> bool:
        """Return whether an earlier call has written a file."""
        folder, name = self.target(number)
        try:
            found = self.state.read_json(_record(number))
        except (CorruptFileError, FileNotFoundError):
            return False
        return bool(found == self.content(number, folder.size(name)))

    def content(self, number: int, size: int | None) -> dict[str, Any]:
        """Return what the record of a finished file says."""
        return {"key": self.key, "name": self.files[number].name, "size": size}


def _record(number: int) -> str:
    return f"file-{number:05d}.json"


def _write_file(job: _Job, number: int, advance: Callable[[int], None]) -> None:
    file = job.files[number]
    if job.is_finished(number):
        return advance(file.stop - file.start)
    folder, name = job.target(number)
    schema = _schema(job)
    batches = _batches(job, file, schema, advance)
    written = folder.write_bytes(name, encode_parquet(schema, batches, _GROUP_ROWS))
    return job.state.write_json(_record(number), job.content(number, written["size"]))


def _schema(job: _Job) -> pa.Schema:
    name, kind = getattr(job.source, "id_column", None), getattr(job.source, "id_type", None)
    ids = (name, kind) if name else ("row", pa.int64())
    ranked = [
        ("clusters", pa.list_(pa.int32(), job.top)),
        ("probs", pa.list_(pa.float32(), job.top)),
    ]
    columns = [ids, ("label", pa.int32()), ("confidence", pa.float32())]
    columns += [("cluster", pa.int32())] if job.outliers is not None else []
    columns += [(name, called.type) for name, called in job.columns.items()]
    return pa.schema(columns + (ranked if job.top else []))


def _batches(
    job: _Job, file: SourceFile, schema: pa.Schema, advance: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    with closing(read_ahead(_read(job.source, file))) as row_ranges:
        for start, features, ids in row_ranges:
            found = None
            if job.partition is not None:
                found = torch.from_numpy(job.partition.read(start, start + len(features)))
            label, confidence, *lists = _assign(job.assigner, features, job.top, start, found)
            raw = [] if job.outliers is None else [pa.array(label.copy())]
            if job.outliers is not None:
                refused = job.outliers.rejects(features)
                label[refused], confidence[refused] = -1, 0
            columns = [ids.cast(schema.types[0]), pa.array(label), pa.array(confidence), *raw]
            known = pa.array(label, mask=label < 0)  # null takes null
            for called in job.columns.values():
                taken = called.take(known)
                columns.append(taken if called.type == pa.string() else taken.fill_null(-1))
            columns += [
                pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), job.top)
                for values in lists
            ]
            advance(len(features))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _read(source: Source, file: SourceFile) -> Iterator[tuple[int, np.ndarray, pa.Array]]:
    """Yield the first row, the features and the ids of successive row ranges of a file."""
    step = rows_per_read(source)
    for start in range(file.start, file.stop, step):
        stop = min(start + step, file.stop)
        ids = source.read_ids(start, stop)
        yield start, source.read(start, stop), pa.array(range(start, stop)) if ids is None else ids


@torch.inference_mode()
def _assign(
    assigner: Assigner,
    features: np.ndarray,
    top: int,
    first_row: int,
    found: Tensor | None,
) -> list[np.ndarray]:
    """Return label and confidence of every row and, with ``top``, its clusters and their probs.

    ``found`` are the labels of a partition, -1 where it has none.
    """
    chunks = []
    for rows, chunk in row_chunks(assigner, features):
        chunks.append(_rank(assigner(chunk), top, None if found is None else found[rows]))
        check_numbers(chunks[-1][1], first_row + rows.start)
    return [torch.cat(column).cpu().numpy() for column in zip(*chunks, strict=True)]


def _rank(logits: Tensor, top: int, found: Tensor | None = None) -> list[Tensor]:
    """Return the columns of :func:`_assign`; the logits are overwritten."""
    values, clusters = logits.topk(top, 1) if top else logits.max(1, keepdim=True)
    # the largest probability is 1 / Σ exp(logit − largest): no table of probabilities is kept
    total = logits.sub_(values[:, :1]).exp_().sum(1)
    label, confidence = clusters[:, 0].int(), total.reciprocal()
    if found is not None:
        label = torch.where(found.to(label.device) >= 0, found.to(label.device), label)
        confidence = logits.gather(1, label.long()[:, None])[:, 0] / total
    if not top:
        return [label, confidence]
    probs = (values - values[:, :1]).exp_() / total[:, None]
    return [label, confidence, clusters.int(), probs]
