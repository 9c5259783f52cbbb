"""Prices of rows: what they pay, and that fixed ones stay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import reference
from prcut.search.partition import find_partition, refine_labels
from prcut.search.prices import Prices, match_prices


def pairs_apart(n_samples: int, pairs: list[tuple[int, int]], price: float) -> csr_array:
    matrix = np.zeros((n_samples, n_samples))
    for one, other in pairs:
        matrix[one, other] = matrix[other, one] = price
    return csr_array(matrix)


@given(seed=st.integers(0, 10**6), n_clusters=st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_fragments_pay_what_their_rows_pay(seed: int, n_clusters: int) -> None:
    rng = np.random.default_rng(seed)
    prices = Prices(rng.integers(-1, n_clusters, 20), rng.random(20))
    fragments = np.concatenate([np.arange(6), rng.integers(6, size=14)])
    labels = rng.integers(n_clusters, size=6)
    paid = prices.of_fragments(fragments, n_clusters)
    assert paid is not None
    expected = prices.total(labels[fragments])
    assert paid[np.arange(6), labels].sum() == pytest.approx(expected)


def test_no_prices_are_paid_where_none_are_given() -> None:
    labels = np.array([0, 1, 1])
    assert Prices().of_fragments(labels, 2) is None
    assert Prices().total(labels) == 0
    assert Prices().fix(labels) is labels


def test_pairs_in_one_cluster_pay_once() -> None:
    prices = Prices(apart=pairs_apart(4, [(0, 1), (2, 3)], 0.5))
    assert prices.total(np.array([0, 0, 1, 2])) == 0.5
    assert prices.total(np.array([0, 0, 1, 1])) == 1.0


def test_clusters_are_renamed_so_that_least_is_paid() -> None:
    prices = Prices(np.array([2, 2, 0, 1]), np.ones(4))
    paid = prices.of_fragments(np.arange(4), 3)
    assert paid is not None
    assert match_prices(np.array([0, 0, 1, 2]), paid).tolist() == [2, 2, 0, 1]


@given(seed=st.integers(0, 10**6), n_clusters=st.integers(2, 4))
@settings(max_examples=10, deadline=None)
def test_fixed_rows_stay_through_the_whole_search(seed: int, n_clusters: int) -> None:
    graph = reference.random_graph(40, seed, density=0.2)
    rng = np.random.default_rng(seed)
    preferred = np.full(40, -1)
    fixed = rng.choice(40, 8, replace=False)
    preferred[fixed] = rng.integers(n_clusters, size=8)
    prices = Prices(preferred, np.full(40, np.inf))
    found = find_partition(graph, n_clusters, balance_weight=1.0, prices=prices)
    assert (found.labels[fixed] == preferred[fixed]).all()
    assert all((start[fixed] == preferred[fixed]).all() for start in found.starts)


def test_a_price_holds_a_row_until_the_cut_gains_more() -> None:
    graph = reference.random_graph(60, 1, density=0.2)
    free = find_partition(graph, 3, balance_weight=1.0).labels
    other = np.roll(free, 1)
    for price, kept in ((0.0, False), (10.0, True)):
        prices = Prices(other, np.full(60, price))
        refined = refine_labels(graph, free, 3, prices=prices)
        assert np.array_equal(refined, other) == kept


def test_pairs_are_kept_apart_where_the_price_is_high() -> None:
    graph = reference.random_graph(60, 2, density=0.2)
    labels = find_partition(graph, 3, balance_weight=1.0).labels
    same = np.flatnonzero(labels == labels[0])[:4]
    pairs = [(int(same[0]), int(same[1])), (int(same[2]), int(same[3]))]
    prices = Prices(apart=pairs_apart(60, pairs, 5.0))
    refined = refine_labels(graph, labels, 3, prices=prices)
    assert prices.total(labels) == 10.0
    assert prices.total(refined) == 0.0
