"""Blocks are read as they were built, and their edges are one graph: equal to their sum."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.blocks import read
from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.graph.blocks.read import Blocks, JoinedGraph, join_blocks, open_joined, save_joined
from prcut.graph.build import build_graph
from prcut.runtime.folder import Folder
from prcut.search.fragments import CoarseGraph

ROWS = np.random.default_rng(0).standard_normal((2000, 6)).astype(np.float32)
CONFIG = BlockConfig(n_neighbors=5, block_rows=300, halo=3)


def test_blocks_are_opened_by_number(tmp_path: Path) -> None:
    built, opened = build_blocks(ROWS, tmp_path, CONFIG), Blocks(Folder(tmp_path))
    assert opened.records == built.records
    assert len(list(opened)) == len(opened) == len(built)
    np.testing.assert_array_equal(opened.open(3).rows, built.open(3).rows)
    with pytest.raises(InvalidInputError, match=r"holds no finished result .* run build_blocks"):
        Blocks(Folder(tmp_path / "absent"))
    assert not (tmp_path / "absent").exists()


def test_newer_or_broken_manifest_is_refused(tmp_path: Path) -> None:
    build_blocks(ROWS, tmp_path, CONFIG)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["plan"]["format"] = 99
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidInputError, match="has format 99, this version reads up to 2"):
        Blocks(Folder(tmp_path))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(CorruptFileError, match=r"manifest\.json lacks 'plan'"):
        Blocks(Folder(tmp_path))


N_ROWS = 1500


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    made = make_blobs(N_ROWS, 6, centers=4, cluster_std=4.0, random_state=1)[0]
    return made.astype(np.float32)


def dense(graph: JoinedGraph) -> np.ndarray:
    found = np.zeros((N_ROWS, N_ROWS), np.float32)
    found[np.ix_(graph.rows, graph.rows)] = CoarseGraph.of_arrays(*graph[1:]).links.toarray()
    return found


@pytest.mark.parametrize("similarity", ["mean", "self_tuning", "cosine"])
@pytest.mark.parametrize("given", [{}, {"anchors": 0.2}, {"halo": 1}])
def test_the_graph_is_the_sum_of_all_blocks(
    tmp_path: Path, rows: np.ndarray, similarity: Any, given: dict[str, Any]
) -> None:
    config = BlockConfig(**{"n_neighbors": 8, "block_rows": 200, "halo": 3, **given})
    blocks = build_blocks(rows, tmp_path, config)
    expected = np.zeros((N_ROWS, N_ROWS), np.float32)
    for block in blocks:
        at = np.asarray(block.rows)
        directed = block.links(similarity).toarray()
        expected[np.ix_(at, at)] += (directed + directed.T) / 2
    done: list[int] = []
    found = join_blocks(blocks, similarity, done.append)
    assert sum(done) == N_ROWS
    np.testing.assert_array_equal(dense(found), expected)
    np.testing.assert_array_equal(np.sort(found.rows), np.flatnonzero(expected.any(1)))
    assert (len(found.rows) < N_ROWS) == ("anchors" in given)
    assert found.indices.dtype == np.int32
    assert found.weight.dtype == np.float32
    assert (found.weight > 0).all()


def test_one_block_has_the_graph_of_memory(tmp_path: Path, rows: np.ndarray) -> None:
    blocks = build_blocks(rows, tmp_path, BlockConfig(n_neighbors=8, block_rows=N_ROWS))
    expected = build_graph(rows, 8, similarity="mean").to_scipy().toarray()
    np.testing.assert_array_equal(dense(join_blocks(blocks, "mean")), expected)


def test_entries_are_sorted_in_pieces(
    tmp_path: Path, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = build_blocks(rows, tmp_path, BlockConfig(n_neighbors=8, block_rows=300))
    at_once = join_blocks(blocks, "mean")
    monkeypatch.setattr(read, "_SORTED_AT_ONCE", 100)
    for one, other in zip(join_blocks(blocks, "mean"), at_once, strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_is_opened_as_it_was_saved(tmp_path: Path, rows: np.ndarray) -> None:
    blocks = build_blocks(rows, tmp_path / "blocks", BlockConfig(n_neighbors=8, block_rows=300))
    graph, folder = join_blocks(blocks, "mean"), Folder(tmp_path / "graph")
    save_joined(folder, graph, "a key")
    assert folder.is_sealed(read.JOINED_RECORD, "a key")
    for one, other in zip(open_joined(folder), graph, strict=True):
        np.testing.assert_array_equal(one, other)
