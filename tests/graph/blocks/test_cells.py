import numpy as np
import pytest

from prcut.graph.blocks.cells import Packing, choose_unit, nearest_cells, train_centroids
from prcut.graph.neighbors import Metric

METRICS = pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])


def rows(n_samples: int = 3000) -> np.ndarray:
    found: np.ndarray = np.random.default_rng(0).standard_normal((n_samples, 4)).astype(np.float32)
    return found


@METRICS
def test_cells_are_ranked_by_distance(metric: Metric) -> None:
    centroids = train_centroids(rows(), 20, np.inf, metric, seed=0)
    assert centroids.shape == (20, 4)
    seen = rows(50)
    if metric != "euclidean":
        seen = seen / np.linalg.norm(seen, axis=1, keepdims=True)
    distance = ((seen[:, None] - centroids) ** 2).sum(2)
    found = nearest_cells(centroids, rows(50).astype(np.float16), 5, metric)
    ranked = np.take_along_axis(distance, found, 1)
    assert (np.diff(ranked) > -1e-2).all()  # half precision rounds the rows
    np.testing.assert_allclose(ranked, np.sort(distance)[:, :5], atol=1e-2)


def test_large_cells_are_split() -> None:
    crowded = np.concatenate([0.01 * rows(2700), 100 + rows(300)])
    plain = nearest_cells(
        train_centroids(crowded, 2, np.inf, "euclidean", 0), crowded, 1, "euclidean"
    )
    assert np.bincount(plain[:, 0]).max() == 2700
    centroids = train_centroids(crowded, 2, 400, "euclidean", seed=0)
    cell = nearest_cells(centroids, crowded, 1, "euclidean")[:, 0]
    assert np.bincount(cell).max() <= 400


@METRICS
def test_rows_travel_in_half_precision_relative_to_their_cell(metric: Metric) -> None:
    far = rows() + np.array([1e5, -300, 0, 7], np.float32)
    centroids = train_centroids(far, 20, np.inf, metric, seed=0)
    packing = Packing.of(centroids, choose_unit(far), metric, None)
    cells = nearest_cells(centroids, far, 1, metric)[:, 0]
    packed = packing.pack(far, cells)
    assert packed.dtype == np.float16
    mine = cells == 3
    found = packing.unpack([packed[mine][:5], packed[mine][5:]], 3)
    assert found.dtype == np.float32
    error = np.abs(found - far[mine])
    distance = np.abs(far[mine] - packing.origins[3])
    # float32 itself rounds 1e5 by .008
    assert (error <= distance / 2**11 + np.spacing(np.abs(far[mine]))).all()
    if metric == "euclidean":
        assert error.max() < 0.02


def test_columns_in_other_units_and_rows_far_off_are_packed() -> None:
    scales = (1e-6, 1.0, 1e12, 1.0)
    scaled = rows() * np.array(scales, np.float32)
    centroids = train_centroids(rows(), 20, np.inf, "euclidean", seed=0)
    packing = Packing.of(centroids, choose_unit(scaled), "euclidean", scales)
    far = np.float32([[0, 0, 0, 1e30]])
    packed = packing.pack(np.concatenate([scaled, far]), np.zeros(3001, np.int64))
    found = packing.unpack([packed], 0)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:-1] / scales, rows(), atol=5e-3)
    assert found[-1, 3] > 1e5  # no longer where it was, but still far off
    assert choose_unit(np.zeros((3, 2))).tolist() == [1.0, 1.0]
