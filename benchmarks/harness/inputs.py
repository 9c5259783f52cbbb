"""What a run starts from: rows, labels and graph, made once and kept in the cache."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.harness.contest.sets import load_contest_set
from benchmarks.harness.datasets import Dataset, load_dataset
from benchmarks.harness.records import RunSpec

import prcut
from prcut.errors import DataWarning, InvalidInputError
from prcut.graph.build import build_graph
from prcut.graph.rows import column_scales, divide_columns
from prcut.graph.similarity_graph import GRAPH_RECORD, SimilarityGraph, load_graph, save_graph
from prcut.runtime.folder import Folder, cache_folder, plan_key

__all__ = [
    "CONTEST_SPLIT",
    "Inputs",
    "load_bench_dataset",
    "load_inputs",
    "prepare_inputs",
    "rows_digest",
]

_LOG = logging.getLogger(__name__)
_RECORD = "inputs.json"
# in the place of a split: the rows of a contest's set, which has one form only
CONTEST_SPLIT = "contest"


class Inputs(NamedTuple):
    """A task, the labels that score it, and how long its graph took."""

    rows: np.ndarray
    """float32 (n_samples, n_features)."""
    labels: np.ndarray
    graph: SimilarityGraph | None
    """None where labels say what is similar."""
    n_clusters: int
    """Classes among the labels."""
    graph_seconds: float
    digest: str
    """Digest of rows and labels."""


def load_bench_dataset(name: str, split: str, n_rows: int | None = None) -> Dataset:
    """Load the first rows of a data set; ``digits`` comes with scikit-learn."""
    if n_rows is not None and n_rows < 1:
        raise InvalidInputError(f"{n_rows=} must be >= 1.")
    if name == "digits":
        from sklearn.datasets import load_digits

        found = load_digits()  # comes with scikit-learn, grey values 0..16
        images = np.rint(found.images * (255 / 16)).astype(np.uint8)
        dataset = Dataset(name, split, images, found.target.astype(np.int64))
    else:
        dataset = load_dataset(name, split)
    return dataset._replace(items=dataset.items[:n_rows], labels=dataset.labels[:n_rows])


def prepare_inputs(spec: RunSpec) -> Path:
    """Return the folder of a run's rows, labels and graph; compute what is missing.

    The folder is named by a digest of the rows: other weights of an encoder are other rows.
    """
    rows, labels = _load_rows(spec)
    digest = rows_digest(rows, labels)
    path = cache_folder("bench") / f"{spec.dataset}-{digest}"
    folder = Folder(path)
    if not folder.is_sealed(_RECORD, digest):
        arrays = {"rows.npy": rows, "labels.npy": labels}
        folder.seal(_RECORD, arrays, {"key": digest})
    _prepare_graph(folder, digest, rows, spec.n_neighbors, len(np.unique(labels)))
    return path


def load_inputs(path: str | Path, n_neighbors: int) -> Inputs:
    """Load what :func:`prepare_inputs` prepared."""
    folder = Folder(path)
    record = folder.read_record(_RECORD)
    graph_folder = folder / _graph_name(n_neighbors)
    graph_record = graph_folder.read_record(GRAPH_RECORD)
    if record is None or graph_record is None:
        raise InvalidInputError(f"{path} holds no rows with a graph of {n_neighbors=}.")
    digest, seconds = str(record["key"]), float(graph_record["seconds"])
    labels = folder.read_array("labels.npy")
    # read, not mapped: every method finds its rows in memory
    rows, graph = folder.read_array("rows.npy"), load_graph(graph_folder)
    return Inputs(rows, labels, graph, len(np.unique(labels)), seconds, digest)


def _load_rows(spec: RunSpec) -> tuple[np.ndarray, np.ndarray]:
    if spec.split == CONTEST_SPLIT:
        rows, labels = load_contest_set(spec.dataset)
        return rows[: spec.n_rows], labels[: spec.n_rows]
    dataset = load_bench_dataset(spec.dataset, spec.split, spec.n_rows)
    if spec.representation == "raw":
        return dataset.pixels(), dataset.labels
    from benchmarks.harness.encoders import embed_once

    return embed_once(dataset.items, spec.representation), dataset.labels


def rows_digest(rows: np.ndarray, labels: np.ndarray) -> str:
    """Return a digest that names rows with their labels."""
    digest = hashlib.sha256(f"{rows.shape}".encode())
    for array in (rows, labels):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _graph_name(n_neighbors: int) -> str:
    """One graph per way to make it: a new version never meets an old graph."""
    versions = prcut.__version__, importlib.metadata.version("faiss-cpu")
    return f"graph-{n_neighbors}-{plan_key(versions)}"


def _prepare_graph(
    folder: Folder, digest: str, rows: np.ndarray, n_neighbors: int, n_clusters: int
) -> None:
    graph_folder = folder / _graph_name(n_neighbors)
    if graph_folder.is_sealed(GRAPH_RECORD, digest):
        return
    _LOG.info("graph of %d neighbours for %d rows", n_neighbors, len(rows))
    start = time.perf_counter()
    with warnings.catch_warnings():
        # public data is what it is: nobody will drop its constant columns
        warnings.simplefilter("ignore", DataWarning)
        # peers on graphs compare columns in the units that PRCut compares them in
        compared = divide_columns(rows, column_scales(rows))
        graph = build_graph(compared, n_neighbors, max_components=n_clusters)
    seconds = time.perf_counter() - start
    save_graph(graph_folder, graph, {"key": digest, "seconds": seconds})
