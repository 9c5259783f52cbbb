import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import reference
from prcut.numerics.objective import ClusterCost
from prcut.search.fragments import CoarseGraph, contract
from prcut.search.moves import find_optimum, improve
from prcut.search.sweep import cluster_sums, sweep


class Problem:
    """Fragments of one to three rows, and their objective by its formula."""

    def __init__(
        self, n_fragments: int, n_clusters: int, seed: int, density: float, balance_weight: float
    ) -> None:
        self.n_clusters, self.balance_weight = n_clusters, balance_weight
        graph = reference.random_graph(2 * n_fragments, seed, density)
        self.total = float(graph.weight.values().sum())
        fragments = reference.full_labels(graph.n_samples, n_fragments, seed)
        self.coarse = contract(graph.to_scipy(), fragments)
        self.cost = ClusterCost.of(
            graph.n_samples, self.total, n_clusters, balance_weight=balance_weight
        )
        self.labels = reference.full_labels(n_fragments, n_clusters, seed + 1)

    def objective(self, labels: np.ndarray) -> float:
        return reference.partition_objective(
            *self.coarse[:2], labels, self.n_clusters, self.total, self.balance_weight
        )


@st.composite
def problems(draw: st.DrawFn, max_fragments: int, max_clusters: int) -> Problem:
    n_fragments = draw(st.integers(1, max_fragments))
    return Problem(
        n_fragments,
        draw(st.integers(1, min(max_clusters, n_fragments))),
        draw(st.integers(0, 10**6)),
        draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])),
        draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
    )


@given(problem=problems(max_fragments=30, max_clusters=6))
@settings(max_examples=60, deadline=None)
def test_improving_never_costs_and_empties_nothing(problem: Problem) -> None:
    given_labels = problem.labels.copy()
    labels, objective = improve(problem.coarse, problem.labels, problem.cost)
    np.testing.assert_array_equal(problem.labels, given_labels)
    assert objective == pytest.approx(problem.objective(labels), abs=1e-10)
    assert objective <= problem.objective(given_labels) + 1e-10
    assert set(labels.tolist()) == set(range(problem.n_clusters))
    _, again = improve(problem.coarse, labels, problem.cost)
    assert again == pytest.approx(objective, rel=1e-8, abs=1e-10)


@given(problem=problems(max_fragments=20, max_clusters=4))
@settings(max_examples=40, deadline=None)
def test_no_single_move_is_left(problem: Problem) -> None:
    labels, objective = improve(problem.coarse, problem.labels, problem.cost)
    linked = problem.coarse.links @ np.eye(problem.n_clusters)[labels] > 0
    for fragment, cluster in np.argwhere(linked).tolist():
        moved = labels.copy()
        moved[fragment] = cluster
        if len(set(moved.tolist())) == problem.n_clusters:
            assert problem.objective(moved) >= objective - 1e-8 * max(1, abs(objective))


def two_cliques(size: int) -> np.ndarray:
    links = np.kron(np.eye(2), np.ones((size, size))) - np.eye(2 * size)
    links[size - 1, size] = links[size, size - 1] = 1.0
    return links


def is_stuck(links: np.ndarray, labels: np.ndarray, cost: ClusterCost) -> bool:
    """Whether greedy moves, one row at a time, leave the labels as they are."""
    rows = CoarseGraph(csr_array(links), np.ones(len(labels)))
    sums = cluster_sums(rows, labels, cost.n_clusters)
    return np.array_equal(sweep(rows, labels, cost, sums), labels)


def test_two_that_must_change_places_do() -> None:
    # either alone would upset the balance, which here outweighs all that it gains
    links, planted = two_cliques(6), np.repeat([0, 1], 6)
    cost = ClusterCost.of(12, links.sum(), 2, balance_weight=50.0)
    labels = planted.copy()
    labels[[0, 11]] = [1, 0]
    assert is_stuck(links, labels, cost)
    found, objective = improve(CoarseGraph(csr_array(links), np.ones(12)), labels, cost)
    np.testing.assert_array_equal(found, planted)
    assert objective == pytest.approx(12 / links.sum() * 2 / 6)


def test_a_pair_that_must_move_as_one_does() -> None:
    # rows 0 and 1 hold to each other more than to anything: neither goes without the other
    links, planted = two_cliques(8), np.repeat([0, 1], 8)
    links[0, 1] = links[1, 0] = 10.0
    cost = ClusterCost.of(16, links.sum(), 2, balance_weight=0.5)
    labels = planted.copy()
    labels[:2] = 1
    assert is_stuck(links, labels, cost)
    found, _ = improve(CoarseGraph(csr_array(links), np.ones(16)), labels, cost)
    np.testing.assert_array_equal(found, planted)


@pytest.mark.parametrize("n_clusters", [2, 3])
@pytest.mark.parametrize("balance_weight", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_search_finds_the_optimum_of_tiny_graphs(
    n_clusters: int, balance_weight: float, seed: int
) -> None:
    problem = Problem(7 - seed % 3, n_clusters, seed, 0.4, balance_weight)
    n_fragments = len(problem.labels)
    optimum = min(
        problem.objective(np.array(labels))
        for labels in itertools.product(range(n_clusters), repeat=n_fragments)
        if labels[0] == 0 and len(set(labels)) == n_clusters
    )
    rng = np.random.default_rng(seed)
    labels, objective = find_optimum(problem.coarse, problem.cost, rng, n_starts=20, n_shuffles=10)
    assert objective == pytest.approx(optimum, abs=1e-10)
    assert problem.objective(labels) == pytest.approx(optimum, abs=1e-10)


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 12])
def test_search_with_few_clusters_or_as_many_as_fragments(n_clusters: int) -> None:
    problem = Problem(12, n_clusters, 0, 0.5, 1.0)
    labels, objective = find_optimum(
        problem.coarse, problem.cost, np.random.default_rng(0), n_starts=3, n_shuffles=5
    )
    assert sorted(set(labels.tolist())) == list(range(n_clusters))
    assert objective == pytest.approx(problem.objective(labels), abs=1e-10)


def test_same_generator_same_search_and_more_starts_find_no_worse() -> None:
    problem = Problem(60, 5, seed=2, density=0.08, balance_weight=1.0)

    def found(n_starts: int, n_shuffles: int) -> tuple[np.ndarray, float]:
        rng = np.random.default_rng(0)
        return find_optimum(
            problem.coarse, problem.cost, rng, n_starts=n_starts, n_shuffles=n_shuffles
        )

    np.testing.assert_array_equal(found(3, 5)[0], found(3, 5)[0])
    objectives = [found(n_starts, 0)[1] for n_starts in (0, 1, 4, 8)]
    assert objectives == sorted(objectives, reverse=True)
    assert found(4, 10)[1] <= objectives[2]
