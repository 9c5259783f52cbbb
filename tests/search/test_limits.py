"""Sizes within limits, exactly, on any graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs

import reference
from prcut.graph.build import build_graph
from prcut.search.fragments import CoarseGraph, as_coarse
from prcut.search.limits import (
    Limits,
    Moves,
    Needs,
    _move_groups,
    choose_moves,
    keep_limits,
    limit_sizes,
    price_moves,
)
from prcut.search.partition import find_partition
from prcut.search.prices import Prices
from prcut.search.problem import Partition, Problem
from prcut.search.sweep import cluster_sums


@given(
    n_samples=st.integers(4, 40),
    n_clusters=st.integers(2, 5),
    density=st.sampled_from([0.02, 0.1, 0.5]),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_limits_hold_on_any_graph(
    n_samples: int, n_clusters: int, density: float, seed: int, data: st.DataObject
) -> None:
    n_clusters = min(n_clusters, n_samples)
    least = data.draw(st.integers(0, n_samples // n_clusters))
    most = data.draw(st.integers(-(-n_samples // n_clusters), n_samples))
    graph = as_coarse(reference.random_graph(n_samples, seed, density))
    labels = np.random.default_rng(seed).integers(n_clusters, size=n_samples)
    given_labels = labels.copy()
    found = limit_sizes(Problem.of(graph, n_clusters, 1.0), [labels], Limits(least, most))
    sizes = np.bincount(found.labels, minlength=n_clusters)
    assert least <= sizes.min()
    assert sizes.max() <= most
    np.testing.assert_array_equal(labels, given_labels)


@given(seed=st.integers(0, 10**6), n_clusters=st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_sums_of_weights_come_within_a_row_of_their_limits(seed: int, n_clusters: int) -> None:
    rng = np.random.default_rng(seed)
    links = as_coarse(reference.random_graph(40, seed, 0.2)).links
    weights = rng.uniform(0.5, 3, 40)
    limits = Limits(0.9 * weights.sum() / n_clusters, 1.1 * weights.sum() / n_clusters)
    problem = Problem.of(CoarseGraph(links, weights), n_clusters, 1.0)
    found = limit_sizes(problem, [np.arange(40) % n_clusters], limits)
    sums = np.bincount(found.labels, weights, n_clusters)
    assert np.abs(limits.excess(sums)).max() <= weights.max()


@pytest.mark.parametrize(
    ("sizes", "gives", "takes"),
    [
        ([1, 5, 4], [0, 3, 2], [1, 0, 0]),  # none is too large: the others give what they can
        ([7, 3, 4], [1, 0, 0], [0, 3, 2]),  # none is too small: the others take what they can
        ([1, 9, 4], [0, 3, 0], [1, 0, 0]),
    ],
)
def test_what_clusters_give_and_take(sizes: list[int], gives: list[int], takes: list[int]) -> None:
    found = Limits(2, 6).needs(np.array(sizes, dtype=float))
    np.testing.assert_array_equal(found.gives, gives)
    np.testing.assert_array_equal(found.takes, takes)


def test_rounding_is_no_need() -> None:
    sizes = np.array([1e6 + 1e-4, 1e6, 1e6 - 1e-4])
    needs = Limits(1e6, 1e6).needs(sizes)
    assert not needs.gives.any()
    assert Limits(1e6, 1e6).hold(sizes)
    sizes[0] += 1
    assert (Limits(1e6, 1e6).needs(sizes).gives > 0).tolist() == [True, False, False]


def moves_of(*moves: tuple[int, int, int, float]) -> Moves:
    """Return moves of rows of size 1: row, cluster before, cluster after, change."""
    row, before, after = np.array([move[:3] for move in moves], dtype=np.int64).T
    return Moves(row, before, after, np.ones(len(row)), np.array([move[3] for move in moves]))


@pytest.mark.parametrize(("direct", "chosen"), [(3.0, [0]), (5.0, [1, 2])])
def test_rows_flow_along_the_cheapest_path(direct: float, chosen: list[int]) -> None:
    moves = moves_of((0, 0, 2, direct), (1, 0, 1, 2.0), (2, 1, 2, 2.0))
    assert choose_moves(moves, np.array([3.0, 2.0, 1.0]), Limits(2, 2)).tolist() == chosen


def test_a_row_moves_once_though_two_clusters_want_it() -> None:
    moves = moves_of((0, 0, 1, 1.0), (0, 0, 2, 1.0), (1, 0, 2, 2.0))
    chosen = choose_moves(moves, np.array([4.0, 1.0, 1.0]), Limits(2, 2), 1.0, 1.0)
    assert sorted(chosen.tolist()) == [0, 2]


def test_a_partition_within_the_limits_wins_over_a_lower_objective() -> None:
    # 8 and 10 cannot become 9 and 9 by single moves of rows that weigh 3, 4 or 5
    weights, inside = np.array([5.0, 4.0, 3.0, 3.0, 3.0]), np.array([0, 0, 1, 1, 1])
    outside = np.array([0, 1, 0, 1, 1])
    weight = 0.01 * (1 - np.eye(5))
    weight[0, 2] = weight[2, 0] = weight[1, 3] = weight[3, 1] = 1.0
    problem = Problem.of(CoarseGraph(csr_array(weight), weights), 2, 0.0)
    assert problem.score(outside).objective < problem.score(inside).objective
    for starts in ([inside, outside], [outside, inside]):
        found = limit_sizes(problem, starts, Limits(9, 9))
        np.testing.assert_array_equal(np.bincount(found.labels, weights), [9, 9])


@pytest.mark.parametrize("n_clusters", [3, 7])
def test_equal_sizes_of_blobs_keep_fixed_rows_and_lower_the_cut(n_clusters: int) -> None:
    rows, _ = make_blobs(300, 2, centers=5, cluster_std=2.0, random_state=1)
    graph = build_graph(rows.astype(np.float32), 8)
    free = find_partition(graph, n_clusters)
    preferred = np.full(300, -1)
    preferred[:n_clusters] = np.arange(n_clusters)
    prices = Prices(preferred, np.full(300, np.inf))
    problem = Problem.of(as_coarse(graph), n_clusters, free.balance_weight, prices)
    limits = Limits(300 // n_clusters, -(-300 // n_clusters))
    found = limit_sizes(problem, [free.labels, *free.starts], limits)
    assert found.labels[:n_clusters].tolist() == list(range(n_clusters))
    assert not limits.excess(np.bincount(found.labels)).any()
    random = np.arange(300) % n_clusters
    assert found.objective < 0.7 * problem.score(random).objective


def test_prices_of_moves_are_the_changes_of_the_objective() -> None:
    graph = as_coarse(reference.random_graph(25, 3, 0.3))
    apart = csr_array((np.full(4, 0.2), ([1, 9, 2, 8], [9, 1, 8, 2])), (25, 25))
    prices = Prices(np.arange(25) % 4 - 1, np.full(25, 0.1), apart=apart)
    problem = Problem.of(graph, 3, 1.0, prices)
    labels = np.arange(25) % 3
    now = problem.score(labels).objective
    for anywhere in (None, Needs(np.array([1, 0, 1]), np.array([0, 1, 1]))):
        moves = price_moves(problem, labels, cluster_sums(graph, labels, 3), anywhere)
        assert len(moves.row) > 20
        for row, after, change in zip(moves.row, moves.after, moves.change, strict=True):
            moved = labels.copy()
            moved[row] = after
            assert problem.score(moved).objective - now == pytest.approx(change, abs=1e-9)


def test_groups_of_rows_move_within_the_limits_and_lower_the_objective() -> None:
    problem = Problem.of(as_coarse(reference.random_graph(60, 4, 0.2)), 4, 0.5)
    labels, limits = np.arange(60) % 4, Limits(15, 15)
    before = problem.score(labels).objective
    for size, bound in ((1, 0.95 * before), (8, before)):
        rng = np.random.default_rng(0)
        found = _move_groups(keep_limits(problem, limits), labels, limits, size, rng)
        assert (np.bincount(found.labels) == 15).all()
        assert found.objective <= bound


def test_of_many_groups_those_with_the_cheapest_moves_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prcut.search.limits._MAX_GROUPS", 20)
    problem = Problem.of(as_coarse(reference.random_graph(60, 4, 0.2)), 4, 0.5)
    labels, limits = np.arange(60) % 4, Limits(14, 16)
    rng = np.random.default_rng(0)
    found = _move_groups(problem, labels, limits, 1, rng)
    assert found.objective < problem.score(labels).objective


def test_a_search_for_nearly_equal_clusters_finds_a_lower_objective() -> None:
    rows, _ = make_blobs([200, 60, 60, 40], 2, cluster_std=1.5, random_state=3)
    graph = build_graph(rows.astype(np.float32), 8)
    free = find_partition(graph, 4, balance_weight=0.1)
    problem, limits = Problem.of(as_coarse(graph), 4, 0.1), Limits(90, 90)
    weights = []

    def search(balance_weight: float, starts: list[np.ndarray]) -> Partition:
        weights.append(balance_weight)
        return find_partition(graph, 4, balance_weight=balance_weight, starts=starts)

    alone = limit_sizes(problem, [free.labels], limits)
    found = limit_sizes(problem, [free.labels], limits, search)
    assert (np.bincount(found.labels) == 90).all()
    assert found.objective <= alone.objective
    assert len(weights) > 1
    weights.clear()
    limit_sizes(problem, [found.labels], limits, search)
    assert not weights, "a start within the limits needs no search"
