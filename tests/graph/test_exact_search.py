import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from prcut.graph import exact_search
from prcut.graph.exact_search import drop_own, find_nearest, remeasure, search_exactly
from prcut.graph.rows import as_vectors
from reference import mixture


@pytest.mark.parametrize("metric", ["euclidean", "inner_product"])
def test_blocks_are_joined_to_the_search_of_all_rows(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = mixture(90)
    expected = find_nearest(features[[7, 80]], features, 12, metric == "inner_product")
    monkeypatch.setattr(exact_search, "_BLOCK_ROWS", 10)  # fewer than are asked for
    found = search_exactly(as_vectors(features, metric), np.array([7, 80]), 12)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)


def test_remeasured_duplicates_are_at_zero_and_come_first() -> None:
    features = np.array([[1e3, 0.1], [0.0, 0.0], [1e3, 0.1]], np.float32)
    for form in (features, features.astype(np.float64), csr_array(features)):
        vectors = as_vectors(form, "euclidean")
        distances, indices = remeasure(vectors, np.array([0]), np.array([[1, 2, -1, 0]]))
        assert indices.tolist() == [[2, 0, 1, -1]]
        assert distances[0, :2].tolist() == [0, 0]
        assert distances[0, 2:] == pytest.approx([1e6 + 0.01, np.inf])


@given(n_columns=st.integers(1, 400), n_found=st.integers(1, 20), largest=st.booleans())
@settings(max_examples=60, deadline=None)
def test_groups_select_what_topk_does(n_columns: int, n_found: int, largest: bool) -> None:
    n_found = min(n_found, n_columns)
    table = torch.rand(5, n_columns, generator=torch.Generator().manual_seed(n_columns))
    table[:, ::3] = table[:, :1].clone()  # ties
    values, columns = exact_search._select(table, n_found, largest)
    assert torch.equal(values, table.topk(n_found, dim=1, largest=largest).values)
    assert torch.equal(values, table.gather(1, columns))
    assert all(len(set(row.tolist())) == n_found for row in columns)


def test_the_own_number_is_dropped_or_else_the_last() -> None:
    indices = np.array([[0, 5, 6], [7, 1, 8], [5, 6, 9]])
    distances, others = drop_own(np.array([0, 1, 2]), indices / 10, indices)
    assert others.tolist() == [[5, 6], [7, 8], [5, 6]]
    assert distances.tolist() == [[0.5, 0.6], [0.7, 0.8], [0.5, 0.6]]
