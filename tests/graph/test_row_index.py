import numpy as np
from scipy.sparse import csr_array

from prcut.graph.rows import RowIndex, row_keys


def test_equal_rows_are_found_whatever_holds_them() -> None:
    rows = np.random.default_rng(0).integers(0, 4, (3000, 12)).astype(np.float32)
    index = RowIndex.of(row_keys(rows))
    for kind in (rows, rows.astype(np.float64), csr_array(rows), np.asfortranarray(rows)):
        np.testing.assert_array_equal(rows[index.find(kind)], rows)
    np.testing.assert_array_equal(index.in_order(), row_keys(rows))
    assert (index.find(rows + 0.5) == -1).all()


def test_different_rows_have_different_keys() -> None:
    # whole numbers, whose bits end in zeros, in the same columns and exchanged
    rows = np.stack(np.meshgrid(*[np.arange(40.0)] * 3), -1).reshape(-1, 3)
    assert len(np.unique(row_keys(rows))) == len(rows)
    assert len(np.unique(row_keys(1e9 + rows))) == len(rows)
