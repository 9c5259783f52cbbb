import torch

import reference
from prcut import SimilarityGraph
from prcut.numerics.sparse import (
    connected_components,
    csr_tensor,
    degrees,
    entry_rows,
    for_many_products,
    to_scipy,
)


def test_entry_rows_are_those_of_the_stored_entries() -> None:
    weight = SimilarityGraph.from_neighbors([[-1], [2], [-1], [2], [-1]]).weight
    assert entry_rows(weight).tolist() == weight.to_sparse_coo().indices()[0].tolist()
    empty = SimilarityGraph.from_neighbors([[-1], [-1]]).weight
    assert entry_rows(empty).tolist() == []


def test_degrees_are_summed_in_float64() -> None:
    # 2**24 + 1 is the first integer that float32 has not
    weight = csr_tensor(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([2.0**24, 1.0]), 2)
    square = csr_tensor(torch.tensor([0, 2, 2]), weight.col_indices(), weight.values())
    assert degrees(square).tolist() == [2**24 + 1, 0]


def test_copies_for_products_and_for_scipy_are_the_same_matrix() -> None:
    weight = reference.random_graph(12, density=0.3).weight
    copy = for_many_products(weight.float())
    assert copy.col_indices().dtype == copy.crow_indices().dtype == torch.int32
    assert copy.dtype == torch.float64
    torch.testing.assert_close(copy.to_dense(), weight.to_dense(), rtol=1e-6, atol=0)
    array = to_scipy(weight)
    assert array.toarray().tolist() == weight.to_dense().tolist()
    assert array.data.ctypes.data == weight.values().data_ptr()


def test_components_are_numbered_from_zero() -> None:
    weight = SimilarityGraph.from_neighbors([[3], [4], [-1], [0], [1]]).weight
    assert connected_components(weight).tolist() == [0, 1, 2, 0, 1]
