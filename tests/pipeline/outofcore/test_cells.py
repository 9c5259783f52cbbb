import numpy as np
import pytest

from prcut.graph.neighbors import Metric
from prcut.pipeline.outofcore.cells import nearest_cells, train_centroids

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


def test_copies_cannot_be_split_and_one_cell_is_the_mean() -> None:
    copies = np.ones((500, 4), np.float32)
    assert np.isfinite(train_centroids(copies, 2, 100, "euclidean", seed=0)).all()
    np.testing.assert_allclose(
        train_centroids(rows(), 1, np.inf, "euclidean", seed=0)[0], rows().mean(0), rtol=1e-4
    )


def test_rows_of_zeros_have_a_cell() -> None:
    data = np.concatenate([rows(100), np.zeros((3, 4), np.float32)])
    centroids = train_centroids(data, 4, np.inf, "cosine", seed=0)
    assert (nearest_cells(centroids, data, 2, "cosine") >= 0).all()


def test_same_seed_same_centroids() -> None:
    first, second, other = (train_centroids(rows(), 9, 500, "euclidean", s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)
