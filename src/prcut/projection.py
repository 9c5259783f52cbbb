"""A map of the rows: two coordinates for each, close rows close together.

t-SNE places a few thousand rows, the anchors; every other row is put between its nearest anchors.
So a million rows take little longer than a few thousand, and rows that come later fit in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prcut.errors import InvalidInputError

__all__ = ["Projection", "learn_projection"]

# t-SNE of 2,000 rows takes some ten seconds of one core; later rounds change little
_ANCHORS, _ROUNDS = 2000, 600
# directions of largest variance that distances are taken in, as is usual before t-SNE
_DIRECTIONS = 32
_PERPLEXITY = 30.0
# anchors that a row is put between
_NEAREST = 3
# fewer rows than this have no neighbourhoods to keep
_FEWEST = 8


class Projection(NamedTuple):
    """Where rows go on the map.

    Attributes
    ----------
    origin : float32 array, shape (n_features,)
    directions : float32 array, shape (n_features, n_directions)
    anchors : float32 array, shape (n_anchors, n_directions)
    places : float32 array, shape (n_anchors, 2)
        The anchors on the map.
    spacing : float32 array, shape (n_anchors,)
        Distance on the map from an anchor to the nearest other.
    """

    origin: np.ndarray
    directions: np.ndarray
    anchors: np.ndarray
    places: np.ndarray
    spacing: np.ndarray

    def reduce(self, rows: np.ndarray) -> np.ndarray:
        """Rows in the directions of largest variance, float32, shape (n_samples, n_directions)."""
        reduced: np.ndarray = (np.asarray(rows, np.float32) - self.origin) @ self.directions
        return np.ascontiguousarray(reduced)

    def place(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Places of rows on the map, float32, shape (n_samples, 2)."""
        return self.place_reduced(self.reduce(rows), rng)

    def place_reduced(self, reduced: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """As :meth:`place`, of rows that were reduced already.

        A row goes to the mean of its nearest anchors, weighted by 1/distance², and a little
        aside: otherwise rows between the same two anchors would draw a line that is not there.
        """
        import faiss

        index = faiss.IndexFlatL2(self.anchors.shape[1])
        index.add(self.anchors)
        squares, nearest = index.search(reduced, min(_NEAREST, len(self.anchors)))
        # anchors stay where they are: FAISS's squares are exact to about this share of the norms
        tiny = 1e-6 * np.square(reduced).sum(1, keepdims=True) + np.finfo(np.float32).tiny
        share = 1 / np.maximum(squares, tiny)
        share /= share.sum(1, keepdims=True)
        places = np.einsum("nk,nkd->nd", share, self.places[nearest])
        aside = self.spacing[nearest[:, 0]] * (squares[:, 0] > tiny[:, 0])
        places += 0.5 * aside[:, None] * rng.standard_normal(places.shape)
        placed: np.ndarray = places.astype(np.float32)
        return placed


def learn_projection(sample: np.ndarray, *, n_anchors: int = _ANCHORS, seed: int = 0) -> Projection:
    """A map on which rows like those of ``sample`` can be placed.

    Parameters
    ----------
    sample : array, shape (n_samples, n_features)
    n_anchors : int
        Rows of the sample that t-SNE places.
    seed : int

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = np.repeat([[0.0] * 5, [9.0] * 5], 50, axis=0) + rng.normal(size=(100, 5))
    >>> places = learn_projection(rows).place(rows, rng)
    >>> places.shape
    (100, 2)
    """
    from sklearn.utils.extmath import randomized_svd

    sample = np.asarray(sample, np.float32)
    if sample.ndim != 2 or not len(sample):
        raise InvalidInputError(
            f"sample has shape {sample.shape}, expected (n_samples, n_features) with rows in it."
        )
    rng = np.random.default_rng(seed)
    origin = sample.mean(0)
    n_directions = min(_DIRECTIONS, *sample.shape)
    _, _, axes = randomized_svd(sample - origin, n_directions, random_state=seed)
    directions = np.ascontiguousarray(axes.T, np.float32)
    chosen = np.sort(rng.choice(len(sample), min(n_anchors, len(sample)), replace=False))
    anchors = np.ascontiguousarray((sample[chosen] - origin) @ directions)
    places = _places(anchors, int(rng.integers(2**31)))
    return Projection(origin, directions, anchors, places, _spacing(places))


def _places(anchors: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.manifold import TSNE

    flat = np.zeros((len(anchors), 2), np.float32)
    flat[:, : anchors.shape[1]] = anchors[:, :2]
    if len(anchors) < _FEWEST or not np.ptp(anchors, axis=0).any():
        return flat
    scale = flat[:, 0].std()
    start = 1e-4 * flat / (scale if scale > 0 else 1.0)
    perplexity = min(_PERPLEXITY, (len(anchors) - 1) / 3)
    options = {"random_state": seed, "max_iter": _ROUNDS, "n_jobs": 1}
    tsne = TSNE(perplexity=perplexity, init=start, **options)
    places: np.ndarray = tsne.fit_transform(anchors)
    return places.astype(np.float32)


def _spacing(places: np.ndarray) -> np.ndarray:
    """Distance from every place to the nearest other."""
    from scipy.spatial import cKDTree

    if len(places) < 2:
        return np.zeros(len(places), np.float32)
    distances, _ = cKDTree(places).query(places, k=2)
    spacing: np.ndarray = distances[:, 1].astype(np.float32)
    return spacing
