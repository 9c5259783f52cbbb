"""Planted shapes and long tails; every set is drawn from a seed of its own and never changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from benchmarks.harness.contest.sources import Rows

__all__ = ["PLANTED"]


def _draw_blobs(
    sizes: np.ndarray, n_features: int, spread: float, scales: np.ndarray | None = None
) -> Rows:
    """Draw round Gaussians whose centres are Gaussian too, ``spread`` times as wide."""
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=spread, size=(len(sizes), n_features))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    noise = rng.normal(size=(len(labels), n_features))
    if scales is not None:
        noise *= scales[labels, None]
    return centres[labels] + noise, labels


def _draw_stretched() -> Rows:
    """Draw five Gaussians, each stretched by a matrix of its own."""
    rows, labels = _draw_blobs(np.full(5, 600), 8, 5.0)
    rng = np.random.default_rng(1)
    shapes = rng.normal(scale=0.6, size=(5, 8, 8))
    stretched = [rows[labels == one] @ (np.eye(8) + shapes[one]) for one in range(5)]
    return np.concatenate(stretched), labels


def _draw_noisy_columns() -> Rows:
    """Draw ten blobs in 6 columns beside 24 columns of noise."""
    rows, labels = _draw_blobs(np.full(10, 400), 6, 3.0)
    noise = np.random.default_rng(1).normal(size=(len(rows), 24))
    return np.hstack([rows, noise]), labels


def _draw_moons() -> Rows:
    from sklearn.datasets import make_moons

    rows, labels = make_moons(2000, noise=0.08, random_state=0)
    return rows, labels


def _draw_circles() -> Rows:
    from sklearn.datasets import make_circles

    rows, labels = make_circles(2000, noise=0.05, factor=0.5, random_state=0)
    return rows, labels


def _draw_spirals() -> Rows:
    """Draw three arms that wind once around the centre."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 700)
    along = rng.uniform(0.25, 1.0, len(labels))
    angle = 2 * np.pi * (along + labels / 3)
    rows = along[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return rows + rng.normal(scale=0.015, size=rows.shape), labels


def _draw_hubs() -> Rows:
    """Draw four dense cores, each in a wide halo of its own that touches the others'."""
    cores = _draw_blobs(np.full(4, 500), 4, 4.0, np.full(4, 0.5))
    halos = _draw_blobs(np.full(4, 500), 4, 4.0, np.full(4, 2.0))
    return np.concatenate([cores[0], halos[0]]), np.concatenate([cores[1], halos[1]])


_ZIPF = np.maximum(6000 // np.arange(1, 41), 40)
_FEW = np.array([4000, 1000, 400, 150, 60, 30])
PLANTED: dict[str, Callable[[], Rows]] = {
    "blobs": partial(_draw_blobs, np.full(20, 250), 16, 2.0),
    "blobs_unequal": partial(_draw_blobs, _FEW, 10, 2.5),
    "blobs_many": partial(_draw_blobs, np.full(100, 1000), 16, 2.0),
    "zipf": partial(_draw_blobs, _ZIPF, 32, 1.2),
    "variances": partial(_draw_blobs, np.full(8, 500), 10, 3.0, np.geomspace(0.5, 3.0, 8)),
    "stretched": _draw_stretched,
    "noisy_columns": _draw_noisy_columns,
    "moons": _draw_moons,
    "circles": _draw_circles,
    "spirals": _draw_spirals,
    "hubs": _draw_hubs,
}
