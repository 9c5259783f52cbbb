"""Outliers: rows far from their cluster, or between clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import ndimage
from scipy.sparse import csr_array

from prcut.graph.neighbors import find_nearest
from prcut.graph.rows import as_rows, divide_columns, row_products

if TYPE_CHECKING:
    from prcut.fit.config import FitConfig

# rows of the fit that later rows are compared with, at most, and the nearest of them that count
MAX_EXEMPLARS = 10_000
_N_NEAR = 10
_BLOCK_ROWS = 1024
# arrays of sparse rows
_SPARSE = ("data", "indices", "indptr")
# labels of clusters are smaller
_MAX_LABEL = 2**31


class OutlierScores(NamedTuple):
    """How far rows are from being usual in their clusters.

    Attributes
    ----------
    stray : float64 array, shape (n_samples,)
        Logarithm of a row's distance to its nearest exemplars over what is usual in its cluster.
    between : float64 array, shape (n_samples,)
        Fraction of walks of two steps along nearest exemplars that leave the cluster.
    p_value : float64 array, shape (n_samples,)
        At most a fraction α of rows like those of the fit have a p-value of α or below.
    """

    stray: np.ndarray
    between: np.ndarray
    p_value: np.ndarray


class Exemplars(NamedTuple):
    """Rows of a fit, with their clusters, that other rows are compared with.

    A random half is the *reference*: rows are scored by their nearest rows of it. The other half is
    as new to the reference as later rows are, so its scores show how unusual a score is.

    Attributes
    ----------
    rows : float32 array or CSR array, shape (n_exemplars, n_features)
        Scaled to length 1 for the cosine metric.
    labels : int64 array, shape (n_exemplars,)
    near : int64 array, shape (n_exemplars, n_near)
        The nearest other rows of the reference.
    radius : float32 array, shape (n_exemplars,)
        Mean distance to them.
    """

    rows: Any
    labels: np.ndarray
    near: np.ndarray
    radius: np.ndarray

    @classmethod
    def draw(cls, rows: Any, labels: np.ndarray, scales: Any, config: FitConfig) -> Exemplars:
        """Draw exemplars from the rows of a fit: all, or ten thousand."""
        rng, n_samples = np.random.default_rng([config.seed, 3]), rows.shape[0]
        drawn = rng.permutation(n_samples)[:MAX_EXEMPLARS]
        # copies, since the caller may change the rows later
        rows, labels = comparable(rows[drawn], scales, config.metric), labels[drawn]
        return cls(rows, labels, *_find_others(rows, rows[: _n_reference(len(labels))]))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return named arrays, from which :meth:`of_arrays` makes the exemplars again."""
        arrays = self._asdict()
        if not isinstance(rows := arrays.pop("rows"), np.ndarray):
            return arrays | {name: getattr(rows, name) for name in _SPARSE}
        return arrays | {"rows": rows}

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], n_features: int) -> Exemplars:
        """Make exemplars from named arrays, which a stranger may have written."""
        labels, near, radius = (arrays[name] for name in ("labels", "near", "radius"))
        n_rows = len(labels)
        if "rows" in arrays:
            rows: Any = np.ascontiguousarray(arrays["rows"], np.float32)
        else:
            parts = tuple(arrays[name] for name in _SPARSE)
            rows = csr_array(parts, shape=(n_rows, n_features))
            rows.check_format(full_check=True)
        shapes = rows.shape, labels.shape, near.shape[:1], radius.shape
        is_whole = labels.dtype == near.dtype == np.int64
        if shapes != ((n_rows, n_features), (n_rows,), (n_rows,), (n_rows,)) or not is_whole:
            raise ValueError(f"exemplars of shapes {shapes}")
        if n_rows < 2 or near.ndim != 2 or labels.min() < 0 or labels.max() >= _MAX_LABEL:
            raise ValueError("exemplars have no clusters")
        if near.size == 0 or near.min() < 0 or near.max() >= _n_reference(n_rows):
            raise ValueError("exemplars have neighbours that are none of them")
        return cls(rows, labels, near, radius)

    def score(self, rows: Any) -> OutlierScores:
        """Score comparable rows; a row of the reference is compared with the rest of it.

        The cluster of a row is that of most of its nearest exemplars, for rows of the fit and later
        rows alike. Each score is ranked among the scores of the exemplars outside the reference
        (split-conformal); the p-value is twice the smaller rank.
        """
        n_reference = _n_reference(len(self.labels))
        known = self._scores(self.near[n_reference:], self.radius[n_reference:])
        found = self._scores(*_find_others(rows, self.rows[:n_reference]))
        ranks = [_rank(*both) for both in zip(found, known, strict=True)]
        return OutlierScores(*found, np.minimum(1.0, 2 * np.minimum(*ranks)))

    def _scores(self, near: np.ndarray, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        stays = (self.labels[self.near] == self.labels[:, None]).mean(1)
        labels = self.labels[near]
        together = labels[:, :, None] == labels[:, None]
        shares = (together * stays[near, None]).mean(2)
        first, rows = shares.argmax(1), np.arange(len(near))
        stray = _log(radius) - _log(self._usual_radius())[labels[rows, first]]
        return stray, 1 - shares[rows, first]

    def _usual_radius(self) -> np.ndarray:
        """Return the median radius of every cluster, or that of all where it is smaller."""
        n_reference = _n_reference(len(self.labels))
        labels, radius = self.labels[:n_reference], self.radius[:n_reference]
        usual = np.ones(int(self.labels.max()) + 1, np.float32)
        used = np.unique(labels)
        usual[used] = ndimage.median(radius, labels, used)
        # outliers may form a cluster, whose radius is not usual
        limited: np.ndarray = np.minimum(usual, np.median(radius))
        return limited


def comparable(rows: Any, scales: Any, metric: str) -> Any:
    """Return rows in the units that neighbours were searched in, float32 or CSR."""
    from sklearn.preprocessing import normalize

    rows = as_rows(divide_columns(rows, scales)).astype(np.float32, copy=False)
    return normalize(rows) if metric == "cosine" else rows


class OutlierRule(NamedTuple):
    """Which rows are outliers: at most a fraction of rows like the exemplars."""

    exemplars: Exemplars
    fraction: float
    scales: Any
    metric: str

    def rejects(self, rows: Any) -> Any:
        """Return whether each row is an outlier."""
        compared = comparable(rows, self.scales, self.metric)
        return self.exemplars.score(compared).p_value <= self.fraction


def _n_reference(n_exemplars: int) -> int:
    """Return the size of the reference: half of the exemplars, and at least two."""
    return max(2, n_exemplars - n_exemplars // 2)


def _find_others(queries: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest rows that are not the query itself, and their mean distance."""
    n_near = min(_N_NEAR, rows.shape[0] - 1)
    near = np.empty((queries.shape[0], n_near), np.int64)
    radius = np.empty(queries.shape[0], np.float32)
    for start in range(0, queries.shape[0], _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        query = queries[block]
        squared, found = find_nearest(query, rows, n_near + 1, by_product=False)
        difference = query - rows[found[:, 0]]
        is_same = row_products(difference, difference) == 0
        first = np.where(is_same, 1, 0)[:, None] + np.arange(n_near)
        near[block] = np.take_along_axis(found, first, 1)
        nearest = np.take_along_axis(squared, first, 1)
        radius[block] = np.sqrt(np.maximum(nearest, 0)).mean(1)
    return near, radius


def _log(radius: np.ndarray) -> Any:
    return np.log(np.maximum(radius.astype(np.float64), np.finfo(np.float32).tiny))


def _rank(scores: np.ndarray, known: np.ndarray) -> Any:
    """Return the fraction of scores, the known ones and itself, that are as high."""
    n_higher = len(known) - np.searchsorted(np.sort(known), scores, "left")
    return (1 + n_higher) / (1 + len(known))
