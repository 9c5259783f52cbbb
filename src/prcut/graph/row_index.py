"""Find rows that were seen before, by their values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prcut.graph.rows import as_rows

# numbers that are hashed at a time: they stay in the cache
_CHUNK_NUMBERS = 2**18
# odd, with bits of either kind all over: spreads the bits of a number over the upper half
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class RowIndex(NamedTuple):
    """Where rows are, by a 64-bit hash of their values.

    Attributes
    ----------
    keys : int64 array, shape (n_samples,)
        Ascending.
    rows : int64 array, shape (n_samples,)
        The row of every key; equal rows in their order.
    """

    keys: np.ndarray
    rows: np.ndarray

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
    """Return a hash of every row, int64: the same for dense and sparse rows, of any precision."""
    rows = as_rows(rows)
    n_samples, n_features = rows.shape
    factors = np.random.default_rng(0).integers(2**63, size=n_features, dtype=np.uint64) * 2 + 1
    keys = np.empty(n_samples, np.uint64)
    if isinstance(rows, np.ndarray):
        step = max(1, _CHUNK_NUMBERS // n_features)
        for start in range(0, n_samples, step):
            part = slice(start, start + step)
            keys[part] = _spread_bits(rows[part]) @ factors
    else:
        sums = np.cumsum(_spread_bits(rows.data) * factors[rows.indices])
        ends = np.concatenate([np.zeros(1, np.uint64), sums])[rows.indptr]
        keys[:] = ends[1:] - ends[:-1]
    return keys.view(np.int64)


def _spread_bits(values: np.ndarray) -> np.ndarray:
    # 0 is added since −0.0 and 0.0 are equal; a zero stays zero, as in a sparse row
    bits = (values.astype(np.float64) + 0.0).view(np.uint64) * _SPREAD
    spread: np.ndarray = bits ^ (bits >> np.uint64(32))
    return spread
