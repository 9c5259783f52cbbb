"""Rows of features: dense or sparse, in memory or memory-mapped."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from prcut.numerics.sparse import from_scipy

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# rows of the sample that the features are measured on
MEASURED_ROWS = 2**16
# columns stand in units of their own where the variance is that of fewer than so many, and of less
# than this fraction of them all
_FEW_COLUMNS, _FEW_OF_ALL = 4, 0.5
# rank correlation of variances and places from which columns are main directions
_IN_ORDER = -0.9
# columns whose mean is so many times their deviation lose three of float32's seven digits
_FAR = 1e3


def column_scales(features: Any, seed: int = 0) -> np.ndarray | None:
    """Return the deviation of every column where a few of many hold nearly all the variance.

    Distances would be those of these columns alone, only because their units are smaller: cents
    beside years. None where columns can be compared as they are, for sparse rows, and for main
    directions, which come in the order of their variances: these say what they are worth.

    >>> rows = np.random.default_rng(0).normal(size=(100, 12))
    >>> column_scales(rows) is None, column_scales(rows * [1000, *[1] * 11]).round().astype(int)
    (True, array([970,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1,   1]))
    """
    sample = _sample(as_features(features), seed)
    if sample.layout == torch.sparse_csr:
        return None
    variance = sample.double().var(0, correction=0)
    # the inverse participation ratio: m where m columns have all the variance in equal parts
    n_columns = float(variance.sum() ** 2 / variance.square().sum().clamp_min(1e-300))
    if not 0 < n_columns < min(_FEW_COLUMNS, _FEW_OF_ALL * len(variance)):
        return None
    ranks = variance.argsort(stable=True).argsort()
    if np.corrcoef(np.arange(len(ranks)), ranks)[0, 1] <= _IN_ORDER:
        return None
    return np.asarray(torch.where(variance > 0, variance.sqrt(), 1.0).float())


def divide_columns(rows: Any, scales: Any) -> Any:
    """Return rows in the units of :func:`column_scales`; the same rows where there are none."""
    return rows if scales is None else np.asarray(rows) / np.asarray(scales, np.float32)


def far_origin(rows: Any, seed: int = 0) -> np.ndarray | None:
    """Return a float32 row near float64 rows that lie so far from 0 that float32 blurs them.

    None where float32 holds the rows, and for sparse rows. It is to be subtracted in float64:
    see :func:`subtract_origin`.

    >>> rows = np.random.default_rng(0).normal(size=(100, 2))
    >>> far_origin(rows) is None, far_origin(rows + 1e9)
    (True, array([1.e+09, 1.e+09], dtype=float32))
    """
    if not isinstance(rows, np.ndarray) or rows.dtype != np.float64:
        return None
    if len(rows) > MEASURED_ROWS:
        rows = np.random.default_rng(seed).choice(rows, MEASURED_ROWS, replace=False)
    mean, deviation = rows.mean(0), rows.std(0)
    # of columns that are constant but for the rounding of their mean, any value does
    varies = deviation > np.finfo(np.float64).eps * len(rows) * np.abs(mean)
    is_far = varies & (np.abs(mean) > _FAR * deviation)
    return mean.astype(np.float32) if is_far.any() else None


def subtract_origin(rows: Any, origin: np.ndarray | None) -> Any:
    """Return rows minus a :func:`far_origin`, in float64; the same rows where there is none."""
    return rows if origin is None else np.asarray(rows) - origin.astype(np.float64)


def measure_features(features: Any, seed: int = 0) -> tuple[Tensor, float]:
    """Measure the mean row and the root mean square deviation of a sample of the rows."""
    sample = _sample(as_features(features), seed)
    if sample.layout == torch.sparse_csr:
        # sums of columns and of squares need no dense copy
        origin = torch.zeros(sample.shape[1], dtype=torch.float64)
        origin.index_add_(0, sample.col_indices(), sample.values().double())
        origin /= sample.shape[0]
        square = sample.values().double().square().sum() / sample.numel() - origin.square().mean()
    else:
        origin = sample.mean(0, dtype=torch.float64)
        square = (sample - origin).square_().mean()
    scale = float(square.clamp_min(0).sqrt())
    # identical rows have no scale
    return origin.float(), scale if scale > 0 and np.isfinite(scale) else 1.0


def _sample(features: Tensor | csr_array, seed: int) -> Tensor:
    n_samples = features.shape[0]
    rows: Tensor | slice = slice(None)
    if n_samples > MEASURED_ROWS:
        drawn = np.random.default_rng(seed).choice(n_samples, MEASURED_ROWS, replace=False)
        rows = torch.from_numpy(np.sort(drawn))
    return gather_rows(features, rows)


def as_features(features: Any) -> Tensor | csr_array:
    """Convert features to a tensor or to CSR, without a copy where the dtype allows it."""
    if isinstance(features, Tensor):
        return features
    if hasattr(features, "tocsr"):
        from scipy.sparse import csr_array

        return csr_array(features)
    array = np.asarray(features)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or not array.dtype.isnative:
        array = array.astype(np.float32)
    if min(array.strides, default=0) < 0:  # torch has no negative strides
        array = array.copy()
    return shared_tensor(array)


def shared_tensor(array: np.ndarray) -> Tensor:
    """Make a tensor over the memory of an array or a read-only map; it must only be read."""
    with warnings.catch_warnings():
        # torch warns that it could write to a read-only map
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def gather_rows(features: Tensor | csr_array, rows: Tensor | slice) -> Tensor:
    """Return some rows as a float32 tensor, sparse CSR if the features are sparse."""
    if isinstance(features, Tensor):
        gathered = features[rows] if isinstance(rows, slice) else features.index_select(0, rows)
        return gathered.float()
    sparse = features[rows if isinstance(rows, slice) else rows.numpy()]
    return from_scipy(sparse.astype(np.float32))


def as_rows(features: Any) -> np.ndarray | csr_array:
    """Convert features to an array, or to a ``csr_array`` without repeated entries."""
    from scipy.sparse import csr_array, issparse

    if not issparse(features):
        return np.asarray(features)
    rows = csr_array(features)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the caller's matrix must not change
        rows.sum_duplicates()
    return rows


def numbers_per_row(features: np.ndarray | csr_array) -> int:
    """Return how many numbers a row holds at most; a sparse row holds column numbers too."""
    if isinstance(features, np.ndarray):
        return int(features.shape[1])
    return max(1, 2 * int(np.diff(features.indptr).max(initial=0)))


def row_products(source: np.ndarray | csr_array, target: np.ndarray | csr_array) -> np.ndarray:
    """Compute the inner product of every row with the same row of ``target``, shape (n_rows,)."""
    if isinstance(source, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", source, target))
    return np.asarray(source.multiply(target).sum(1))
