"""Coarse cells: centroids trained on a sample of rows, and the cells nearest to a row."""

import numpy as np

from prcut.neighbors import Metric

__all__ = ["nearest_cells", "train_centroids"]

_ITERATIONS = 10
_SPLITTING_ROUNDS = 5


def train_centroids(
    sample: np.ndarray, n_cells: int, limit: float, metric: Metric, seed: int
) -> np.ndarray:
    """K-means centroids, with cells that hold more than ``limit`` rows of the sample split.

    Parameters
    ----------
    sample : float array, shape (n_rows, n_features)
    n_cells : int
        Cells to begin with, at most ``n_rows``.

    Returns
    -------
    float32 array, shape (at least n_cells, n_features)
        A cell of copies of one row stays as large as it is.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [5.0], [6.0]])
    >>> np.sort(train_centroids(rows, 2, 3, "euclidean", seed=0).ravel()).tolist()
    [0.5, 5.5]
    """
    sample = _as_cells_see(sample, metric)
    centroids = _kmeans(sample, n_cells, seed)
    for _ in range(_SPLITTING_ROUNDS):
        cell = _nearest(centroids, sample, 1)[:, 0]
        count = np.bincount(cell, minlength=len(centroids))
        large = np.flatnonzero(count > limit)
        if not len(large):
            break
        parts = [np.delete(centroids, large, axis=0)]
        for number in large:
            # to the mean size, half of the limit
            n_parts = min(int(np.ceil(2 * count[number] / limit)), int(count[number]))
            parts.append(_kmeans(sample[cell == number], n_parts, seed))
        centroids = np.concatenate(parts)
    return centroids


def nearest_cells(
    centroids: np.ndarray, rows: np.ndarray, count: int, metric: Metric
) -> np.ndarray:
    """The ``count`` nearest cells of every row, nearest first, shape (n_rows, count)."""
    return _nearest(centroids, _as_cells_see(rows, metric), count)


def _as_cells_see(rows: np.ndarray, metric: Metric) -> np.ndarray:
    """Single precision, and only the direction for metrics that compare directions."""
    rows = np.ascontiguousarray(rows, np.float32)
    if metric != "euclidean":
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.where(length == 0, 1, length)
    return rows


def _kmeans(rows: np.ndarray, n_cells: int, seed: int) -> np.ndarray:
    import faiss

    if n_cells == 1:
        mean: np.ndarray = rows.mean(0, keepdims=True)
        return mean
    # FAISS prints a warning below 39 rows per centroid, which a caller can do nothing about
    kmeans = faiss.Kmeans(
        rows.shape[1], n_cells, niter=_ITERATIONS, seed=seed, min_points_per_centroid=1
    )
    kmeans.train(rows)
    return np.asarray(kmeans.centroids)


def _nearest(centroids: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    import faiss

    index = faiss.IndexFlatL2(centroids.shape[1])
    index.add(centroids)
    cells: np.ndarray = index.search(rows, count)[1]
    return cells
