"""Pairs within ε: those of the definition, groups larger than the neighbours of a row, copies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from prcut.graph import inverted_lists, within
from prcut.graph.neighbors import find_neighbors
from prcut.graph.within import (
    Pairs,
    distances_to,
    find_within,
    forest,
    pairs_within,
)


def components(pairs: Pairs, n_nodes: int) -> np.ndarray:
    graph = coo_array((np.ones(len(pairs.source)), pairs[:2]), shape=(n_nodes, n_nodes))
    return connected_components(graph.tocsr(), directed=False)[1]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_pairs_are_those_of_the_definition(metric: str) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    epsilon = 0.02 if metric == "cosine" else 0.5
    found = find_neighbors(rows, 59, metric=metric, recall=1)
    pairs = pairs_within(rows, np.arange(60), found, epsilon)
    one, other = np.nonzero(np.triu(distances_to(rows, rows, metric) <= epsilon, 1))
    assert len(one) > 5
    assert sorted(zip(*pairs[:2], strict=True)) == sorted(zip(one, other, strict=True))
    assert np.allclose(pairs.distance, distances_to(rows, rows, metric)[pairs[:2]], atol=1e-5)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_lists_find_the_pairs_of_the_definition(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the rows of a list are compared part by part, and hide each other."""
    monkeypatch.setattr(inverted_lists, "_EXACT_DISTANCES", 0)
    monkeypatch.setattr(within, "_PRODUCTS", 1000)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1500, 32)).astype(np.float32)
    near = rows[:500] + 0.05 * rng.normal(size=(500, 32)).astype(np.float32)
    rows = np.concatenate([rows, near, near[:9] + 1e-3, np.repeat(rows[:1], 500, axis=0)])
    epsilon = 0.02 if metric == "cosine" else 0.5
    found = find_within(rows, np.arange(2009), 3, epsilon, metric, 0)
    assert 0 < found.n_probe < found.n_lists
    query, rank = np.nonzero(found.indices >= 0)
    ends = found.rows[query], found.indices[query, rank]
    seen = {pair for pair in zip(*(one.tolist() for one in ends), strict=True) if pair[1] < 2009}
    exact = distances_to(rows[:2009], rows[:2009], metric)
    np.fill_diagonal(exact, np.inf)
    expected = {tuple(pair) for pair in np.argwhere(exact <= epsilon).tolist()}
    assert seen <= expected
    # most are looked for from both ends
    assert len((seen | {pair[::-1] for pair in seen}) & expected) >= 0.98 * len(expected) > 900
    # the nearest hide others: 500 copies of row 0 its near row
    assert (found.indices[found.rows == 0] >= 2009).all()
    own = 1.0 if metric == "cosine" else 0.0
    assert found.distances[found.rows == 0].ravel() == pytest.approx([own] * 3)


def test_a_group_larger_than_the_neighbours_of_a_row_becomes_one() -> None:
    """Tight heaps inside ε fill each other's neighbours: only exemplars see the other heaps."""
    rng = np.random.default_rng(0)
    heaps = np.repeat(rng.normal(size=(30, 8)), 20, axis=0)
    rows = np.concatenate([np.ones((600, 8)) + 0.02 * heaps, -np.ones((1, 8))]).astype(np.float32)
    rows[:600] += 1e-4 * rng.normal(size=(600, 8)).astype(np.float32)
    found = find_neighbors(rows, 5, metric="cosine", recall=1)
    near = found.distances >= 1 - 0.05
    alone = Pairs(np.repeat(np.arange(601), near.sum(1)), found.indices[near], np.zeros(near.sum()))
    assert len(np.unique(components(alone, 601))) > 10
    labels = components(pairs_within(rows, np.arange(601), found, 0.05), 601)
    assert np.bincount(labels).tolist() == [600, 1]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_a_forest_links_what_the_pairs_link(ends: list[tuple[int, int]]) -> None:
    one, other = np.array(ends).T * 10**12
    nodes, root = forest(Pairs(one, other, np.zeros(len(one))))
    assert nodes.tolist() == sorted(set(one.tolist()) | set(other.tolist()))
    by_node = dict(zip(nodes.tolist(), root.tolist(), strict=True))
    assert all(by_node[a] == by_node[b] for a, b in zip(one.tolist(), other.tolist(), strict=True))
    small = Pairs(*(np.searchsorted(nodes, end) for end in (one, other)), np.zeros(len(one)))
    assert len(set(root.tolist())) == len(np.unique(components(small, len(nodes))))
    assert all(by_node[one] == one for one in root.tolist())
