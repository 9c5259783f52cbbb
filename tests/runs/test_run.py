"""Runs: both ways to a model, stages that are skipped or made again, and worded refusals."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from prcut import PRCut
from prcut.errors import DataWarning, InvalidInputError
from prcut.fit import choose
from prcut.fit.clusters import score_labels
from prcut.fit.config import FitConfig
from prcut.graph.build import build_graph
from prcut.runs.folder import RunResult
from prcut.runs.labels import RowLabels
from prcut.runs.run import fit_run
from prcut.runtime.folder import Folder
from prcut.training.assigner.predict import assign_labels
from prcut.training.assigner.saved import load_model

# separate blobs are what several tests want: the graph's remark on components is expected
pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = make_blobs(2500, 8, centers=4, cluster_std=1.0, random_state=3)
    return rows.astype(np.float32), labels


def config(**options: object) -> FitConfig:
    given = {"max_steps": 50, "n_init": 1, "n_neighbors": 10, **options}
    return FitConfig.of("default", 4, **given)


@pytest.fixture(scope="module")
def finished(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, RunResult]:
    """A run in memory and one on disk, which no test changes."""
    folder = tmp_path_factory.mktemp("finished")
    options = config(max_steps=400, n_init=2)
    return {
        mode: fit_run(blobs[0], folder / mode, options, memory=memory, device="cpu")
        for mode, memory in (("memory", None), ("disk", 1000))
    }


@pytest.mark.costly("a run in memory and one on disk, which other tests look at")
@pytest.mark.parametrize("mode", ["memory", "disk"])
def test_both_ways_find_the_blobs(
    finished: dict[str, RunResult], blobs: tuple[np.ndarray, np.ndarray], mode: str
) -> None:
    (rows, labels), result = blobs, finished[mode]
    run = Path(result.path)
    assert (result.mode, result.n_samples, result.n_features) == (mode, 2500, 8)
    assert result.used_clusters == result.n_clusters == 4
    stages = {"graph", "training"} | ({"search"} if mode == "disk" else set())
    assert set(result.seconds) == stages
    found = assign_labels(result.assigner, rows)
    assert adjusted_rand_score(labels, found) > 0.9
    content = json.loads((run / "result.json").read_text())
    assert content["objective"] == result.objective
    history = pq.read_table(run / content["history"])
    assert history["step"].to_pylist() == list(range(10, result.n_steps + 1, 10))
    assert len(history["cluster_sizes"][0]) == 4
    model = load_model(run / "model")
    assert model.description["run"]["n_clusters"] == 4
    assert model.description["result"]["ratio_cut"] == result.ratio_cut
    assert np.array_equal(assign_labels(model.assigner, rows), found)  # type: ignore[arg-type]
    estimator = PRCut.load(run / "model")
    assert (estimator.n_neighbors, estimator.max_steps) == (10, 400)
    assert np.array_equal(estimator.predict(rows), found)


def test_the_partition_on_disk_is_that_of_every_row(
    finished: dict[str, RunResult], blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    (rows, labels), result = blobs, finished["disk"]
    run = Path(result.path)
    found = RowLabels(Folder(run / "partition"))
    partition = found.read(0, found.n_samples)
    assert adjusted_rand_score(labels, partition) > 0.99
    assert np.array_equal(found.read(700, 900), partition[700:900])
    # the objective is that of the partition on the joined graph of all blocks
    graph = build_graph(rows, 10, similarity="mean", max_components=4)
    expected = score_labels(graph, partition.astype(np.int64), 4, result.balance_weight)
    assert result.objective == pytest.approx(expected.objective, rel=0.05)
    assert np.mean(assign_labels(result.assigner, rows) == partition) > 0.98
    assert not (run / "search").exists()


def test_stages_are_skipped_where_valid_and_made_again_where_not(
    tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = blobs
    made: list[int] = []
    build = choose.link_neighbors

    def count(*arguments: object, **options: object) -> object:
        made.append(1)
        return build(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(choose, "link_neighbors", count)
    run = tmp_path / "run"
    first = fit_run(rows, run, config(), device="cpu")
    model = (run / "model/model.safetensors").read_bytes()
    again = fit_run(rows, run, config(), device="cpu")
    assert again[2:] == first[2:]
    assert len(made) == 1

    (run / "result.json").unlink()
    (run / "model/config.json").unlink()
    fit_run(rows, run, config(), device="cpu")
    assert len(made) == 1  # the graph was whole

    (run / "model/model.safetensors").write_bytes(b"")
    indices = (run / "graph/indices.npy").read_bytes()
    (run / "graph/indices.npy").write_bytes(indices[:-8])
    fit_run(rows, run, config(), device="cpu")
    assert len(made) == 2
    assert (run / "model/model.safetensors").read_bytes() == model
    assert (run / "graph/indices.npy").read_bytes() == indices


def test_another_run_in_the_folder_is_refused_by_the_name_of_what_differs(
    tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    rows, _ = blobs
    fit_run(rows, tmp_path / "run", config(), device="cpu")
    other = config(learning_rate=0.1, n_init=2)
    with pytest.raises(InvalidInputError, match="begun with another learning_rate and n_init;"):
        fit_run(rows, tmp_path / "run", other, device="cpu")
    with pytest.raises(InvalidInputError, match="begun with another fingerprint"):
        fit_run(rows + 1, tmp_path / "run", config(), device="cpu")
    plan = json.loads((tmp_path / "run/plan.json").read_text())
    (tmp_path / "run/plan.json").write_text(json.dumps({**plan, "format": 9}))
    with pytest.raises(InvalidInputError, match="format 9, this version reads up to 1; upgrade"):
        fit_run(rows, tmp_path / "run", config(), device="cpu")


def test_input_is_checked_before_the_folder_is_made(tmp_path: Path) -> None:
    rows = np.zeros((3, 2), np.float32)
    for options, message in (
        (config(), "n_samples=3 should be >= n_clusters=4"),
        (
            replace(config(), n_clusters=2, similarity=lambda left, right: left),  # type: ignore[arg-type]
            "must be one of binary, mean, self_tuning, cosine",
        ),
    ):
        with pytest.raises(InvalidInputError, match=message):
            fit_run(rows, tmp_path / "run", options, device="cpu")
    with pytest.raises(InvalidInputError, match="raise memory, train batch by batch with PRCut"):
        fit_run(rows, tmp_path / "run", FitConfig(2, solver="train"), memory=1, device="cpu")
    with pytest.raises(InvalidInputError, match="n_features=0 columns"):
        fit_run(np.zeros((9, 0), np.float32), tmp_path / "run", config(), device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.costly("a run on disk of its own data")
def test_columns_of_all_variance_do_not_decide_on_disk(tmp_path: Path) -> None:
    rows, labels = make_blobs(2500, 12, centers=4, cluster_std=1.0, random_state=3)
    noise = np.random.default_rng(0).normal(0, 1e4, (2500, 1))
    rows = np.hstack([rows, noise]).astype(np.float32)
    with pytest.warns(DataWarning, match="divided by their standard deviations"):
        result = fit_run(rows, tmp_path / "run", config(max_steps=300), memory=1000)
    assert adjusted_rand_score(labels, assign_labels(result.assigner, rows)) > 0.95
