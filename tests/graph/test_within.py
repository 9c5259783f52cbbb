"""Pairs within ε: those of the definition, groups larger than the neighbours of a row, copies."""

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from prcut.graph.neighbors import find_neighbors
from prcut.graph.within import Pairs, distances_to, pairs_within


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
