import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_blobs
from sklearn.neighbors import kneighbors_graph

import reference
from prcut import SimilarityGraph
from prcut.fragments import choose_n_fragments, find_fragments


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
    fragments = find_fragments(blobs(), n_fragments, seed=0)
    check(fragments, 600, n_fragments)
    assert fragments.max() + 1 > 0.8 * n_fragments


def test_fragments_lie_within_components() -> None:
    graph = blobs()
    assert graph.n_components == 3
    fragments = find_fragments(graph, 40, seed=1)
    pairs = set(zip(fragments.tolist(), graph.components.tolist(), strict=True))
    assert len(pairs) <= 1.05 * (fragments.max() + 1)


def test_fragments_are_of_rows_that_are_linked() -> None:
    graph = blobs()
    fragments = torch.from_numpy(find_fragments(graph, 40, seed=1))
    source, target, weight = graph.edges
    within = weight[fragments[source] == fragments[target]].sum() / weight.sum()
    shuffled = fragments[torch.randperm(600, generator=torch.Generator().manual_seed(0))]
    by_chance = weight[shuffled[source] == shuffled[target]].sum() / weight.sum()
    assert within > 0.3 > 5 * by_chance


def test_same_seed_same_fragments() -> None:
    graph = blobs()
    one, two, other = (find_fragments(graph, 40, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("n_fragments", [12, 13, 1000])
def test_as_many_fragments_as_rows_are_the_rows(n_fragments: int) -> None:
    fragments = find_fragments(reference.random_graph(12), n_fragments, seed=0)
    np.testing.assert_array_equal(fragments, np.arange(12))


def test_graphs_without_edges_and_of_rows_that_are_all_alike() -> None:
    empty = SimilarityGraph.from_neighbors(np.full((60, 1), -1))
    check(find_fragments(empty, 20, seed=0), 60, 20)
    complete = SimilarityGraph.from_labels(np.zeros(60, np.int64))
    check(find_fragments(complete, 20, seed=0), 60, 20)


def test_seeds_of_64_bits() -> None:
    check(find_fragments(blobs(), 20, seed=2**40 + 1), 600, 20)


@given(n_samples=st.integers(1, 10**8), share=st.floats(0, 1))
def test_fragments_by_default_are_between_clusters_and_rows(n_samples: int, share: float) -> None:
    for n_clusters in {1, max(1, int(share * n_samples)), max(1, n_samples - 1), n_samples}:
        assert n_clusters <= choose_n_fragments(n_samples, n_clusters) <= n_samples


def test_fragments_by_default_of_all_small_sizes() -> None:
    for n_samples in range(1, 1200, 7):
        for n_clusters in range(1, n_samples + 1, 11):
            assert n_clusters <= choose_n_fragments(n_samples, n_clusters) <= n_samples


def test_fragments_by_default_stay_few_on_large_graphs() -> None:
    for n_clusters in (2, 10, 100, 1000, 2000):
        assert choose_n_fragments(10**8, n_clusters) <= 4096
