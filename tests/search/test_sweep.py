"""Moves of nodes of any size, one after the other."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from prcut.numerics.objective import ClusterCost
from prcut.search.fragments import CoarseGraph
from prcut.search.sweep import cluster_sums, sweep


def random_graph(seed: int, n_nodes: int = 60) -> CoarseGraph:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n_nodes, n_nodes)) * (rng.random((n_nodes, n_nodes)) < 0.2), 1)
    links = csr_array(upper + upper.T)
    links.indices, links.indptr = (a.astype(np.int32) for a in (links.indices, links.indptr))
    return CoarseGraph(links, rng.integers(1, 5, n_nodes).astype(np.float64))


def objective(coarse: CoarseGraph, labels: np.ndarray, cost: ClusterCost) -> float:
    return cost.objective(*cluster_sums(coarse, labels, cost.n_clusters))


@pytest.mark.parametrize("seed", range(5))
def test_sweeps_lower_the_objective_and_empty_nothing(seed: int) -> None:
    coarse, n_clusters = random_graph(seed), 4
    n_samples = int(coarse.sizes.sum())
    cost = ClusterCost.of(n_samples, coarse.links.sum(), n_clusters, balance_weight=0.5)
    labels = np.arange(60) % n_clusters
    sums = cluster_sums(coarse, labels, n_clusters)
    found = sweep(coarse, labels, cost, sums)
    assert objective(coarse, found, cost) < objective(coarse, labels, cost)
    assert len(np.unique(found)) == n_clusters
    # no single node gains any more
    again = sweep(coarse, found, cost, cluster_sums(coarse, found, n_clusters))
    assert np.array_equal(again, found)
    assert np.array_equal(labels, np.arange(60) % n_clusters)


def test_nodes_without_edges_stay() -> None:
    links = csr_array((5, 5))
    links.indices, links.indptr = (a.astype(np.int32) for a in (links.indices, links.indptr))
    coarse, labels = CoarseGraph(links, np.ones(5)), np.array([0, 1, 0, 1, 1])
    cost = ClusterCost.of(5, 1.0, 2, balance_weight=1.0)
    assert np.array_equal(sweep(coarse, labels, cost, cluster_sums(coarse, labels, 2)), labels)


def test_sizes_count() -> None:
    # between two clusters of equal size a light node follows its heavier link, a heavy one would
    # unbalance them
    links = csr_array(np.array([[0, 1, 0.0], [1, 0, 2], [0, 2, 0]]))
    links.indices, links.indptr = (a.astype(np.int32) for a in (links.indices, links.indptr))
    labels = np.array([0, 0, 1])
    for size, expected in ((1.0, [0, 1, 1]), (30.0, [0, 0, 1])):
        coarse = CoarseGraph(links, np.array([20.0, size, 20.0 + size]))
        cost = ClusterCost.of(int(coarse.sizes.sum()), 6.0, 2, balance_weight=3.0)
        found = sweep(coarse, labels, cost, cluster_sums(coarse, labels, 2))
        assert found.tolist() == expected


def test_the_unit_of_sizes_does_not_count() -> None:
    coarse, labels = random_graph(1), np.arange(60) % 4
    found = []
    # heavier than 1, lighter, and of very different weights
    for scale in (1.0, 2.0**-10):
        scaled = coarse._replace(sizes=scale * coarse.sizes)
        n_samples = float(scaled.sizes.sum())
        cost = ClusterCost.of(n_samples, coarse.links.sum(), 4, balance_weight=0.5)
        found.append(sweep(scaled, labels, cost, cluster_sums(scaled, labels, 4)))
    assert not np.array_equal(found[0], labels)
    np.testing.assert_array_equal(*found)


def test_light_nodes_leave_a_heavy_one_behind() -> None:
    # the least size is that of half the lightest node, whatever the others weigh
    links = csr_array(np.array([[0, 0, 0.1], [0, 0, 2.0], [0.1, 2.0, 0]]))
    coarse = CoarseGraph(links, np.array([0.25, 8.0, 0.25]))
    cost = ClusterCost.of(8.5, links.sum(), 2, balance_weight=0.0)
    labels = np.array([0, 1, 0])
    found = sweep(coarse, labels, cost, cluster_sums(coarse, labels, 2))
    assert found.tolist() == [0, 1, 1]
