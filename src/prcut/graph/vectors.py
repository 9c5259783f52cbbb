"""Rows as the neighbour search compares them: checked, float32, centred or of unit length."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prcut.errors import InvalidInputError
from prcut.graph.rows import numbers_per_row, row_products

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

    features: "np.ndarray | csr_array"
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

    def take(self, rows: slice | np.ndarray) -> "np.ndarray | csr_array":
        """Return rows as C-contiguous float32: a view, for a slice of rows that are so already."""
        taken = self.features[rows]
        if not isinstance(taken, np.ndarray):
            return self._convert_sparse(taken)
        if self.origin is not None:
            taken = taken - self.origin
        with np.errstate(over="ignore"):  # values beyond float32 are refused with a message
            taken = np.ascontiguousarray(taken, np.float32)
        if self.unit_length:
            length = np.sqrt(np.einsum("ij,ij->i", taken, taken))[:, None]
            taken = taken / np.where(length == 0, 1, length)
        return taken

    def _convert_sparse(self, taken: "csr_array") -> "csr_array":
        with np.errstate(over="ignore"):
            taken = taken.astype(self.sparse_dtype, copy=False)
        if not self.unit_length:
            return taken
        from sklearn.preprocessing import normalize

        return normalize(taken)

    def chunks(self, max_rows: int | None = None) -> Iterator[tuple[int, "np.ndarray | csr_array"]]:
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


def as_vectors(features: "np.ndarray | csr_array", metric: str) -> Vectors:
    """Check features and prepare them for a metric: see :func:`find_neighbors`."""
    if metric not in ("euclidean", "cosine", "inner_product"):
        raise InvalidInputError(f"{metric=} must be 'euclidean', 'cosine' or 'inner_product'.")
    _check_form(features)
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


def _check_form(features: "np.ndarray | csr_array") -> None:
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


def _spread(features: "np.ndarray | csr_array") -> float:
    """Return how far any number is from that of the first row; from 0 where rows are sparse."""
    chunks = (chunk for _, chunk in Vectors(features).chunks())
    if isinstance(features, np.ndarray):
        first = features[:1].astype(np.float32)
        chunks = (chunk - first for chunk in chunks)
    return max((float(abs(chunk).max()) for chunk in chunks), default=0.0)


def _check_values(features: "np.ndarray | csr_array") -> tuple[np.ndarray, float]:
    """Refuse rows that float32 cannot hold; return the mean row and the mean squared norm."""
    n_samples, n_features = features.shape
    column_sum, total = np.zeros(n_features), 0.0
    n_not_finite = n_too_large = 0
    largest = 0.0
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
    if largest < _MIN_SQUARED_NORM and (spread := _spread(features)) > 0:
        raise InvalidInputError(
            f"features differ by {spread:.1e} at most, so their distances vanish in float32; scale "
            "the features up."
        )
    return column_sum / max(n_samples, 1), total / max(n_samples, 1)
