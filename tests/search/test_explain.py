import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prcut import SimilarityGraph
from prcut.numerics.objective import hard_objective
from prcut.search.explain import find_reasons
from prcut.search.fragments import CoarseGraph, as_coarse
from prcut.search.problem import Problem


def _random_graph(rng: np.random.Generator, n_samples: int) -> SimilarityGraph:
    weight = rng.random((n_samples, n_samples)) * (rng.random((n_samples, n_samples)) < 0.3)
    return SimilarityGraph.from_scipy(weight + weight.T)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), balance_weight=st.sampled_from([0.0, 0.3, 2.0]))
def test_change_is_that_of_the_objective_and_the_least_of_all(seed, balance_weight):
    rng = np.random.default_rng(seed)
    n_samples, n_clusters = int(rng.integers(8, 20)), int(rng.integers(2, 5))
    graph = _random_graph(rng, n_samples)
    labels = np.concatenate(
        [np.arange(n_clusters), rng.integers(n_clusters, size=n_samples - n_clusters)]
    )

    def objective(values):
        weight, tensor = graph.weight, torch.from_numpy(values)
        return hard_objective(weight, tensor, n_clusters, balance_weight=balance_weight)

    found = find_reasons(graph, labels, n_clusters, balance_weight)
    links = graph.to_scipy().toarray()
    for row in range(n_samples):
        near = np.flatnonzero(links[row])
        others = np.setdiff1d(labels[near], labels[row])
        assert found.n_neighbors[row] == len(near)
        assert found.n_inside[row] == (labels[near] == labels[row]).sum()
        if len(others) == 0:
            assert found.runner_up[row] == -1
            assert np.isnan(found.change[row])
            continue
        changes = {}
        for other in others.tolist():
            moved = labels.copy()
            moved[row] = other
            changes[other] = objective(moved) - objective(labels)
        assert found.change[row] == pytest.approx(min(changes.values()), abs=1e-6)
        assert changes[int(found.runner_up[row])] == pytest.approx(found.change[row], abs=1e-6)
        assert found.n_in_runner_up[row] == (labels[near] == found.runner_up[row]).sum()


def test_some_rows_say_the_same_as_all():
    rng = np.random.default_rng(0)
    graph, labels = _random_graph(rng, 30), np.arange(30) % 3
    rows = np.array([4, 17, 4])
    of_all = find_reasons(graph, labels, 3, 1.0).take(rows)
    for one, other in zip(find_reasons(graph, labels, 3, 1.0, rows), of_all, strict=True):
        np.testing.assert_allclose(one, other)


def test_a_row_in_the_wrong_cluster_would_lower_the_objective():
    graph = SimilarityGraph.from_neighbors([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]])
    found = find_reasons(graph, np.array([0, 0, 1, 1, 1, 1]), 2, 0.0)
    assert found.change[2] < 0
    assert "would lower J by" in found.explain()[2]


def test_a_weight_counts_as_so_many_rows():
    rng = np.random.default_rng(3)
    graph, labels, weights = _random_graph(rng, 20), np.arange(20) % 3, rng.integers(1, 4, 20)
    found = find_reasons(graph, labels, 3, 0.5, weights=weights.astype(np.float64))
    coarse = CoarseGraph(as_coarse(graph).links, weights.astype(np.float64))
    problem = Problem.of(coarse, 3, 0.5)
    for row in np.flatnonzero(found.runner_up >= 0):
        moved = labels.copy()
        moved[row] = found.runner_up[row]
        change = problem.score(moved).objective - problem.score(labels).objective
        assert found.change[row] == pytest.approx(change, abs=1e-9)
