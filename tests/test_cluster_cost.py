import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from prcut import SimilarityGraph
from prcut.cluster_cost import ClusterCost
from prcut.cuts import cluster_cuts
from prcut.objective import hard_objective


def cost_of(graph: SimilarityGraph, n_clusters: int, balance_weight: float) -> ClusterCost:
    total = float(graph.weight.values().sum())
    return ClusterCost.of(graph.n_samples, total, n_clusters, balance_weight=balance_weight)


@given(
    n_samples=st.integers(1, 12),
    n_clusters=st.integers(1, 15),
    seed=st.integers(0, 10**6),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    balance_weight=st.sampled_from([0.0, 0.5, 1.0, 7.0]),
)
@settings(max_examples=80, deadline=None)
def test_objective_is_that_of_the_package_and_of_loops(
    n_samples: int, n_clusters: int, seed: int, density: float, balance_weight: float
) -> None:
    graph = reference.random_graph(n_samples, seed, density)
    labels = reference.random_labels(n_samples, n_clusters, seed)  # some clusters are empty
    cuts = cluster_cuts(graph.weight, labels, n_clusters).numpy()
    sizes = np.bincount(labels.numpy(), minlength=n_clusters).astype(float)
    found = cost_of(graph, n_clusters, balance_weight).objective(cuts, sizes)
    official = hard_objective(graph.weight, labels, n_clusters, balance_weight=balance_weight)
    looped = reference.partition_objective(
        graph.weight.to_dense().numpy(),
        np.ones(n_samples),
        labels.numpy(),
        n_clusters,
        float(graph.weight.values().sum()),
        balance_weight,
    )
    assert found == pytest.approx(float(official), rel=1e-11, abs=1e-11)
    assert found == pytest.approx(looped, rel=1e-11, abs=1e-11)


def test_clusters_add_up_to_the_objective_but_for_a_constant() -> None:
    graph = reference.random_graph(30, seed=3)
    cost = cost_of(graph, 4, balance_weight=1.5)
    totals = []
    for seed in range(5):
        labels = torch.from_numpy(reference.full_labels(30, 4, seed))
        cuts = cluster_cuts(graph.weight, labels, 4).numpy()
        sizes = np.bincount(labels, minlength=4)
        totals.append(cost.objective(cuts, sizes) - cost(cuts, sizes).sum())
    np.testing.assert_allclose(totals, totals[0], rtol=1e-12)
    assert totals[0] > 0


def test_any_shape_and_an_empty_cluster_costs_nothing() -> None:
    cost = ClusterCost.of(10, 20.0, 3, balance_weight=1.0)
    cuts, sizes = np.array([[4.0, 2.0], [0.0, 1.0]]), np.array([[2.0, 1.0], [0.0, 5.0]])
    table = cost(cuts, sizes)
    assert table.shape == (2, 2)
    assert table[0, 1] == cost(2.0, 1.0)
    assert table[1, 0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("n_clusters", [1, 3])
def test_graphs_without_edges_leave_the_balance_only(n_clusters: int) -> None:
    cost = ClusterCost.of(6, 0.0, n_clusters, balance_weight=1.0)
    even = np.full(n_clusters, 6 / n_clusters)
    assert cost.objective(np.zeros(n_clusters), even) == pytest.approx(0.0, abs=1e-12)
    if n_clusters == 3:  # that is what balance_weight means
        emptied = np.array([3.0, 3.0, 0.0])
        assert cost.objective(np.zeros(3), emptied) == pytest.approx(1.0)
