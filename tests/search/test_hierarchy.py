import numpy as np
from scipy.sparse import csr_array

from prcut.numerics.objective import ClusterCost
from prcut.search.fragments import CoarseGraph
from prcut.search.hierarchy import merge_further


def ring_of_groups() -> tuple[CoarseGraph, ClusterCost]:
    """Three groups of four clusters: much between clusters of a group, little between groups."""
    links = np.kron(np.eye(3), np.full((4, 4), 10.0)) + 0.5
    np.fill_diagonal(links, 0.0)
    sizes = np.array([5.0, 10, 10, 20] * 3)
    total = float(links.sum()) + 2000.0
    return CoarseGraph(csr_array(links), sizes), ClusterCost.of(135, total, 12, balance_weight=0.3)


def test_every_merge_costs_what_the_objective_rises() -> None:
    graph, cost = ring_of_groups()
    links = graph.links.toarray()
    for layer_sizes in ((), (6, 3)):
        tree = merge_further(graph, cost, layer_sizes)
        assert sorted(tree.children.ravel().tolist()) == list(range(22))  # each node merges once
        before = None
        for n_left in range(12, 0, -1):
            member = np.eye(n_left)[tree.labels(n_left)]
            between = member.T @ links @ member
            cuts = between.sum(1) - np.diag(between)
            now = cost(cuts, member.T @ graph.sizes).sum()
            if before is not None:
                np.testing.assert_allclose(tree.costs[11 - n_left], now - before, atol=1e-12)
            before = now


def test_layers_are_searched_and_nest() -> None:
    graph, cost = ring_of_groups()
    tree = merge_further(graph, cost, (6, 3))
    fine, coarse = tree.labels(6), tree.labels(3)
    np.testing.assert_array_equal(coarse, np.repeat(np.arange(3), 4))
    assert len({*zip(fine.tolist(), coarse.tolist(), strict=True)}) == 6


def test_a_searched_layer_is_better_than_pair_by_pair() -> None:
    n_better = 0
    for seed in range(10):
        places = np.random.default_rng(seed).normal(size=(40, 2))
        links = np.exp(-4 * ((places[:, None] - places) ** 2).sum(2))
        np.fill_diagonal(links, 0.0)
        graph = CoarseGraph(csr_array(links), np.full(40, 10.0))
        cost = ClusterCost.of(400, float(links.sum()) + 100, 6, balance_weight=0.1)
        pairs, searched = (
            _objective(graph, cost, merge_further(graph, cost, sizes).labels(6))
            for sizes in ((), (6,))
        )
        assert searched <= pairs + 1e-12
        n_better += searched < 0.9 * pairs
    assert n_better >= 8


def _objective(graph: CoarseGraph, cost: ClusterCost, labels: np.ndarray) -> float:
    member = np.eye(6)[labels]
    between = member.T @ graph.links.toarray() @ member
    return cost.objective(between.sum(1) - np.diag(between), member.T @ graph.sizes)
