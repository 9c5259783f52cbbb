import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.build import Similarity, edge_similarity
from prcut.graph.neighbors import Neighbors
from prcut.pipeline.outofcore import pair_shards
from prcut.pipeline.outofcore.blocks import Blocks
from prcut.pipeline.outofcore.build_blocks import BlockConfig, build_blocks
from prcut.pipeline.outofcore.pair_shards import (
    FeatureBatch,
    PairShards,
    ShardConfig,
    open_pair_shards,
    write_pair_shards,
)

ROWS = np.random.default_rng(0).standard_normal((1500, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Blocks:
    config = BlockConfig(n_neighbors=4, block_rows=200, halo=3, anchors=0.5)
    return build_blocks(ROWS, tmp_path_factory.mktemp("blocks"), config)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_shards, "_SHARD_BYTES", (2**12, 2**14))
    monkeypatch.setattr(pair_shards, "_CHUNK_BYTES", 2**10)


def read_all(shards: PairShards) -> dict[str, np.ndarray]:
    return {
        column: np.concatenate(
            [
                shards.folder.read_array(f"shard-{number:05d}.{column}.npy")
                for number in range(len(shards.sizes))
            ]
        )
        for column in ("features", "weight", "node_weight", "rows")
    }


def global_edges(blocks: Blocks, similarity: Similarity = "binary") -> dict[tuple[int, int], float]:
    """(A + Aᵀ)/2 over all blocks, from each block's lists."""
    weight: dict[tuple[int, int], float] = {}
    for block in blocks:
        found = Neighbors(block.anchors, block.neighbors, np.asarray(block.distances))
        links = edge_similarity(found, similarity)
        for anchor, neighbors, values in zip(block.anchors, block.neighbors, links, strict=True):
            for neighbor, value in zip(neighbors, values, strict=True):
                i, j = int(block.rows[anchor]), int(block.rows[neighbor])
                weight[i, j] = weight.get((i, j), 0) + value / 2
                weight[j, i] = weight.get((j, i), 0) + value / 2
    return weight


def test_pairs_are_edges_with_their_features(blocks: Blocks, tmp_path: Path) -> None:
    shards = write_pair_shards(blocks, tmp_path, ShardConfig(pairs_per_anchor=4))
    n_anchors = sum(record["n_anchors"] for record in blocks.records)
    assert shards.n_pairs == 4 * n_anchors
    found = read_all(shards)
    np.testing.assert_array_equal(found["features"], ROWS[found["rows"]])
    assert set(map(tuple, found["rows"].tolist())) <= set(global_edges(blocks))


@pytest.mark.parametrize("similarity", ["binary", "self_tuning"])
def test_mean_of_pairs_is_the_kernel_and_the_mean_of_rows(
    blocks: Blocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, similarity: Similarity
) -> None:
    monkeypatch.setattr(pair_shards, "_SHARD_BYTES", (2**20, 2**20))
    config = ShardConfig(pairs_per_anchor=400, seed=5, similarity=similarity)
    shards = write_pair_shards(blocks, tmp_path, config)
    found = read_all(shards)
    assert next(shards.stream(4096)).weight.sum().item() == pytest.approx(1, abs=0.01)
    drawn: dict[tuple[int, int], list[float]] = {}
    for (i, j), value in zip(found["rows"].tolist(), found["weight"].tolist(), strict=True):
        drawn.setdefault((i, j), []).append(value)
    typical = float(np.mean(found["weight"]))
    z = [
        (sum(drawn.get(pair, [])) - w) / np.sqrt(typical * w)
        for pair, w in global_edges(blocks, similarity).items()
    ]
    assert np.mean(np.square(z)) == pytest.approx(1, abs=0.15)
    assert np.abs(z).max() < 5.5

    # weighted so, the ends are a uniform sample of the anchors
    anchors = np.concatenate([block.rows[block.anchors] for block in blocks])
    ends, node_weight = found["rows"].ravel(), found["node_weight"].ravel()
    per_row = np.bincount(ends, node_weight, minlength=len(ROWS))
    assert set(np.flatnonzero(per_row)) == set(anchors.tolist())
    assert per_row[anchors].std() / per_row[anchors].mean() < 0.1
    mean = (node_weight @ ROWS[ends]) / node_weight.sum()
    np.testing.assert_allclose(mean, ROWS[anchors].mean(0), atol=0.01)


def test_walks_stay_in_the_block_and_go_further(blocks: Blocks, tmp_path: Path) -> None:
    shards = write_pair_shards(blocks, tmp_path, ShardConfig(n_steps=4))
    pairs = set(map(tuple, read_all(shards)["rows"].tolist()))
    assert not pairs <= set(global_edges(blocks))


def test_every_shard_mixes_all_blocks(blocks: Blocks, tmp_path: Path) -> None:
    shards = write_pair_shards(blocks, tmp_path, ShardConfig(pairs_per_anchor=20))
    block_of = np.empty(len(ROWS), int)
    for number, block in enumerate(blocks):
        block_of[block.rows[: block.n_core]] = number
    assert len(shards.sizes) > 10
    assert shards.sizes.max() - shards.sizes.min() <= len(blocks)
    for number in range(len(shards.sizes)):
        rows = shards.folder.read_array(f"shard-{number:05d}.rows.npy")[:, 0]
        assert len(np.unique(block_of[rows])) == len(blocks)
        # and its order is random: neighbours in the file are not from one block
        assert (np.diff(block_of[rows]) == 0).mean() < 0.4


def first_batches(shards: PairShards, count: int, **options: int) -> list[FeatureBatch]:
    return list(itertools.islice(shards.stream(32, **options), count))


def test_an_epoch_reads_every_pair_once(blocks: Blocks, tmp_path: Path) -> None:
    shards = write_pair_shards(blocks, tmp_path)
    n_batches = -(-shards.n_pairs // 32)
    batches = first_batches(shards, n_batches, n_streams=1)
    read = torch.cat([batch.features for batch in batches])[: 2 * shards.n_pairs]
    stored = read_all(shards)["features"].reshape(-1, 4)
    np.testing.assert_array_equal(
        np.unique(read.numpy(), axis=0, return_counts=True)[1],
        np.unique(stored, axis=0, return_counts=True)[1],
    )
    batch = batches[0]
    assert batch.features.shape == (64, 4)
    assert batch.weight.sum().item() == pytest.approx(1)
    assert batch.source.tolist() == list(range(0, 64, 2))
    assert batch.target.tolist() == list(range(1, 64, 2))
    assert batch.node_weight.shape == (64,)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_pairs_do_not_depend_on_the_number_of_processes(
    blocks: Blocks, tmp_path: Path, world_size: int
) -> None:
    shards = write_pair_shards(blocks, tmp_path)
    alone = first_batches(shards, 60)
    ranks = [
        first_batches(shards, 60, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    for step in range(60):
        # 4 streams of 8 pairs, 16 rows each, dealt out in turn
        together = torch.empty(4, 16, 4)
        for rank in range(world_size):
            together[rank::world_size] = ranks[rank][step].features.view(-1, 16, 4)
        assert torch.equal(together.view(-1, 4), alone[step].features)


def test_resuming_at_a_step_reads_what_would_have_come(blocks: Blocks, tmp_path: Path) -> None:
    shards = write_pair_shards(blocks, tmp_path)
    through = first_batches(shards, 260)  # more than one epoch
    assert shards.n_pairs < 260 * 32
    for step in (1, 77, 255):
        resumed = first_batches(shards, 3, start_step=step)
        for ours, theirs in zip(resumed, through[step:], strict=False):
            assert torch.equal(ours.features, theirs.features)
    other = first_batches(shards, 1, seed=1)
    assert not torch.equal(other[0].features, through[0].features)


def test_rerun_changes_nothing_and_repairs(blocks: Blocks, tmp_path: Path) -> None:
    write_pair_shards(blocks, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    times = {path: path.stat().st_mtime_ns for path in before}
    write_pair_shards(blocks, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times
    (tmp_path / "shard-00003.features.npy").write_bytes(b"damaged")
    with pytest.raises(CorruptFileError, match=r"shard-00003\.features\.npy has 7 bytes"):
        first_batches(open_pair_shards(tmp_path), 300)
    write_pair_shards(blocks, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_few_pairs_stream_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_shards, "_SHARD_BYTES", (2**24, 2**30))
    blocks = build_blocks(ROWS[:60], tmp_path / "blocks", BlockConfig(n_neighbors=4))
    shards = write_pair_shards(blocks, tmp_path / "pairs")
    batches = first_batches(shards, 20)
    assert shards.n_pairs == 240
    assert all(batch.features.shape == (64, 4) for batch in batches)


def test_wrong_input_is_refused(blocks: Blocks, tmp_path: Path) -> None:
    shards = write_pair_shards(blocks, tmp_path / "shards")
    for options, message in (
        ({"n_streams": 5}, "batch_size=32 must be a multiple of n_streams=5"),
        ({"n_streams": 4, "world_size": 3}, "and that of world_size=3"),
        ({"n_streams": 32}, "n_streams=32 must be <= the number of shards"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            first_batches(shards, 1, **options)
    with pytest.raises(InvalidInputError, match="was begun with another config"):
        write_pair_shards(blocks, tmp_path / "shards", ShardConfig(seed=1))
    with pytest.raises(
        InvalidInputError, match=r"holds no finished result .* run write_pair_shards"
    ):
        open_pair_shards(tmp_path / "absent")
    with pytest.raises(InvalidInputError, match="pairs_per_anchor=0 must be"):
        ShardConfig(pairs_per_anchor=0)
