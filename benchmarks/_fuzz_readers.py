"""Small valid artefacts of every kind, and what reads them.

A reader ends in a right result or a worded error. What it returns is used the way callers use it,
so that a file which is taken in but breaks later is found too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from prcut import PRCut
from prcut.fit.config import FitConfig
from prcut.graph.similarity_graph import SimilarityGraph, load_graph, save_graph
from prcut.runs.labels import assign_parquet
from prcut.runs.run import fit_run
from prcut.runtime.folder import Folder
from prcut.runtime.progress import read_status
from prcut.runtime.sources import open_source, read_all
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.saved import load_model, save_model
from prcut.training.checkpoint import load_checkpoint, save_checkpoint
from prcut.training.settings import TrainConfig
from prcut.training.state import Record, TrainState
from prcut.ui.cli.info import describe_path
from prcut.ui.cli.shared import as_lines
from prcut.ui.report.report import write_report

__all__ = ["READERS", "Reader"]

N_FEATURES, N_CLUSTERS = 3, 2


class Reader(NamedTuple):
    """How an artefact is made in a folder and read from it, and its fraction of the executions.

    One that ``writes`` resumes the work that the files belong to.
    """

    make: Callable[[Path], None]
    read: Callable[[Path], None]
    fraction: float
    writes: bool = False


def _rows(n_samples: int = 24) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n_samples, N_FEATURES)).astype(np.float32)


def _check_finite(values: Any, what: str) -> None:
    if not np.isfinite(np.asarray(values)).all():
        raise AssertionError(f"{what} holds NaN or infinity without a word")


# -- models ----------------------------------------------------------------------------------


def _make_model(path: Path) -> None:
    save_model(path, Assigner(N_FEATURES, N_CLUSTERS, (4,), 2), {"result": {"objective": 0.5}})


@torch.inference_mode()
def _read_model(path: Path) -> None:
    assigner = load_model(path).assigner
    assert isinstance(assigner, Assigner)  # noqa: S101
    rows = np.zeros((2, assigner.n_features), np.float32)
    _check_finite(assigner.probs(torch.from_numpy(rows)).float(), "probs")


def _make_estimator(path: Path) -> None:
    PRCut(N_CLUSTERS, n_neighbors=4, n_init=1, random_state=0).fit(_rows()).save(path)


def _read_estimator(path: Path) -> None:
    model = PRCut.load(path)
    model.get_params()
    _check_finite(model.predict_proba(np.zeros((2, model.n_features_in_))), "probs")


# -- checkpoints -----------------------------------------------------------------------------

_TRAIN = TrainConfig(max_steps=10, batch_size=8)


def _state() -> tuple[Assigner, TrainState]:
    generator = torch.Generator().manual_seed(0)
    assigner = Assigner(N_FEATURES, N_CLUSTERS, (4,), generator=generator)
    return assigner, TrainState.start(assigner, _TRAIN)


def _step(assigner: Assigner, state: TrainState) -> None:
    assigner(torch.ones(2, N_FEATURES)).square().sum().backward()
    state.optimizer.step(1e-3)


def _make_checkpoint(path: Path) -> None:
    assigner, state = _state()
    _step(assigner, state)
    state.step = 10
    state.records = [Record(10, 0.5, 0.25, 0.25, 0.9, np.full(N_CLUSTERS, 0.5, np.float32))]
    save_checkpoint(Folder(path), assigner, state, _TRAIN)


def _read_checkpoint(path: Path) -> None:
    assigner, state = _state()
    if load_checkpoint(Folder(path), assigner, state, _TRAIN):
        _check_finite(assigner(torch.zeros(1, N_FEATURES)).detach(), "logits")
        _step(assigner, state)
        _check_finite(state.cluster_mass.running, "cluster mass")
        state.history["cluster_sizes"].reshape(len(state.records), N_CLUSTERS)
        if not 0 <= state.step <= _TRAIN.max_steps:
            raise AssertionError(f"step={state.step}")


# -- graphs, blocks, pairs -------------------------------------------------------------------


def _make_graph(path: Path) -> None:
    ring = (np.arange(8)[:, None] + [1, 2]) % 8
    save_graph(path, SimilarityGraph.from_neighbors(ring), {"metric": "euclidean"})


def _read_graph(path: Path) -> None:
    graph = load_graph(path)
    _check_finite(graph.degree, "degree")
    if graph.n_components > graph.n_samples:
        raise AssertionError("more components than rows")
    graph.edges  # noqa: B018


# -- runs and labels -------------------------------------------------------------------------


def _make_run(path: Path) -> None:
    _make_whole_run(path)
    for kept in ("graph", "checkpoint", "labels"):
        if (path / kept).is_dir():
            for file in sorted((path / kept).rglob("*.npy")):
                file.unlink()  # they have readers of their own


def _read_run(path: Path) -> None:
    shown = as_lines(describe_path(path))
    if not all(map(str.isprintable, shown.splitlines())):
        raise AssertionError(f"{shown!r} is not printable")
    for stage in read_status(path):
        stage.describe()


def _make_whole_run(path: Path) -> None:
    data = path.with_name("data-of-report.npy")
    np.save(data, _rows(40))
    options: dict[str, Any] = {"max_steps": 20, "n_init": 1, "n_neighbors": 4}
    fit_run(data, path, FitConfig.of("default", N_CLUSTERS, seed=0, **options))


def _read_report(path: Path) -> None:
    page = path.with_name("report.html")
    write_report(path, page)
    if "</html>" not in page.read_text()[-20:]:
        raise AssertionError("a page without an end")


def _make_status(path: Path) -> None:
    (path / "status").mkdir(parents=True)
    progress = {"done": 1, "total": 9, "rows_per_second": 2.0, "seconds_left": 4.0}
    content = {"stage": "train", **progress, "running": 1, "failed": 0, "time": 1.7e9}
    (path / "status/train.json").write_text(json.dumps(content))


def _read_status(path: Path) -> None:
    for stage in read_status(path):
        stage.describe()


def _make_labels(path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    assign_parquet(Assigner(N_FEATURES, N_CLUSTERS, generator=generator), _rows(), path)


def _read_labels(path: Path) -> None:
    describe_path(path)
    generator = torch.Generator().manual_seed(0)
    # resumes from what is there, or redoes what is not whole
    assign_parquet(Assigner(N_FEATURES, N_CLUSTERS, generator=generator), _rows(), path)
    if not (path / "part-00000.parquet").is_file():
        raise AssertionError("labels are missing")


# -- data ------------------------------------------------------------------------------------


def _make_npy(path: Path) -> None:
    path.mkdir()
    np.save(path / "rows.npy", _rows())


def _read_npy(path: Path) -> None:
    source = open_source(str(path / "rows.npy"))
    _check_finite(read_all(source), "rows")


def _make_parquet(path: Path) -> None:
    path.mkdir()
    rows = _rows()
    for number, kind in enumerate((pa.list_(pa.float32()), pa.list_(pa.float32(), N_FEATURES))):
        table = {
            "id": [f"é{number}-{row}" for row in range(len(rows))],
            "e": pa.array(rows.tolist(), kind),
        }
        (path / str(number)).mkdir()
        pq.write_table(pa.table(table), path / f"{number}/rows.parquet", row_group_size=10)


def _read_parquet(path: Path) -> None:
    for number in range(2):
        source = open_source(str(path / str(number)), column="e", id_column="id")
        _check_finite(read_all(source), "rows")
        ids = source.read_ids(0, source.n_samples)
        if ids is None or len(ids) != source.n_samples:
            raise AssertionError("ids are missing")


def _make_storage(path: Path) -> None:
    arrays = {"a.npy": np.arange(6.0, dtype=np.float32).reshape(3, 2), "b.npy": np.arange(4)}
    folder = Folder(path)
    folder.seal("record.json", arrays, {"key": "k"})
    folder.write_json("manifest.json", {"plan": {"format": 1}})


def _read_storage(path: Path) -> None:
    folder = Folder(path)
    folder.read_manifest(1, "seal")
    folder.is_sealed("record.json", "k")
    for name in ("a.npy", "b.npy"):
        whole, mapped = folder.read_array(name), folder.map_array(name)
        if whole.shape != mapped.shape or whole.dtype != mapped.dtype:
            raise AssertionError("read and mapped differ")
        whole.sum() if whole.dtype.kind in "fiu" else None


def _read_json(path: Path) -> None:
    folder = Folder(path)
    folder.read_record("record.json")
    folder.read_json("record.json")


READERS = {
    "json": Reader(_make_storage, _read_json, 0.25),
    "storage": Reader(_make_storage, _read_storage, 0.2),
    "status": Reader(_make_status, _read_status, 0.1),
    "npy": Reader(_make_npy, _read_npy, 0.15),
    "model": Reader(_make_model, _read_model, 0.04),
    "estimator": Reader(_make_estimator, _read_estimator, 0.03),
    "checkpoint": Reader(_make_checkpoint, _read_checkpoint, 0.03),
    "graph": Reader(_make_graph, _read_graph, 0.04),
    "run": Reader(_make_run, _read_run, 0.02),
    "report": Reader(_make_whole_run, _read_report, 0.001),
    "labels": Reader(_make_labels, _read_labels, 0.005, writes=True),
    "parquet": Reader(_make_parquet, _read_parquet, 0.025),
}
