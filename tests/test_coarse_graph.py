import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import reference
from prcut.coarse_graph import contract, overlay


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
    np.testing.assert_allclose(coarse.links, links, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(coarse.sizes, sizes)


def test_sums_of_single_precision_weights_are_double() -> None:
    # 2**24 + 1 is the first integer that float32 has not
    matrix = np.zeros((4, 4), np.float32)
    matrix[0, 2] = matrix[2, 0] = 2**24
    matrix[1, 3] = matrix[3, 1] = 1
    links = contract(csr_array(matrix), np.array([0, 0, 1, 1])).links
    assert links[0, 1] == links[1, 0] == 2**24 + 1


def test_rows_of_their_own_change_nothing_and_inputs_stay() -> None:
    weight = reference.random_graph(9).to_scipy()
    before = weight.toarray()
    coarse = contract(weight, np.arange(9))
    np.testing.assert_array_equal(coarse.links, before)
    coarse.links[:] = -1
    np.testing.assert_array_equal(weight.toarray(), before)


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
    pieces = overlay(*partitions)
    assert sorted(set(pieces.tolist())) == list(range(pieces.max() + 1))
    for i, j in itertools.combinations(range(n_samples), 2):
        together = all(labels[i] == labels[j] for labels in partitions)
        assert (pieces[i] == pieces[j]) == together


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_overlay_of_large_numbers_does_not_overflow(dtype: type) -> None:
    large = np.array([0, 2**31 - 2, 2**31 - 2, 0], dtype)
    small = np.array([0, 1, 0, 0], dtype)
    pieces = overlay(large, small, large, large)
    assert len(set(pieces.tolist())) == 3
    assert pieces[0] == pieces[3]
    assert pieces.dtype == np.int64
