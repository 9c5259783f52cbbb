import numpy as np
import pytest
from scipy.sparse import csr_array

from prcut import SimilarityGraph
from prcut.numerics.matching import adjusted_rand
from prcut.search.fragments import as_coarse
from prcut.search.many import MANY_CLUSTERS, combine_many, start_many
from prcut.search.merge import merge, merge_linked
from prcut.search.partition import find_partition
from prcut.search.problem import Problem


def planted(n_groups: int, group_rows: int, seed: int = 0) -> tuple[SimilarityGraph, np.ndarray]:
    """Rows with five neighbours in their group, and one in the next group of a circle."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), group_rows)
    first = group[:, None] * group_rows
    own = first + rng.integers(group_rows, size=(len(group), 5))
    other = (group[:, None] + 1) % n_groups * group_rows
    other = other + rng.integers(group_rows, size=(len(group), 1))
    neighbors = np.sort(np.concatenate([own, other], 1), 1)
    neighbors[neighbors == np.arange(len(group))[:, None]] = -1
    neighbors[:, 1:][neighbors[:, 1:] == neighbors[:, :-1]] = -1
    return SimilarityGraph.from_neighbors(neighbors), group


def test_starts_are_combined_to_what_was_planted() -> None:
    graph, group = planted(60, 20)
    problem = Problem.of(as_coarse(graph), 60, 0.5)
    starts = [start_many(problem, np.random.default_rng(seed)) for seed in range(4)]
    for start in starts:
        assert len(np.unique(start.labels)) == 60
        assert start.objective == pytest.approx(problem.score(start.labels).objective)
    found = combine_many(problem, starts)
    assert found.objective <= min(start.objective for start in starts)
    assert found.objective <= problem.score(group).objective * 1.001
    assert adjusted_rand(found.labels, group) > 0.99
    threaded = combine_many(problem, starts, n_jobs=2)
    np.testing.assert_array_equal(threaded.labels, found.labels)


def test_more_clusters_than_a_table_takes_are_found() -> None:
    n_clusters = MANY_CLUSTERS + 8
    graph, group = planted(n_clusters, 12)
    found = find_partition(graph, n_clusters, seed=1)
    assert len(np.unique(found.labels)) == n_clusters
    assert adjusted_rand(found.labels, group) > 0.98
    assert found.agreement > 0.5
    assert len(found.starts) >= 4
    again = find_partition(graph, n_clusters, seed=1, n_jobs=2)
    np.testing.assert_array_equal(again.labels, found.labels)
    given = find_partition(graph, n_clusters, balance_weight=0.5, n_init=0, starts=[group])
    assert given.balance_weight == 0.5
    ours = Problem.of(as_coarse(graph), n_clusters, 0.5)
    assert given.objective <= ours.score(group).objective + 1e-9


def test_merges_along_edges_are_those_of_all_pairs() -> None:
    graph, _ = planted(12, 10)
    coarse = as_coarse(graph)
    # by the cut alone a pair that shares an edge is always the cheapest
    problem = Problem.of(coarse, 12, 1e-9)
    dense = merge(coarse, problem.cost).labels(12)
    assert adjusted_rand(merge_linked(coarse, problem.cost), dense) == pytest.approx(1.0)


def test_what_shares_no_edge_merges_smallest_first() -> None:
    graph, group = planted(8, 10)
    weight = graph.to_scipy().tocoo()
    inside = group[weight.row] == group[weight.col]
    entries = weight.data[inside], (weight.row[inside], weight.col[inside])
    apart = csr_array(entries, shape=weight.shape, dtype=np.float64)
    coarse = as_coarse(graph)._replace(links=apart)
    cost = Problem.of(coarse, 3, 0.5).cost
    labels = merge_linked(coarse, cost)
    assert sorted(np.bincount(labels).tolist()) == [20, 20, 40]
    for number in range(8):
        assert len(np.unique(labels[group == number])) == 1
    nothing = coarse._replace(links=csr_array(apart.shape, dtype=np.float64))
    assert np.bincount(merge_linked(nothing, cost)).max() <= 32
    assert len(np.unique(start_many(Problem(nothing, cost), np.random.default_rng(0)).labels)) == 3
