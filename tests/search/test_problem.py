"""A graph with weights of its rows: a row of weight 3 counts as three."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import reference
from prcut.search import kernels
from prcut.search.fragments import CoarseGraph, as_coarse
from prcut.search.prices import Prices
from prcut.search.problem import Problem, cluster_cost


@given(seed=st.integers(0, 10**6), n_clusters=st.integers(2, 4), balance=st.floats(0, 2))
@settings(max_examples=30, deadline=None)
def test_contracted_rows_cost_what_the_rows_cost(
    seed: int, n_clusters: int, balance: float
) -> None:
    graph = as_coarse(reference.random_graph(30, seed))
    rng = np.random.default_rng(seed)
    fragments = np.concatenate([np.arange(8), rng.integers(8, size=22)])
    labels = rng.permutation(np.arange(8) % n_clusters)
    whole = Problem.of(graph, n_clusters, balance)
    part = Problem(whole.contract(fragments), whole.cost)
    expected = whole.score(labels[fragments]).objective
    assert part.score(labels).objective == pytest.approx(expected, abs=1e-9)


def test_prices_join_the_objective() -> None:
    graph = as_coarse(reference.random_graph(12, 0))
    labels = np.arange(12) % 3
    plain = Problem.of(graph, 3, 1.0).score(labels).objective
    prices = Prices(np.zeros(12, np.int64), np.full(12, 0.5))
    assert Problem.of(graph, 3, 1.0, prices).score(labels).objective == pytest.approx(plain + 4.0)


def test_sizes_that_are_no_integers_have_no_table() -> None:
    links = csr_array(np.ones((2, 2)) - np.eye(2))
    whole = cluster_cost(CoarseGraph(links, np.array([1.0, 3.0])), 2, 1.0)
    parts = cluster_cost(CoarseGraph(links, np.array([1.5, 2.5])), 2, 1.0)
    assert whole == parts
    assert kernels._passed(whole).table is not None
    assert kernels._passed(parts).table is None
