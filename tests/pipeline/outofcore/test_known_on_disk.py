"""Sizes within limits and weights of rows, where the graph is on disk."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs

from prcut.errors import InvalidInputError
from prcut.pipeline.config import FitConfig
from prcut.pipeline.explain_run import explain_run
from prcut.pipeline.known import columns_of
from prcut.pipeline.outofcore.blocks import open_blocks
from prcut.pipeline.outofcore.link import link_blocks, write_weights
from prcut.pipeline.outofcore.parts import join_parts
from prcut.pipeline.outofcore.row_labels import RowLabels, read_score
from prcut.pipeline.run import fit_run
from prcut.pipeline.run_folder import RunResult
from prcut.runtime.engine import LocalEngine
from prcut.runtime.folder import Folder
from prcut.runtime.sources import open_source
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


def joined(run: Path, weights: Folder | None = None) -> Any:
    blocks, how = open_blocks(run / "blocks"), {"total": N_ROWS, "on_progress": None}
    level = link_blocks(blocks, Folder(run / "again"), "mean", LocalEngine(), how, weights).level
    return join_parts(level)


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
    # as good as in memory, nearly
    graph = joined(tmp_path)
    problem, free = Problem.of(graph, N_CLUSTERS, 0.5), find_partition(graph, N_CLUSTERS)
    expected = limit_sizes(problem, [free.labels], Limits(least, most)).objective
    blocks = open_blocks(tmp_path / "blocks")
    in_order = np.concatenate([np.sort(block.rows[: block.n_core]) for block in blocks])
    assert problem.score(labels[in_order].astype(np.int64)).objective <= 1.15 * expected
    with pytest.raises(InvalidInputError, match="cannot hold 1200 rows"):
        fit_on_disk(rows, tmp_path / "other", max_size=100)
    assert not (tmp_path / "other").exists()


def test_weights_count_rows_and_edges(tmp_path: Path, weighted: Path) -> None:
    run, weights = tmp_path / "run", 1.0 + np.arange(N_ROWS) % 4
    result = run_on_disk(weighted, run, weight_column="weight")
    plain = joined(run)
    (run / "again").rename(run / "plain")
    source = open_source(weighted, column="vector")
    write_weights(Folder(run), columns_of(source, "weight"), "weight")
    heavy = joined(run, Folder(run))
    assert sorted(heavy.sizes) == sorted(weights)
    expected = plain.links.multiply(heavy.sizes[:, None]).multiply(heavy.sizes[None, :])
    np.testing.assert_allclose(heavy.links.toarray(), expected.toarray(), rtol=1e-6)
    found = find_partition(heavy, N_CLUSTERS, balance_weight=0.5, n_init=4)
    assert result.objective <= 1.05 * found.objective
    labels = RowLabels(Folder(run / "partition")).read(0, N_ROWS)
    sums = np.bincount(labels, weights, N_CLUSTERS)
    np.testing.assert_array_equal(read_score(Folder(run / "partition"))[0].cluster_sizes, sums)
    with pytest.raises(InvalidInputError, match="with weights"):
        explain_run(run, [3])


def test_wrong_columns_are_refused(tmp_path: Path, rows: np.ndarray, weighted: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs Parquet"):
        fit_on_disk(rows, tmp_path / "array", weight_column="weight")
    with pytest.raises(InvalidInputError, match="has no column 'wait'"):
        fit_on_disk(weighted, tmp_path / "wait", weight_column="wait")
    assert not any((tmp_path / name).exists() for name in ("array", "wait"))
    with pytest.raises(InvalidInputError, match="label_column cannot be used"):
        fit_on_disk(weighted, tmp_path / "labels", label_column="weight")
    table = pq.read_table(weighted)
    negative = table.set_column(1, "weight", pa.array(np.full(N_ROWS, -1.0)))
    pq.write_table(negative, tmp_path / "negative.parquet")
    with pytest.raises(InvalidInputError, match="above zero"):
        fit_on_disk(tmp_path / "negative.parquet", tmp_path / "run", weight_column="weight")
