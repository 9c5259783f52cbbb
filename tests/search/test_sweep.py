"""Moves of nodes of any size, one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import reference
from prcut.numerics.cuts import cluster_cuts
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


# -- single rows -----------------------------------------------------------------------------------


def move_rows(
    weight: csr_array, labels: np.ndarray, n_clusters: int, balance_weight: float = 1.0
) -> np.ndarray:
    rows = CoarseGraph(weight, np.ones(len(labels)))
    total = float(weight.data.sum(dtype=np.float64))
    cost = ClusterCost.of(len(labels), total, n_clusters, balance_weight=balance_weight)
    return sweep(rows, labels, cost, cluster_sums(rows, labels, n_clusters))


def objective_of(weight: csr_array, labels: np.ndarray, n_clusters: int, balance: float) -> float:
    dense = weight.toarray().astype(np.float64)
    ones = np.ones(len(labels))
    return reference.partition_objective(dense, ones, labels, n_clusters, dense.sum(), balance)


def least_change(
    weight: csr_array, labels: np.ndarray, n_clusters: int, balance_weight: float
) -> float:
    """Of moving one row to the cluster of a neighbour without emptying its own."""
    now = objective_of(weight, labels, n_clusters, balance_weight)
    sizes, least = np.bincount(labels, minlength=n_clusters), np.inf
    for row in np.flatnonzero(sizes[labels] > 1):
        for cluster in set(labels[weight[[row]].indices].tolist()) - {labels[row]}:
            moved = labels.copy()
            moved[row] = cluster
            least = min(least, objective_of(weight, moved, n_clusters, balance_weight) - now)
    return least


@given(
    n_samples=st.integers(1, 25),
    n_clusters=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    density=st.sampled_from([0.0, 0.1, 0.3, 1.0]),
    balance_weight=st.floats(0, 2),
    weighted=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_it_ends_in_a_local_optimum_no_worse_than_the_start(
    n_samples: int,
    n_clusters: int,
    seed: int,
    density: float,
    balance_weight: float,
    weighted: bool,
) -> None:
    n_clusters = min(n_clusters, n_samples)
    weight = reference.random_graph(n_samples, seed, density).to_scipy()
    if not weighted:
        weight.data[:] = 1
    labels = reference.full_labels(n_samples, n_clusters, seed + 1)
    found = move_rows(weight, labels, n_clusters, balance_weight)
    assert sorted(set(found.tolist())) == list(range(n_clusters))
    before = objective_of(weight, labels, n_clusters, balance_weight)
    after = objective_of(weight, found, n_clusters, balance_weight)
    assert after <= before + 1e-12
    assert np.array_equal(found, labels) or after < before
    assert least_change(weight, found, n_clusters, balance_weight) > -1e-9


@pytest.mark.parametrize(
    ("n_samples", "n_clusters", "density", "seed"),
    [(60, 4, 0.1, 4), (48, 5, 0.05, 3536), (56, 6, 0.1, 1822), (76, 3, 0.03, 3843)],
)
def test_single_precision_weights_of_few_values_do_as_well(
    n_samples: int, n_clusters: int, density: float, seed: int
) -> None:
    # many moves are worth nothing, and rounding makes some look better: none may end it early
    weight = reference.random_graph(n_samples, seed, density).to_scipy().astype(np.float32)
    weight.data[:] = np.ceil(3 * weight.data) / np.float32(10)
    labels = reference.full_labels(n_samples, n_clusters, seed)
    for balance_weight in (0.5, 2.0):
        found = move_rows(weight, labels, n_clusters, balance_weight)
        before = objective_of(weight, labels, n_clusters, balance_weight)
        assert objective_of(weight, found, n_clusters, balance_weight) < before
        assert least_change(weight, found, n_clusters, balance_weight) > -1e-7


def test_an_empty_cluster_does_not_stop_the_others() -> None:
    path = csr_array(np.eye(6, k=1) + np.eye(6, k=-1))
    labels = np.array([0, 1, 0, 1, 1, 1])
    assert move_rows(path, labels, 3).tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("n_clusters", [1, 12])
def test_one_cluster_and_as_many_as_rows_stay(n_clusters: int) -> None:
    path = csr_array(np.eye(12, k=1) + np.eye(12, k=-1))
    labels = reference.full_labels(12, n_clusters)
    np.testing.assert_array_equal(move_rows(path, labels, n_clusters), labels)


@given(n_samples=st.integers(1, 20), n_clusters=st.integers(1, 5), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_cuts_are_those_of_the_package(n_samples: int, n_clusters: int, seed: int) -> None:
    graph = reference.random_graph(n_samples, seed)
    labels = reference.random_labels(n_samples, n_clusters, seed)
    rows = CoarseGraph(graph.to_scipy(), np.ones(n_samples))
    cuts, sizes = cluster_sums(rows, labels.numpy(), n_clusters)
    # torch.testing would import sympy, for seconds
    np.testing.assert_allclose(cuts, cluster_cuts(graph.weight, labels, n_clusters).numpy())
    np.testing.assert_array_equal(sizes, np.bincount(labels.numpy(), minlength=n_clusters))
