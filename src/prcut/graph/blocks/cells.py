"""Coarse cells: centroids of a sample of rows, the cells nearest to a row, and rows as they travel.

Rows travel to their cells in half precision, relative to the centroid: what distinguishes them from
their neighbours is rounded by a two-thousandth, however far from the origin they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from prcut.graph.neighbors import Metric

_ITERATIONS = 10
_SPLITTING_ROUNDS = 5


def train_centroids(
    sample: np.ndarray, n_cells: int, limit: float, metric: Metric, seed: int
) -> np.ndarray:
    """Train k-means centroids, and split cells that hold more than ``limit`` rows of the sample.

    There are at least ``n_cells``. One of copies of one row cannot be split and stays as it is.
    """
    sample = _prepare(sample, metric)
    centroids = _kmeans(sample, n_cells, seed)
    for _ in range(_SPLITTING_ROUNDS):
        cell = _nearest(centroids, sample, 1)[:, 0]
        count = np.bincount(cell, minlength=len(centroids))
        large = np.flatnonzero(count > limit)
        if not len(large):
            break
        all_centroids = [np.delete(centroids, large, axis=0)]
        for number in large:
            # to the mean size, half of the limit
            n_split = min(int(np.ceil(2 * count[number] / limit)), int(count[number]))
            all_centroids.append(_kmeans(sample[cell == number], n_split, seed))
        centroids = np.concatenate(all_centroids)
    return centroids


def nearest_cells(
    centroids: np.ndarray, rows: np.ndarray, count: int, metric: Metric
) -> np.ndarray:
    """Find the ``count`` nearest cells of every row, nearest first, shape (n_rows, count)."""
    return _nearest(centroids, _prepare(rows, metric), count)


def choose_unit(sample: np.ndarray) -> np.ndarray:
    """Return what columns are divided by before they are packed: half precision ends at 65,504."""
    unit: np.ndarray = np.abs(sample.astype(np.float32)).max(0)
    unit[unit == 0] = 1
    return unit


class Packing(NamedTuple):
    """How rows travel to their cells."""

    origins: np.ndarray
    unit: np.ndarray

    @classmethod
    def of(
        cls,
        centroids: np.ndarray,
        unit: np.ndarray,
        metric: Metric,
        scales: tuple[float, ...] | None,
    ) -> Packing:
        """Pack relative to the centroids, which other metrics have as directions only."""
        if metric != "euclidean":
            centroids = np.zeros_like(centroids)
        return cls(centroids * np.asarray(1 if scales is None else scales, np.float32), unit)

    def pack(self, rows: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Return rows relative to their cells, those too far off at the end of the range."""
        most = np.finfo(np.float16).max
        packed: np.ndarray = (rows.astype(np.float32) - self.origins[cells]) / self.unit
        return packed.clip(-most, most).astype(np.float16)

    def unpack(self, pieces: Sequence[np.ndarray], cell: int) -> np.ndarray:
        """Join rows of one cell and return them as they came, but for what was rounded."""
        rows = np.concatenate(pieces, dtype=np.float32)
        rows *= self.unit
        rows += self.origins[cell]
        return rows


def _prepare(rows: np.ndarray, metric: Metric) -> np.ndarray:
    """Convert rows to single precision, and to unit length where the metric compares directions."""
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

    cells: np.ndarray = faiss.knn(rows, centroids, count)[1]
    return cells
