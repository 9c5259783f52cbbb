"""Rows of data as the search for neighbours takes them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prcut.errors import InvalidInputError
from prcut.numerics.sparse import from_scipy

if TYPE_CHECKING:
    from scipy.sparse import csr_array

CHUNK_NUMBERS = 2**24
"""Numbers that are converted to float32 at a time (64 MB)."""

# rows of the sample that directions are found in, and rounds of finding them
_PROJECTION_ROWS, _PROJECTION_ROUNDS = 2048, 3
# largest squared norm: twice a sum of two of them bounds a squared distance in float32
_MAX_SQUARED_NORM = np.finfo(np.float32).max / 4
# below it squared distances lose their digits, and at last become 0
_MIN_SQUARED_NORM = np.finfo(np.float32).tiny / np.finfo(np.float32).eps


@dataclass(frozen=True)
class Vectors:
    """Rows as float32 arrays, or as ``csr_array`` where they are sparse, made in chunks."""

    features: np.ndarray | csr_array
    by_product: bool = False  # compared by inner product, not by distance
    unit_length: bool = False
    # subtracted: a product of matrices loses the distances of rows that all lie far from 0
    origin: np.ndarray | None = None
    # float64 for sparse rows far from 0, which a subtraction would make dense
    sparse_dtype: type = np.float32

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])

    @property
    def worst(self) -> float:
        """What stands for the distance, or product, of a neighbour that was not found."""
        return -np.inf if self.by_product else np.inf

    def take(self, rows: slice | np.ndarray) -> np.ndarray | csr_array:
        """Return rows as C-contiguous float32: a view, for a slice of rows that are so already."""
        taken = self.features[rows]
        if self.origin is not None:
            taken = taken - self.origin
        is_dense = isinstance(taken, np.ndarray)
        with np.errstate(over="ignore"):  # values beyond float32 are rejected with a message
            if is_dense:
                taken = np.ascontiguousarray(taken, np.float32)
            else:
                taken = taken.astype(self.sparse_dtype, copy=False)
        if not self.unit_length:
            return taken
        if is_dense:
            length = np.sqrt(row_products(taken, taken))[:, None]
            return taken / np.where(length == 0, 1, length)
        from sklearn.preprocessing import normalize

        return normalize(taken)

    def chunks(self, max_rows: int | None = None) -> Iterator[tuple[int, np.ndarray | csr_array]]:
        """Yield the first row number of each chunk, and the chunk."""
        step = max(1, CHUNK_NUMBERS // numbers_per_row(self.features))
        step = min(step, max_rows) if max_rows else step
        for start in range(0, self.n_samples, step):
            yield start, self.take(slice(start, start + step))


def project(vectors: Vectors, n_columns: int, rng: np.random.Generator) -> Vectors:
    """Project dense rows on the main directions of a sample, which keep most of every distance.

    Products are kept by the directions of largest second moment, distances by those of largest
    variance.
    """
    size = min(vectors.n_samples, _PROJECTION_ROWS)
    sample = vectors.take(np.sort(rng.choice(vectors.n_samples, size, replace=False)))
    if not vectors.by_product:
        sample = sample - sample.mean(0)
    # Halko, Martinsson and Tropp, Finding structure with randomness (2011)
    basis = rng.standard_normal((sample.shape[1], n_columns), np.float32)
    for _ in range(_PROJECTION_ROUNDS):
        basis = np.linalg.qr(sample.T @ (sample @ basis))[0]
    projected = np.empty((vectors.n_samples, n_columns), np.float32)
    for start, chunk in vectors.chunks():
        np.matmul(chunk, basis, out=projected[start : start + len(chunk)])
    return Vectors(projected, by_product=vectors.by_product)


def as_vectors(features: np.ndarray | csr_array, metric: str) -> Vectors:
    """Check features and prepare them for a metric: see :func:`find_neighbors`."""
    if metric not in ("euclidean", "cosine", "inner_product"):
        raise InvalidInputError(f"{metric=} must be 'euclidean', 'cosine' or 'inner_product'.")
    counts = not isinstance(features, np.ndarray) and features.dtype.kind in "biu"
    if not counts and features.dtype not in (np.float16, np.float32, np.float64):
        raise InvalidInputError(
            f"features have dtype {features.dtype}, expected float16, float32 or float64; "
            "use features.astype('float32')."
        )
    if features.ndim != 2 or features.shape[1] == 0:
        raise InvalidInputError(
            f"features have shape {features.shape}, expected (n_samples, n_features)."
        )
    mean, mean_square = _check_values(features)
    if metric != "euclidean":
        return Vectors(features, by_product=True, unit_length=metric == "cosine")
    offset = float(mean @ mean)
    # 100 costs two of float32's seven digits; embeddings lie far below and are read in place
    if offset <= 100 * max(mean_square - offset, 0.0):
        return Vectors(features)
    if not isinstance(features, np.ndarray):
        return Vectors(features, sparse_dtype=np.float64)
    dtype = np.float64 if features.dtype == np.float64 else np.float32
    return Vectors(features, origin=mean.astype(dtype))


def _check_values(features: np.ndarray | csr_array) -> tuple[np.ndarray, float]:
    """Reject rows that float32 cannot hold; return the mean row and the mean squared norm."""
    n_samples, n_features = features.shape
    column_sum, total, largest = np.zeros(n_features), 0.0, 0.0
    n_not_finite = n_too_large = 0
    for _, chunk in Vectors(features).chunks():
        squared_norm = row_products(chunk, chunk)
        wrong = ~(squared_norm <= _MAX_SQUARED_NORM)
        if wrong.any():
            double = chunk[wrong].astype(np.float64)  # where no square of a float32 is infinite
            finite = np.isfinite(row_products(double, double))
            n_not_finite += int((~finite).sum())
            n_too_large += int(finite.sum())
        column_sum += chunk.sum(0)
        total += float(squared_norm.sum(dtype=np.float64))
        largest = max(largest, float(squared_norm.max(initial=0)))
    if n_not_finite:
        raise InvalidInputError(
            f"features have NaN or infinity (in float32) in {n_not_finite} of {n_samples} rows; "
            "remove or replace them."
        )
    if n_too_large:
        raise InvalidInputError(
            f"features have a squared norm beyond {_MAX_SQUARED_NORM:.1e} in {n_too_large} of "
            f"{n_samples} rows, so their distances leave float32; scale the features down."
        )
    spread = 0.0
    if n_samples and largest < _MIN_SQUARED_NORM:
        is_dense = isinstance(features, np.ndarray)
        spread = float(np.ptp(features, 0).max() if is_dense else abs(features).max())
    if spread > 0:
        raise InvalidInputError(
            f"features differ by {spread:.1e} at most, so their distances vanish in float32; scale "
            "the features up."
        )
    return column_sum / max(n_samples, 1), total / max(n_samples, 1)


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
    """Return rows in the units of :func:`column_scales`; the same rows if ``scales`` is None."""
    return rows if scales is None else np.asarray(rows) / np.asarray(scales, np.float32)


def far_origin(rows: Any, seed: int = 0) -> np.ndarray | None:
    """Return a float32 row near float64 rows that lie so far from 0 that float32 blurs them.

    None where float32 holds the rows, and for sparse rows. See :func:`subtract_origin`.

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
    """Return rows minus a :func:`far_origin`, in float64; the same rows if it is None."""
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


# numbers that are hashed at a time: they stay in the cache
_CHUNK_NUMBERS = 2**18
# odd, with bits of either kind all over: spreads the bits of a number over the upper half
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class RowIndex(NamedTuple):
    """Where rows are, by a 64-bit hash of their values."""

    keys: np.ndarray  # ascending
    rows: np.ndarray  # the row of every key; equal rows in their order

    @classmethod
    def of(cls, keys: np.ndarray) -> RowIndex:
        """Return the index of rows that have these keys.

        >>> seen = np.array([[1.0, 0.0], [2.0, 5.0]])
        >>> RowIndex.of(row_keys(seen)).find(np.array([[2.0, 5.0], [5.0, 2.0], [1.0, -0.0]]))
        array([ 1, -1,  0])
        """
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], order)

    def find(self, rows: Any) -> np.ndarray:
        """Return the number of the first row of the same values; −1 where there is none."""
        wanted = row_keys(rows)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        found: np.ndarray = np.where(self.keys[at] == wanted, self.rows[at], -1)
        return found

    def in_order(self) -> np.ndarray:
        """Return the keys in the order of the rows."""
        keys = np.empty_like(self.keys)
        keys[self.rows] = self.keys
        return keys


def row_keys(rows: Any) -> np.ndarray:
    """Return a hash of every row, int64: the same for dense and sparse rows, of any precision.

    It is a sum over the columns to which zeros add nothing, so the key of a row of zeros is 0.
    """
    rows = as_rows(rows)
    n_samples, n_features = rows.shape
    factors = np.random.default_rng(0).integers(2**63, size=n_features, dtype=np.uint64) * 2 + 1
    if not isinstance(rows, np.ndarray):
        bits = type(rows)((_spread_bits(rows.data), rows.indices, rows.indptr), shape=rows.shape)
        sums: np.ndarray = bits @ factors
        return sums.view(np.int64)
    keys = np.empty(n_samples, np.uint64)
    step = max(1, _CHUNK_NUMBERS // n_features)
    for start in range(0, n_samples, step):
        part = slice(start, start + step)
        keys[part] = _spread_bits(rows[part]) @ factors
    return keys.view(np.int64)


def _spread_bits(values: np.ndarray) -> np.ndarray:
    # 0 is added since −0.0 and 0.0 are equal; a zero stays zero, as in a sparse row
    bits = (values.astype(np.float64) + 0.0).view(np.uint64) * _SPREAD
    spread: np.ndarray = bits ^ (bits >> np.uint64(32))
    return spread
