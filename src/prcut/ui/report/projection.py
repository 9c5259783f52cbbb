"""A map of the rows: two coordinates each, similar rows close together.

t-SNE lays out a few thousand rows, the anchors; every other row is put between its nearest anchors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# rows laid out by t-SNE, in about ten seconds on one core
_ANCHORS = 2000
# more rounds of t-SNE change little
_ROUNDS = 600
# principal directions in which distances are measured, as is usual before t-SNE
_DIRECTIONS = 32
_PERPLEXITY = 30.0
# number of anchors that a row is put between
_NEAREST = 3
# t-SNE needs neighbourhoods, which fewer rows do not have
_FEWEST = 8


class Projection(NamedTuple):
    """A learned map, on which new rows can be placed."""

    origin: np.ndarray  # float32, shape (n_features,)
    directions: np.ndarray  # float32, shape (n_features, n_directions)
    anchors: np.ndarray  # float32, shape (n_anchors, n_directions)
    coords: np.ndarray  # of the anchors on the map, float32, shape (n_anchors, 2)
    spacing: np.ndarray  # to the nearest other anchor on the map, float32, shape (n_anchors,)

    def reduce(self, rows: np.ndarray) -> np.ndarray:
        """Project rows on the principal directions, float32, shape (n_samples, n_directions)."""
        reduced: np.ndarray = (np.asarray(rows, np.float32) - self.origin) @ self.directions
        return np.ascontiguousarray(reduced)

    def place(self, reduced: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Compute coordinates of rows that :meth:`reduce` has projected, shape (n_samples, 2).

        A row goes to the mean of its nearest anchors, weighted by 1/distance², plus a small random
        offset: without it, rows between the same two anchors would form a spurious line.
        """
        import faiss

        index = faiss.IndexFlatL2(self.anchors.shape[1])
        index.add(self.anchors)
        squares, nearest = index.search(reduced, min(_NEAREST, len(self.anchors)))
        # anchors must not move: FAISS's squares are exact to about this fraction of the norms
        tiny = 1e-6 * np.square(reduced).sum(1, keepdims=True) + np.finfo(np.float32).tiny
        weight = 1 / np.maximum(squares, tiny)
        weight /= weight.sum(1, keepdims=True)
        coords = np.einsum("nk,nkd->nd", weight, self.coords[nearest])
        offset = self.spacing[nearest[:, 0]] * (squares[:, 0] > tiny[:, 0])
        coords += 0.5 * offset[:, None] * rng.standard_normal(coords.shape)
        return np.asarray(coords, np.float32)


def learn_projection(sample: np.ndarray, *, seed: int = 0) -> Projection:
    """Learn a map from a sample of rows; other rows of their kind can be placed on it."""
    from scipy.spatial import cKDTree
    from sklearn.utils.extmath import randomized_svd

    sample = np.asarray(sample, np.float32)
    rng = np.random.default_rng(seed)
    origin = sample.mean(0)
    n_directions = min(_DIRECTIONS, *sample.shape)
    _, _, axes = randomized_svd(sample - origin, n_directions, random_state=seed)
    directions = np.ascontiguousarray(axes.T, np.float32)
    chosen = np.sort(rng.choice(len(sample), min(_ANCHORS, len(sample)), replace=False))
    anchors = np.ascontiguousarray((sample[chosen] - origin) @ directions)
    coords = _lay_out(anchors, int(rng.integers(2**31)))
    spacing = np.zeros(len(coords), np.float32)
    if len(coords) > 1:
        spacing[:] = cKDTree(coords).query(coords, k=2)[0][:, 1]
    return Projection(origin, directions, anchors, coords, spacing)


def _lay_out(anchors: np.ndarray, seed: int) -> np.ndarray:
    """Lay out the anchors by t-SNE; very few, or all the same, by their first directions."""
    from sklearn.manifold import TSNE

    flat = np.zeros((len(anchors), 2), np.float32)
    flat[:, : anchors.shape[1]] = anchors[:, :2]
    if len(anchors) < _FEWEST or not np.ptp(anchors, axis=0).any():
        return flat
    scale = flat[:, 0].std()
    start = 1e-4 * flat / (scale if scale > 0 else 1.0)
    perplexity = min(_PERPLEXITY, (len(anchors) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init=start, random_state=seed, max_iter=_ROUNDS, n_jobs=1)
    return np.asarray(tsne.fit_transform(anchors), np.float32)
