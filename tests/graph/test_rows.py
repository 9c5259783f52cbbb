from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse import csr_array, csr_matrix

from prcut.errors import InvalidInputError
from prcut.graph.neighbors import find_neighbors
from prcut.graph.rows import (
    RowIndex,
    Vectors,
    as_features,
    as_rows,
    as_vectors,
    column_scales,
    divide_columns,
    gather_rows,
    measure_features,
    numbers_per_row,
    row_keys,
    row_products,
    shared_tensor,
)
from reference import mixture

ROWS = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)


def memory_map(folder: Path) -> np.ndarray:
    np.save(folder / "rows.npy", ROWS)
    return np.load(folder / "rows.npy", mmap_mode="r")


def test_features_share_memory_where_they_can(tmp_path: Path) -> None:
    array = ROWS.copy()
    for features, base in ((array, array), (mapped := memory_map(tmp_path), mapped)):
        assert as_features(features).data_ptr() == base.ctypes.data
    tensor = torch.from_numpy(ROWS)
    assert as_features(tensor) is tensor


def test_rows_by_slice() -> None:
    for features in (ROWS, csr_array(ROWS)):
        part = gather_rows(as_features(features), slice(3, 9))
        np.testing.assert_array_equal(part.to_dense(), ROWS[3:9])


def test_origin_and_scale_of_dense_and_sparse_features() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(3, 2, (1000, 7)) * (rng.random((1000, 7)) < 0.3)
    origin, scale = measure_features(rows)
    np.testing.assert_allclose(origin, rows.mean(0), rtol=1e-5)
    assert scale == pytest.approx(np.sqrt(((rows - rows.mean(0)) ** 2).mean()), rel=1e-5)
    sparse_origin, sparse_scale = measure_features(csr_array(rows))
    torch.testing.assert_close(sparse_origin, origin)
    assert sparse_scale == pytest.approx(scale, rel=1e-5)
    assert measure_features(np.ones((5, 2)))[1] == 1.0  # rows that are all the same


def test_a_sample_is_enough_for_many_rows() -> None:
    rows = np.random.default_rng(0).normal(1, 2, (200_000, 2)).astype(np.float32)
    origin, scale = measure_features(rows)
    np.testing.assert_allclose(origin, 1, atol=0.05)
    assert scale == pytest.approx(2, rel=0.02)


def test_entries_in_disorder_are_summed_in_a_copy() -> None:
    data, columns = np.array([1.0, 2.0, 3.0, 0.0, 5.0]), np.array([2, 0, 2, 1, 1], np.int64)
    pointer = np.array([0, 3, 4, 5], np.int64)
    for kind in (csr_array, csr_matrix):
        sparse = kind((data, columns, pointer), shape=(3, 3))
        assert as_rows(sparse).toarray().tolist() == [[2, 0, 4], [0, 0, 0], [0, 5, 0]]
        assert find_neighbors(sparse, 2).distances.tolist() == [[20, 45], [20, 25], [25, 45]]
        assert data.tolist() == [1, 2, 3, 0, 5]
        assert sparse.indices.tolist() == [2, 0, 2, 1, 1]


def test_a_read_only_map_is_shared_without_a_warning(tmp_path: Path) -> None:
    mapped = memory_map(tmp_path)
    assert shared_tensor(mapped).data_ptr() == mapped.ctypes.data


def test_products_of_rows_dense_and_sparse() -> None:
    expected = (ROWS * ROWS[::-1]).sum(1)
    np.testing.assert_allclose(row_products(ROWS, ROWS[::-1]), expected, rtol=1e-5, atol=1e-6)
    found = row_products(csr_array(ROWS), csr_array(ROWS[::-1]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_sparse_rows_hold_values_and_column_numbers() -> None:
    assert numbers_per_row(ROWS) == 5
    assert numbers_per_row(csr_array(np.array([[0, 1, 2], [0, 0, 3]]))) == 4
    assert numbers_per_row(csr_array((3, 7))) == 1


def mixed_units(n_features: int, dominating: int) -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(500, n_features))
    rows[:, :dominating] *= 1e4
    return rows


@pytest.mark.parametrize(
    ("n_features", "dominating"),
    # too few columns to tell units from shape, none that dominates, and many that do
    [(2, 1), (12, 0), (40, 5)],
)
def test_columns_of_like_variance_keep_their_units(n_features: int, dominating: int) -> None:
    assert column_scales(mixed_units(n_features, dominating)) is None


@pytest.mark.parametrize("dominating", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_beside_a_few_of_all_variance_get_units_of_their_own(
    dominating: int, dtype: type
) -> None:
    rows = np.hstack([mixed_units(29, dominating), np.ones((500, 1))]).astype(dtype)
    rows[:, 1] *= 0.5  # two of one variance would count as two
    scales = column_scales(rows)
    assert scales is not None
    assert scales[-1] == 1  # constant
    divided = divide_columns(rows, scales)
    assert divided.dtype == dtype
    np.testing.assert_allclose(divided[:, :-1].std(0), 1, rtol=1e-5)


def test_main_directions_keep_their_units() -> None:
    directions = mixed_units(12, 0) * 10.0 ** -np.arange(12)
    assert column_scales(directions) is None
    assert column_scales(directions[:, ::-1]) is not None


def test_sparse_rows_and_constant_rows_keep_their_units() -> None:
    assert column_scales(csr_array(mixed_units(12, 1))) is None
    assert column_scales(np.ones((5, 20))) is None


def test_float32_is_read_in_place_and_strides_are_followed() -> None:
    features = mixture(100)
    assert np.shares_memory(Vectors(features).take(slice(10, 20)), features)
    wide = np.zeros((100, 32), np.float32)
    wide[:, ::2] = features
    for view in (wide[:, ::2], np.asfortranarray(features)):
        found = find_neighbors(view, 5)
        np.testing.assert_array_equal(found.indices, find_neighbors(features, 5).indices)


def test_only_rows_far_from_zero_are_moved_there() -> None:
    features = mixture(50)
    assert as_vectors(features, "euclidean").origin is None
    far = as_vectors(features + 1000, "euclidean")
    np.testing.assert_allclose(far.origin, (features + 1000).mean(0), rtol=1e-5)
    assert abs(far.take(slice(None)).mean(0)).max() < 1e-2
    sparse = as_vectors(scipy.sparse.csr_array(features + 1000), "euclidean")
    assert sparse.origin is None  # or it would be dense
    assert sparse.take(slice(None)).dtype == np.float64


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_cosine_takes_rows_of_length_one_and_of_zeros(form: type) -> None:
    vectors = as_vectors(form(np.array([[3.0, 4.0], [0.0, 0.0]])), "cosine")
    taken = vectors.take(slice(None))
    dense = taken if isinstance(taken, np.ndarray) else taken.toarray()
    np.testing.assert_allclose(dense, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)
    assert vectors.by_product


def test_chunks_cover_all_rows_once() -> None:
    features = mixture(50)
    starts, chunks = zip(*Vectors(features).chunks(max_rows=16), strict=True)
    assert starts == (0, 16, 32, 48)
    np.testing.assert_array_equal(np.concatenate(chunks), features)


def test_unknown_metrics_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="metric='manhattan' must be 'euclidean', 'cosine'"):
        as_vectors(mixture(5), "manhattan")


def test_equal_rows_are_found_whatever_holds_them() -> None:
    rows = np.random.default_rng(0).integers(0, 4, (3000, 12)).astype(np.float32)
    index = RowIndex.of(row_keys(rows))
    for kind in (rows, rows.astype(np.float64), csr_array(rows), np.asfortranarray(rows)):
        np.testing.assert_array_equal(rows[index.find(kind)], rows)
    np.testing.assert_array_equal(index.in_order(), row_keys(rows))
    assert (index.find(rows + 0.5) == -1).all()


def test_different_rows_have_different_keys() -> None:
    # whole numbers, whose bits end in zeros, in the same columns and exchanged
    rows = np.stack(np.meshgrid(*[np.arange(40.0)] * 3), -1).reshape(-1, 3)
    assert len(np.unique(row_keys(rows))) == len(rows)
    assert len(np.unique(row_keys(1e9 + rows))) == len(rows)
