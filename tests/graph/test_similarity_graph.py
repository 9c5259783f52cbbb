import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import reference
from prcut import SimilarityGraph, build_graph
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.similarity_graph import load_graph, save_graph


def dense(similarity: SimilarityGraph) -> np.ndarray:
    array: np.ndarray = similarity.weight.to_dense().numpy()
    return array


def test_scipy_round_trip_in_64_bit_without_copies() -> None:
    matrix = reference.random_graph(30).to_scipy()
    similarity = SimilarityGraph.from_scipy(matrix)
    assert similarity.weight.crow_indices().dtype == torch.int64
    assert similarity.weight.col_indices().dtype == torch.int64
    back = similarity.to_scipy()
    assert (back != matrix).nnz == 0
    assert back.data.ctypes.data == similarity.weight.values().data_ptr()


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.coo_array, sparse.csc_matrix, np.array])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.float32, np.float64])
def test_any_matrix_and_real_dtype(make: type, dtype: type) -> None:
    path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype)
    similarity = SimilarityGraph.from_scipy(make(path))
    assert (dense(similarity) == path).all()
    expected = torch.float64 if dtype is np.float64 else torch.float32
    assert similarity.weight.dtype == expected


def test_diagonal_and_stored_zeros_are_dropped_and_indices_sorted() -> None:
    data, row, col = [5.0, 2.0, 2.0, 0.0, 0.0], [0, 0, 1, 0, 2], [0, 1, 0, 2, 0]
    similarity = SimilarityGraph.from_scipy(sparse.coo_array((data, (row, col)), shape=(3, 3)))
    assert similarity.n_edges == 1
    assert dense(similarity).tolist() == [[0, 2, 0], [2, 0, 0], [0, 0, 0]]


@given(n_samples=st.integers(2, 20), n_neighbors=st.integers(1, 5), seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_neighbors_are_linked_by_either_or_mean(
    n_samples: int, n_neighbors: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    neighbors = np.full((n_samples, n_neighbors), -1)
    for row in neighbors:
        count = rng.integers(0, min(n_neighbors, n_samples) + 1)
        row[:count] = rng.permutation(n_samples)[:count]  # may name itself, which is passed over
    similarity = rng.random((n_samples, n_neighbors))
    directed = np.zeros((n_samples, n_samples))
    for i, j in np.argwhere(neighbors >= 0):
        if neighbors[i, j] != i:
            directed[i, neighbors[i, j]] = similarity[i, j]
    either = SimilarityGraph.from_neighbors(neighbors, similarity)
    mean = SimilarityGraph.from_neighbors(neighbors, similarity, symmetrize="mean")
    binary = SimilarityGraph.from_neighbors(neighbors)
    np.testing.assert_allclose(dense(either), np.maximum(directed, directed.T))
    np.testing.assert_allclose(dense(mean), (directed + directed.T) / 2)
    np.testing.assert_array_equal(dense(binary), np.maximum(directed, directed.T) > 0)


def test_labels_link_their_class() -> None:
    labels = np.array([3, 7, 3, -1, 7, 3, -1, 9])
    similarity = SimilarityGraph.from_labels(labels)
    expected = (labels[:, None] == labels) & (labels != -1) & ~np.eye(8, dtype=bool)
    np.testing.assert_array_equal(dense(similarity), expected)


def test_labels_beyond_memory_are_refused_before_they_are_stored() -> None:
    with pytest.raises(ValueError, match=r"would store 10,000,000,000 entries, .* take fewer rows"):
        SimilarityGraph.from_labels(np.zeros(100_000, int))


def test_degree_components_and_repr() -> None:
    similarity = SimilarityGraph.from_neighbors([[1], [0], [3], [2], [-1]], [[2.0]] * 5)
    assert similarity.degree.tolist() == [2.0, 2.0, 2.0, 2.0, 0.0]
    assert similarity.components.tolist() == [0, 0, 1, 1, 2]
    assert repr(similarity) == "SimilarityGraph(n_samples=5, n_edges=2, n_components=3)"


def test_edges_are_listed_in_both_directions() -> None:
    similarity = reference.random_graph(12)
    source, target, weight = similarity.edges
    assert len(weight) == 2 * similarity.n_edges
    rebuilt = torch.zeros(12, 12, dtype=torch.float64)
    rebuilt[source, target] = weight
    assert torch.equal(rebuilt, similarity.weight.to_dense())


@pytest.mark.parametrize("scale", [1.0, 1e-20])
def test_only_rounding_may_break_the_symmetry(scale: float) -> None:
    rounded = scale * np.array([[0, 1.0], [1.0 + 1e-7, 0]])
    assert SimilarityGraph.from_scipy(rounded).n_edges == 1
    with pytest.raises(ValueError, match="is not symmetric"):
        SimilarityGraph.from_scipy(scale * np.array([[0, 1.0], [1.0 + 1e-4, 0]]))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\), expected \(n_samples, n_samples\)"),
        (np.array([[0, 1], [2, 0.0]]), r"not symmetric: \|W - W.T\| reaches 1; pass \(W"),
        (np.array([[0, 1], [0, 0.0]]), "not symmetric"),
        (np.array([[0, -1], [-1, 0.0]]), "contain -1, expected values >= 0"),
        (np.array([[0, np.nan], [np.nan, 0]]), "contain NaN or infinity"),
        ("text", "the similarity matrix of type str is not a matrix"),
        (np.array([[0, 1j], [1j, 0]]), "dtype complex128, expected real numbers"),
    ],
)
def test_wrong_similarities_are_refused(matrix: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimilarityGraph.from_scipy(matrix)


@pytest.mark.parametrize(
    ("neighbors", "options", "message"),
    [
        ([[1], [2]], {}, r"neighbors lie in \[1, 2\], expected -1 \(none\) or a row below"),
        ([[-2], [0]], {}, r"neighbors lie in \[-2, 0\]"),
        ([1, 0], {}, r"neighbors have shape \(2,\)"),
        ([[0.5], [1.0]], {}, "dtype float64, expected integers"),
        ([[1, 1], [0, -1]], {}, "neighbors repeat a row 1 times; replace the repeats by -1"),
        ([[1], [0]], {"similarity": [[1.0]]}, r"similarity has shape \(1, 1\), expected that"),
        ([[1], [0]], {"similarity": [[1.0], [np.inf]]}, "NaN or infinity"),
        ([[1], [-1]], {"similarity": [[-2.0], [0.0]]}, "contain -2, expected values >= 0"),
        ([[1], [0]], {"symmetrize": "max"}, "symmetrize='max' must be 'either' or 'mean'"),
    ],
)
def test_wrong_neighbors_are_refused(neighbors: list, options: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=message):
        SimilarityGraph.from_neighbors(neighbors, **options)


@pytest.mark.parametrize("labels", [np.zeros((2, 2), int), np.zeros(3)])
def test_wrong_labels_are_refused(labels: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected one integer per row"):
        SimilarityGraph.from_labels(labels)


def test_constructor_wants_csr() -> None:
    with pytest.raises(ValueError, match=r"expected torch.sparse_csr"):
        SimilarityGraph(torch.eye(3))


@pytest.fixture
def graph() -> SimilarityGraph:
    return build_graph(np.random.default_rng(0).normal(size=(200, 3)), 10)


def test_a_graph_comes_back_mapped(tmp_path: Path, graph: SimilarityGraph) -> None:
    save_graph(tmp_path, graph, {"key": "abc"})
    loaded = load_graph(tmp_path)
    assert (loaded.weight.to_dense() == graph.weight.to_dense()).all()
    assert loaded.n_edges == graph.n_edges
    assert json.loads((tmp_path / "graph.json").read_text())["key"] == "abc"


def test_what_is_not_a_whole_graph_is_refused(tmp_path: Path, graph: SimilarityGraph) -> None:
    with pytest.raises(InvalidInputError, match="holds no finished graph"):
        load_graph(tmp_path)
    save_graph(tmp_path, graph)
    values = (tmp_path / "values.npy").read_bytes()
    (tmp_path / "values.npy").write_bytes(values[:-4])
    with pytest.raises(CorruptFileError, match=r"values.npy has .* bytes, its record says"):
        load_graph(tmp_path)
    (tmp_path / "values.npy").write_bytes(values[:-1] + b"\x00")
    with pytest.raises(CorruptFileError, match="does not match the checksum"):
        load_graph(tmp_path)
    save_graph(tmp_path, SimilarityGraph.from_neighbors([[1], [0]]))
    record = json.loads((tmp_path / "graph.json").read_text())
    for change, error, message in (
        ({"format": 9}, InvalidInputError, "format 9, this version reads up to 1; upgrade"),
        ({"format": None}, CorruptFileError, "graph.json is altered or forged"),
        ({"n_samples": 7}, CorruptFileError, "do not form a graph"),
    ):
        (tmp_path / "graph.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(error, match=message):
            load_graph(tmp_path)
