"""Centroids: means of the rows of every cluster, and the tree above them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from prcut.curate import centroids as library
from prcut.curate.centroids import write_centroids
from prcut.fit.config import FitConfig
from prcut.runs.labels import assign_parquet
from prcut.runs.run import fit_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, Any]:
    """A finished run of four clusters, with its labels."""
    tmp_path = tmp_path_factory.mktemp("run")
    rows = np.repeat(np.eye(4, dtype=np.float32) * 9, 20, 0)
    rows += np.random.default_rng(0).normal(0, 0.3, rows.shape).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    config = FitConfig.of("default", 4, n_neighbors=8)
    result = fit_run(tmp_path / "rows.npy", tmp_path / "run", config, device="cpu")
    assign_parquet(result.assigner, rows, tmp_path / "run/labels", device="cpu")
    return tmp_path / "run", rows, result.assigner


def loaded(assigner: Any) -> Any:
    return SimpleNamespace(assigner=assigner, description={})


def test_vectors_are_the_means_of_the_labels(run: Any, tmp_path: Path) -> None:
    path, rows, assigner = run
    assert write_centroids(path, tmp_path / "c.parquet", loaded(assigner)) == 4
    table = pq.read_table(tmp_path / "c.parquet")
    assert table.schema.names == ["id", "parent", "layer", "size", "vector"]
    labels = pq.read_table(path / "labels")["label"].to_numpy()
    expected = [rows[labels == cluster].mean(0) for cluster in range(4)]
    np.testing.assert_allclose(np.array(table["vector"].to_pylist()), expected, rtol=1e-5)
    assert table["id"].to_pylist() == [0, 1, 2, 3]
    assert table["size"].to_pylist() == np.bincount(labels).tolist()
    assert table["parent"].null_count == 4


def test_coarser_layers_are_parents(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows, assigner = run
    layers = {2: np.array([0, 1, 1, 0]), 1: np.array([0, 0, 0, 0])}
    monkeypatch.setattr(library, "coarse_labels", lambda _: layers)
    assert write_centroids(path, tmp_path / "c.parquet", loaded(assigner)) == 7
    table = pq.read_table(tmp_path / "c.parquet")
    assert table["id"].to_pylist() == [0, 1, 2, 3, 4, 5, 6]
    assert table["parent"].to_pylist() == [4, 5, 5, 4, 6, 6, None]
    assert table["layer"].to_pylist() == [4, 4, 4, 4, 2, 2, 1]
    np.testing.assert_allclose(table["vector"][6].as_py(), rows.mean(0), rtol=1e-4)
