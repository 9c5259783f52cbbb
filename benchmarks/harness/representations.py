"""Representations of images and texts that need no encoder, to be ranked by their cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from benchmarks.harness.datasets import Dataset

from prcut.errors import InvalidInputError

__all__ = ["REPRESENTATIONS", "Representation", "represent"]

_N_COMPONENTS, _N_TOPICS = 50, 100
_SIDE = 8
_COLOUR_BINS, _GREY_BINS = 8, 32
_N_CELLS, _N_ORIENTATIONS = 4, 8
_CHUNK = 1000
_EPSILON = 1e-3


class Representation(NamedTuple):
    """A way to turn items into rows."""

    kind: str
    """``"images"`` or ``"texts"``."""
    compute: Callable[[Any], np.ndarray]


def represent(dataset: Dataset, name: str) -> np.ndarray:
    """Return the items of a data set as float32 rows (n_samples, n_features)."""
    kind, compute = REPRESENTATIONS[name]
    if dataset.kind != kind:
        raise InvalidInputError(
            f"representation={name!r} takes {kind}, {dataset.name} holds {dataset.kind}; "
            "choose another."
        )
    return np.ascontiguousarray(compute(dataset.items), np.float32)


# -- images --------------------------------------------------------------------------------------


def _principal_components(images: np.ndarray) -> np.ndarray:
    from sklearn.decomposition import PCA

    pixels = images.reshape(len(images), -1).astype(np.float32) / 255
    _check_rank(_N_COMPONENTS, *pixels.shape)
    components: np.ndarray = PCA(_N_COMPONENTS, random_state=0).fit_transform(pixels)
    return components


def _thumbnail(images: np.ndarray) -> np.ndarray:
    """Averages over 8 × 8 equal areas, whose borders may cut a pixel."""
    _, height, width, *_ = images.shape
    rows, columns = _area_means(height), _area_means(width)

    def shrink(chunk: np.ndarray) -> np.ndarray:
        shrunk = np.einsum("yh,nhwc,xw->nyxc", rows, _channels(chunk), columns, optimize=True)
        return np.reshape(shrunk, (len(chunk), -1))

    return _in_chunks(shrink, images)


def _area_means(size: int) -> np.ndarray:
    """Weights (8, size) that average over eighths of a line of pixels.

    >>> _area_means(12)[:2, :4].round(3)
    array([[0.667, 0.333, 0.   , 0.   ],
           [0.   , 0.333, 0.667, 0.   ]], dtype=float32)
    """
    starts = np.arange(_SIDE)[:, None] * (size / _SIDE)
    pixels = np.arange(size)[None]
    ends = np.minimum(starts + size / _SIDE, pixels + 1)
    overlap = np.maximum(ends - np.maximum(starts, pixels), 0)
    return np.asarray(overlap * (_SIDE / size), np.float32)


def _histogram(images: np.ndarray) -> np.ndarray:
    """Return the root of each bin's fraction of the pixels: distances are then Hellinger's."""
    is_colour = images.ndim == 4
    n_bins = _COLOUR_BINS**3 if is_colour else _GREY_BINS

    def count(chunk: np.ndarray) -> np.ndarray:
        if is_colour:
            red, green, blue = np.moveaxis(chunk.astype(np.intp) * _COLOUR_BINS // 256, -1, 0)
            bins = (red * _COLOUR_BINS + green) * _COLOUR_BINS + blue
        else:
            bins = chunk.astype(np.intp) * _GREY_BINS // 256
        flat = bins.reshape(len(chunk), -1)
        return np.asarray(np.sqrt(_count(flat, n_bins) / flat.shape[1]))

    return _in_chunks(count, images)


def _gradients(images: np.ndarray) -> np.ndarray:
    """Oriented gradients (Dalal and Triggs): 4 × 4 cells, 8 orientations, blocks of 2 × 2 cells."""
    return _in_chunks(lambda chunk: _normalise_blocks(_orientations(chunk)), images)


def _orientations(images: np.ndarray) -> np.ndarray:
    """Strength of the gradients per cell and orientation: (n_samples, 4, 4, 8)."""
    grey = _channels(images).mean(-1)
    n_samples, height, width = grey.shape
    down, right = np.gradient(grey, axis=(1, 2))
    # without a sign, so that dark on light is light on dark; bin 0 is centred on upright edges
    angle = np.arctan2(down, right) * (_N_ORIENTATIONS / np.pi)
    orientation = np.rint(angle).astype(np.intp) % _N_ORIENTATIONS
    row = np.arange(height) * _N_CELLS // height
    column = np.arange(width) * _N_CELLS // width
    cell = row[:, None] * _N_CELLS + column
    bins = (cell * _N_ORIENTATIONS + orientation).reshape(n_samples, -1)
    strength = np.hypot(down, right).reshape(n_samples, -1)
    found = _count(bins, _N_CELLS**2 * _N_ORIENTATIONS, strength)
    return found.reshape(n_samples, _N_CELLS, _N_CELLS, _N_ORIENTATIONS)


def _normalise_blocks(cells: np.ndarray) -> np.ndarray:
    """Scale every 2 × 2 neighbouring cells to unit length, against contrast and light."""
    blocks = np.stack(
        [
            cells[:, y : y + 2, x : x + 2].reshape(len(cells), -1)
            for y in range(_N_CELLS - 1)
            for x in range(_N_CELLS - 1)
        ],
        axis=1,
    )
    # the least length keeps a block without edges at zero
    length = np.sqrt((blocks**2).sum(-1, keepdims=True) + _EPSILON**2)
    return np.reshape(blocks / length, (len(cells), -1))


def _channels(images: np.ndarray) -> np.ndarray:
    """float32 in [0, 1], (n_samples, height, width, channels)."""
    scaled = images.astype(np.float32) / 255
    return scaled if scaled.ndim == 4 else scaled[..., None]


def _count(bins: np.ndarray, n_bins: int, weight: np.ndarray | None = None) -> np.ndarray:
    """Return a histogram (n_samples, n_bins) of every row of bins."""
    n_samples = len(bins)
    own = (np.arange(n_samples)[:, None] * n_bins + bins).ravel()
    weights = None if weight is None else weight.ravel()
    return np.bincount(own, weights, minlength=n_samples * n_bins).reshape(n_samples, n_bins)


def _in_chunks(compute: Callable[[np.ndarray], np.ndarray], images: np.ndarray) -> np.ndarray:
    """Apply a function to some images at a time: its intermediate arrays are larger than they."""
    parts = [
        compute(images[start : start + _CHUNK]).astype(np.float32)
        for start in range(0, len(images), _CHUNK)
    ]
    return np.concatenate(parts)


# -- texts ---------------------------------------------------------------------------------------


def _word_topics(texts: list[str]) -> np.ndarray:
    return _topics(texts, analyzer="word", ngram_range=(1, 2))


def _char_topics(texts: list[str]) -> np.ndarray:
    return _topics(texts, analyzer="char_wb", ngram_range=(2, 4))


def _topics(texts: list[str], **options: Any) -> np.ndarray:
    """Latent semantic analysis; rows of unit length, but for texts without any word."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    frequencies = TfidfVectorizer(**options).fit_transform(texts)
    _check_rank(_N_TOPICS, *frequencies.shape)
    topics = TruncatedSVD(_N_TOPICS, random_state=0).fit_transform(frequencies)
    rows: np.ndarray = normalize(topics)
    return rows


def _check_rank(needed: int, n_samples: int, n_features: int) -> None:
    if min(n_samples, n_features) < needed:
        raise InvalidInputError(
            f"{n_samples=} and {n_features=} must be >= {needed} to find so many components; "
            "take more rows."
        )


REPRESENTATIONS = {
    f"pca-{_N_COMPONENTS}": Representation("images", _principal_components),
    "thumbnail": Representation("images", _thumbnail),
    "histogram": Representation("images", _histogram),
    "gradients": Representation("images", _gradients),
    "tfidf-words": Representation("texts", _word_topics),
    "tfidf-chars": Representation("texts", _char_topics),
}
