from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from prcut import build_blocks, build_graph, ratio_cut
from prcut.errors import InvalidInputError
from prcut.numerics.objective import hard_objective
from prcut.pipeline.config import FitConfig
from prcut.pipeline.outofcore.build_blocks import BlockConfig
from prcut.pipeline.outofcore.fit_shards import fit_shards
from prcut.pipeline.outofcore.pair_shards import ShardConfig, write_pair_shards

CONFIG = FitConfig.of("default", 3, solver="train", max_steps=150, learning_rate=0.01, n_init=2)


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = make_blobs(900, 5, centers=3, cluster_std=1.5, random_state=0)
    return rows.astype(np.float32), labels


def test_rows_on_disk_are_fitted_like_rows_in_memory(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    rows, labels = blobs
    config = BlockConfig(n_neighbors=30, block_rows=300, halo=3)
    blocks = build_blocks(rows, tmp_path / "blocks", config)
    shards = write_pair_shards(
        blocks, tmp_path / "pairs", ShardConfig(pairs_per_anchor=20, n_steps=4)
    )
    fit = fit_shards(shards, blocks, CONFIG)
    assert fit.labels is None
    with torch.no_grad():
        found = fit.assigner(torch.from_numpy(rows)).argmax(1)
    assert adjusted_rand_score(labels, found) > 0.98
    # the sum over blocks is the objective of the joined graph
    joined = build_graph(rows, 30, similarity="mean", max_components=3)
    expected = hard_objective(joined.weight, found, 3)
    assert fit.objective == pytest.approx(expected, rel=0.02)
    assert fit.ratio_cut == pytest.approx(ratio_cut(joined.weight, found, 3).item(), rel=0.02)


def test_a_function_cannot_weigh_pairs_on_disk(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    blocks = build_blocks(blobs[0], tmp_path / "blocks", BlockConfig(n_neighbors=3))
    shards = write_pair_shards(blocks, tmp_path / "pairs")
    config = FitConfig(3, similarity=lambda a, b: np.ones(len(a)))
    with pytest.raises(InvalidInputError, match="similarity must be a name where rows are on disk"):
        fit_shards(shards, blocks, config)
