import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs
from sklearn.neighbors import kneighbors_graph

import reference
from prcut import SimilarityGraph
from prcut.search.fragments import choose_n_fragments, contract, find_fragments, overlay


def fragment(graph: SimilarityGraph, n_fragments: int, *, seed: int) -> np.ndarray:
    return find_fragments(graph.to_scipy(), n_fragments, np.random.default_rng(seed))


def blobs(n_samples: int = 600) -> SimilarityGraph:
    """Three components of one blob each."""
    rows, _ = make_blobs(n_samples, 2, centers=[[0, 0], [50, 0], [0, 50]], random_state=0)
    matrix = kneighbors_graph(rows, 10)
    return SimilarityGraph.from_scipy(matrix.maximum(matrix.T))


def check(fragments: np.ndarray, n_samples: int, n_fragments: int) -> None:
    """One for every row, numbered without gaps, and no more than were asked for."""
    assert fragments.shape == (n_samples,)
    assert fragments.dtype == np.int64
    assert sorted(set(fragments.tolist())) == list(range(fragments.max() + 1))
    assert fragments.max() < n_fragments


@pytest.mark.parametrize("n_fragments", [1, 2, 30, 150, 599])
def test_fragments_cover_all_rows_without_gaps(n_fragments: int) -> None:
    fragments = fragment(blobs(), n_fragments, seed=0)
    check(fragments, 600, n_fragments)
    assert fragments.max() + 1 > 0.8 * n_fragments


def test_fragments_are_of_rows_that_are_linked() -> None:
    graph = blobs()
    fragments = torch.from_numpy(fragment(graph, 40, seed=1))
    source, target, weight = graph.edges
    within = weight[fragments[source] == fragments[target]].sum() / weight.sum()
    shuffled = fragments[torch.randperm(600, generator=torch.Generator().manual_seed(0))]
    by_chance = weight[shuffled[source] == shuffled[target]].sum() / weight.sum()
    assert within > 0.3 > 5 * by_chance


def test_same_seed_same_fragments() -> None:
    graph = blobs()
    one, two, other = (fragment(graph, 40, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("n_fragments", [12, 13, 1000])
def test_as_many_fragments_as_rows_are_the_rows(n_fragments: int) -> None:
    fragments = fragment(reference.random_graph(12), n_fragments, seed=0)
    np.testing.assert_array_equal(fragments, np.arange(12))


def test_graphs_without_edges_and_of_rows_that_are_all_alike() -> None:
    empty = SimilarityGraph.from_neighbors(np.full((60, 1), -1))
    check(fragment(empty, 20, seed=0), 60, 20)
    complete = SimilarityGraph.from_labels(np.zeros(60, np.int64))
    check(fragment(complete, 20, seed=0), 60, 20)


@given(n_samples=st.integers(1, 10**8), fraction=st.floats(0, 1))
def test_fragments_by_default_are_between_clusters_and_rows(
    n_samples: int, fraction: float
) -> None:
    for n_clusters in {1, max(1, int(fraction * n_samples)), max(1, n_samples - 1), n_samples}:
        assert n_clusters <= choose_n_fragments(n_samples, n_clusters) <= n_samples


def test_fragments_by_default_stay_few_on_large_graphs() -> None:
    for n_clusters in (2, 10, 100, 1000, 2000):
        assert choose_n_fragments(10**8, n_clusters) <= 4096


@given(
    n_samples=st.integers(1, 12),
    n_fragments=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([np.float32, np.float64]),
    index_dtype=st.sampled_from([np.int32, np.int64]),
)
@settings(max_examples=40, deadline=None)
def test_contracting_equals_loops(
    n_samples: int, n_fragments: int, seed: int, dtype: type, index_dtype: type
) -> None:
    n_fragments = min(n_fragments, n_samples)
    weight = reference.random_graph(n_samples, seed).to_scipy().astype(dtype)
    fragments = reference.full_labels(n_samples, n_fragments, seed).astype(index_dtype)
    links, sizes = np.zeros((n_fragments, n_fragments)), np.zeros(n_fragments)
    dense = weight.toarray().astype(np.float64)
    for i, j in itertools.product(range(n_samples), repeat=2):
        if fragments[i] != fragments[j]:
            links[fragments[i], fragments[j]] += dense[i, j]
    for fragment in fragments:
        sizes[fragment] += 1
    coarse = contract(weight, fragments)
    assert coarse.links.dtype == coarse.sizes.dtype == np.float64
    np.testing.assert_allclose(coarse.links.toarray(), links, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(coarse.sizes, sizes)


def test_sums_of_single_precision_weights_are_double() -> None:
    # 2**24 + 1 is the first integer that float32 has not
    matrix = np.zeros((4, 4), np.float32)
    matrix[0, 2] = matrix[2, 0] = 2**24
    matrix[1, 3] = matrix[3, 1] = 1
    links = contract(csr_array(matrix), np.array([0, 0, 1, 1])).links
    assert links[0, 1] == links[1, 0] == 2**24 + 1


def test_sizes_of_nodes_add_up() -> None:
    weight = reference.random_graph(6, seed=1).to_scipy()
    groups, sizes = np.array([0, 1, 1, 2, 0, 2]), np.arange(1.0, 7.0)
    assert contract(weight, groups).sizes.tolist() == [2, 2, 2]
    assert contract(weight, groups, sizes=sizes).sizes.tolist() == [6, 5, 10]


@given(
    n_samples=st.integers(1, 20),
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_overlay_is_the_coarsest_that_refines_all(
    n_samples: int, counts: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    partitions = [rng.integers(count, size=n_samples) for count in counts]
    fragments = overlay(*partitions)
    assert sorted(set(fragments.tolist())) == list(range(fragments.max() + 1))
    for i, j in itertools.combinations(range(n_samples), 2):
        together = all(labels[i] == labels[j] for labels in partitions)
        assert (fragments[i] == fragments[j]) == together


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_overlay_of_large_numbers_does_not_overflow(dtype: type) -> None:
    large = np.array([0, 2**31 - 2, 2**31 - 2, 0], dtype)
    small = np.array([0, 1, 0, 0], dtype)
    fragments = overlay(large, small, large, large)
    assert len(set(fragments.tolist())) == 3
    assert fragments[0] == fragments[3]
    assert fragments.dtype == np.int64
