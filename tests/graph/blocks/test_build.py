from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from killed import contents
from prcut.errors import InvalidInputError
from prcut.graph.blocks.build import (
    BlockConfig,
    _layout,
    anchor_fraction,
    build_blocks,
    bytes_in_memory,
    choose_block_rows,
)
from prcut.graph.neighbors import find_neighbors
from reference import mixture as wide_mixture

CONFIG = BlockConfig(n_neighbors=5, block_rows=300, halo=3)
mixture = partial(wide_mixture, n_features=6)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prcut.runtime.sources._READ_BYTES", 170 * 6 * 4)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
def test_every_row_is_core_once_with_its_features(tmp_path: Path, metric: str) -> None:
    rows = mixture(2000)
    config = BlockConfig(n_neighbors=5, block_rows=300, halo=3, metric=metric)  # type: ignore[arg-type]
    blocks = build_blocks(rows, tmp_path, config)
    assert len(blocks) >= 7
    assert repr(blocks).startswith("Blocks(n_samples=2000, n_features=6, n_blocks=")
    core = np.concatenate([block.rows[: block.n_core] for block in blocks])
    assert sorted(core.tolist()) == list(range(2000))
    for block in blocks:
        np.testing.assert_array_equal(block.features, rows[block.rows])
        assert len(set(block.rows.tolist())) == len(block.rows)
        assert block.rows.dtype == np.int64
        assert block.n_core <= 600


def test_neighbors_are_the_nearest_of_the_block_and_nearly_of_all(tmp_path: Path) -> None:
    rows = mixture(2000)
    truth = find_neighbors(rows, 5, recall=1.0).indices
    found = 0
    for block in build_blocks(rows, tmp_path, CONFIG):
        exact = find_neighbors(np.asarray(block.features), 5, rows=block.anchors, recall=1.0)
        np.testing.assert_array_equal(block.neighbors, exact.indices)
        for anchor, neighbors in zip(block.anchors, block.neighbors, strict=True):
            found += len(set(truth[block.rows[anchor]]) & set(block.rows[neighbors].tolist()))
    assert found / truth.size > 0.97


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_blocks_keep_some_rows_and_find_the_same_neighbors(tmp_path: Path, dtype: type) -> None:
    rows = (mixture(2000) + 1000).astype(dtype)
    whole = build_blocks(rows, tmp_path / "whole", CONFIG)
    some = build_blocks(rows, tmp_path / "some", replace(CONFIG, kept=200))
    n_kept = n_same = 0
    for number, block in enumerate(whole):
        other = some.open(number)
        np.testing.assert_array_equal(other.rows, block.rows)
        assert other.kept is not None
        assert other.kept.max() < other.n_core
        assert len(other.kept) == pytest.approx(0.1 * block.n_core, abs=1)
        assert other.features.dtype == block.features.dtype == dtype
        np.testing.assert_allclose(other.features, rows[other.rows[other.kept]], atol=0.01)
        n_kept += len(other.kept)
        n_same += int((other.neighbors == block.neighbors).sum())
    assert n_kept == pytest.approx(200, abs=len(whole))
    assert n_same / (5 * len(rows)) > 0.99
    with pytest.raises(InvalidInputError, match="kept=0"):
        BlockConfig(kept=0)


def test_a_cell_near_everything_keeps_its_core_and_the_nearest_of_its_halo() -> None:
    config = BlockConfig(block_rows=100, halo=3)  # at most 200 core rows and 450 in all
    count = np.array([[150, 300, 900], [0, 5, 5], [450, 90, 0]])
    first, *others = _layout(count.ravel(), config)
    assert first == [(0, 0, 1), (1, 0, 1)]  # 150 + 300
    assert [block[0] for block in others] == [(6, part, 3) for part in range(3)]
    assert others[2] == [(6, 2, 3), (7, 2, 3)]


def test_a_crowd_of_copies_is_cut_to_the_limit(tmp_path: Path) -> None:
    rows = mixture(1000)
    rows[:800] = rows[0]  # no centroid can split them
    blocks = build_blocks(rows, tmp_path, BlockConfig(n_neighbors=5, block_rows=100, halo=2))
    assert max(record["n_core"] for record in blocks.records) <= 200
    assert max(record["n_core"] + record["n_halo"] for record in blocks.records) <= 400
    assert sum(record["n_core"] for record in blocks.records) == 1000


@pytest.mark.parametrize("n_samples", [1, 4])
def test_fewer_rows_than_neighbors(tmp_path: Path, n_samples: int) -> None:
    (block,) = build_blocks(mixture(n_samples), tmp_path, CONFIG)
    assert block.neighbors.shape == (n_samples, 5)
    assert (block.neighbors >= 0).sum() == n_samples * (n_samples - 1)
    assert block.links().nnz == n_samples * (n_samples - 1)


def test_rerun_changes_nothing_and_repairs_what_is_damaged(tmp_path: Path) -> None:
    rows = mixture(2000)
    build_blocks(rows, tmp_path, CONFIG)
    assert not (tmp_path / "exchange").exists()
    whole = contents(tmp_path)
    times = {name: (tmp_path / name).stat().st_mtime_ns for name in whole}
    build_blocks(rows, tmp_path, CONFIG)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in whole} == times
    (tmp_path / "block-00002/neighbors.npy").write_bytes(b"damaged")
    (tmp_path / "block-00003/block.json").unlink()
    build_blocks(rows, tmp_path, CONFIG)
    assert contents(tmp_path) == whole


def test_wrong_input_is_refused(tmp_path: Path) -> None:
    for shape in ((0, 3), (3, 0)):
        with pytest.raises(InvalidInputError, match="expected at least one of each"):
            build_blocks(np.zeros(shape, np.float32), tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="is a file, expected a folder or a new name"):
        build_blocks(mixture(50), tmp_path / "file")
    with pytest.raises(InvalidInputError, match=r"anchors=1.5 must be in \(0, 1\]"):
        BlockConfig(anchors=1.5)
    with pytest.raises(InvalidInputError, match="halo=0 must be a whole number >= 1"):
        BlockConfig(halo=0)


def test_blocks_keep_within_limits() -> None:
    assert choose_block_rows(1, 10**9, 128, 4, 15, halo=4) == 1000
    assert choose_block_rows(1, 10**9, 128, 4, 200, halo=4) == 2000
    assert choose_block_rows(10**15, 10**9, 128, 4, 15, halo=4) == 100_000
    # many blocks whatever the memory: of few, each is compared with much of the data
    assert choose_block_rows(10**15, 10**6, 128, 4, 15, halo=4) == 15_625
    assert choose_block_rows(10**15, 100, 128, 4, 15, halo=4) == 10_000


def test_the_features_are_held_as_they_came_and_in_float32() -> None:
    half, single = (bytes_in_memory(1000, 128, itemsize, 15) for itemsize in (2, 4))
    assert single - half == 1000 * 128 * 2


def test_a_million_rows_or_a_tenth_look_for_neighbours() -> None:
    assert anchor_fraction(1) == anchor_fraction(10**6) == 1
    assert anchor_fraction(2 * 10**6) == 0.5
    assert anchor_fraction(10**8) == 0.1
