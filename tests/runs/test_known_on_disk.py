"""Sizes within limits and weights of rows, where the graph is on disk."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs

from prcut.errors import InvalidInputError
from prcut.fit.config import FitConfig
from prcut.fit.known import Known
from prcut.graph.blocks.read import open_joined
from prcut.runs.explain import explain_run
from prcut.runs.folder import RunResult
from prcut.runs.labels import RowLabels, read_score
from prcut.runs.run import fit_run
from prcut.runtime.folder import Folder
from prcut.search.explain import find_reasons
from prcut.search.fragments import CoarseGraph
from prcut.search.limits import Limits, limit_sizes
from prcut.search.partition import find_partition
from prcut.search.problem import Problem

N_ROWS, N_CLUSTERS = 1200, 5


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    sizes = [450, 300, 200, 150, 100]
    return make_blobs(sizes, 6, cluster_std=4.0, random_state=1)[0].astype(np.float32)


@pytest.fixture
def weighted(tmp_path: Path, rows: np.ndarray) -> Path:
    weights = 1 + np.arange(N_ROWS) % 4
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    table = pa.table({"vector": vectors, "weight": weights, "tiny": weights / 2**12})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=700)
    return tmp_path / "rows.parquet"


def run_on_disk(data: Any, run: Path, **given: Any) -> RunResult:
    settings = {"n_init": 4, "n_neighbors": 8, "max_steps": 60, "balance_weight": 0.5, **given}
    config = FitConfig.of("default", N_CLUSTERS, **settings)
    result = fit_run(data, run, config, memory=1000, device="cpu")
    assert result.mode == "disk"
    return result


def fit_on_disk(data: Any, run: Path, **given: Any) -> np.ndarray:
    run_on_disk(data, run, **given)
    return RowLabels(Folder(run / "partition")).read(0, N_ROWS)


@pytest.mark.costly("runs on disk, compared with a search in memory")
@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ({"max_size": "equal"}, 240, 240),
        ({"min_size": 0.15}, 180, N_ROWS),
    ],
)
def test_limits_hold_exactly(
    tmp_path: Path, rows: np.ndarray, given: dict[str, Any], least: int, most: int
) -> None:
    labels = fit_on_disk(rows, tmp_path, **given)
    sizes = np.bincount(labels, minlength=N_CLUSTERS)
    assert least <= sizes.min() <= sizes.max() <= most
    # as good as in memory
    joined = open_joined(Folder(tmp_path / "graph"))
    graph = CoarseGraph.of_arrays(*joined[1:])
    problem, free = Problem.of(graph, N_CLUSTERS, 0.5), find_partition(graph, N_CLUSTERS)
    expected = limit_sizes(problem, [free.labels], Limits(least, most)).objective
    assert problem.score(labels[joined.rows].astype(np.int64)).objective <= 1.01 * expected
    with pytest.raises(InvalidInputError, match="cannot hold 1200 rows"):
        fit_on_disk(rows, tmp_path / "other", max_size=100)
    assert not (tmp_path / "other").exists()


def test_weights_count_rows_and_edges(tmp_path: Path, weighted: Path) -> None:
    run, weights = tmp_path / "run", 1.0 + np.arange(N_ROWS) % 4
    result = run_on_disk(weighted, run, weight_column="weight")
    joined = open_joined(Folder(run / "graph"))
    of_nodes = weights[joined.rows]
    plain, known = CoarseGraph.of_arrays(*joined[1:]), Known(weights=of_nodes)
    heavy = known.weigh(plain)
    expected = plain.links.multiply(of_nodes[:, None]).multiply(of_nodes[None, :])
    np.testing.assert_allclose(heavy.links.toarray(), expected.toarray(), rtol=1e-6)
    heavy = heavy._replace(sizes=of_nodes)
    found = find_partition(heavy, N_CLUSTERS, balance_weight=0.5, n_init=4)
    assert result.objective == pytest.approx(found.objective)
    labels = RowLabels(Folder(run / "partition")).read(0, N_ROWS).astype(np.int64)
    sums = np.bincount(labels, weights, N_CLUSTERS)
    np.testing.assert_array_equal(read_score(Folder(run / "partition"))[0].cluster_sizes, sums)
    at = np.argsort(joined.rows)[[3, 9]]  # every row is a node
    reasons = find_reasons(heavy, labels[joined.rows], N_CLUSTERS, 0.5, at, of_nodes)
    for one, other in zip(explain_run(run, [3, 9]).reasons, reasons, strict=True):
        np.testing.assert_allclose(one, other)


def test_known_classes_stay(tmp_path: Path, rows: np.ndarray) -> None:
    _, truth = make_blobs([450, 300, 200, 150, 100], 6, cluster_std=4.0, random_state=1)
    rng = np.random.default_rng(0)
    known = np.where(rng.random(N_ROWS) < 0.1, truth, -1)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    pq.write_table(pa.table({"vector": vectors, "class": known}), tmp_path / "rows.parquet")
    data, run = tmp_path / "rows.parquet", tmp_path / "run"
    labels = fit_on_disk(data, run, label_column="class")
    assert np.array_equal(labels[known >= 0], known[known >= 0])
    assert (labels == truth).mean() > 0.8
    config = FitConfig.of("default", 3, label_column="class")
    with pytest.raises(InvalidInputError, match="class 4"):
        fit_run(data, tmp_path / "few", config, memory=1000, device="cpu")


def test_wrong_columns_are_refused(tmp_path: Path, rows: np.ndarray, weighted: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs Parquet"):
        fit_on_disk(rows, tmp_path / "array", weight_column="weight")
    with pytest.raises(InvalidInputError, match="has no column 'wait'"):
        fit_on_disk(weighted, tmp_path / "wait", weight_column="wait")
    assert not any((tmp_path / name).exists() for name in ("array", "wait"))
    table = pq.read_table(weighted)
    negative = table.set_column(1, "weight", pa.array(np.full(N_ROWS, -1.0)))
    pq.write_table(negative, tmp_path / "negative.parquet")
    with pytest.raises(InvalidInputError, match="above zero"):
        fit_on_disk(tmp_path / "negative.parquet", tmp_path / "run", weight_column="weight")
