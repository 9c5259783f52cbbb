"""Columns of vectors: lists of any kind, and small numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prcut.errors import InvalidInputError
from prcut.runtime.sources import open_source, read_all

ROWS = np.random.default_rng(0).integers(-100, 100, (9, 16)).astype(np.int8)


def column(rows: np.ndarray, form: str) -> pa.Array:
    if form == "fixed":
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    if form == "tensor":
        return pa.FixedShapeTensorArray.from_numpy_ndarray(rows)
    kinds = {"list": pa.list_, "large": pa.large_list}
    return pa.array(list(rows), kinds[form](pa.from_numpy_dtype(rows.dtype)))


def read(tmp_path: Path, values: pa.Array, name: str | None = None) -> np.ndarray:
    table = pa.table({"id": np.arange(len(values)), "v": values})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    source = open_source(tmp_path / "a.parquet", column=name)
    rows = read_all(source)
    assert rows.dtype == source.dtype
    np.testing.assert_array_equal(source.read(3, 8), rows[3:8])
    return rows


@pytest.mark.parametrize("form", ["fixed", "list", "large", "tensor"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "float32", "float64"])
def test_lists_are_found_and_read(tmp_path: Path, form: str, dtype: str) -> None:
    rows = read(tmp_path, column(ROWS.astype(dtype), form))
    np.testing.assert_array_equal(rows, ROWS.astype(dtype))
    assert rows.dtype == (np.float32 if dtype in ("float32", "float64") else np.float16)


@pytest.mark.parametrize(
    ("values", "name", "message"),
    [
        (pa.array([b"ab"] * 9), "v", "is binary, expected lists of floats, int8 or uint8"),
        (pa.array([[1, 2]] * 9), "v", "expected lists of floats, int8 or uint8"),
        (pa.array([b"ab"] * 9), None, "has no column of float lists"),
        (column(ROWS, "list"), "w", "has no column 'w'; it has id, v"),
    ],
)
def test_what_holds_no_vectors_is_refused(
    tmp_path: Path, values: Any, name: str | None, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read(tmp_path, values, name)


def test_float_lists_go_before_small_ones(tmp_path: Path) -> None:
    small, floats = column(ROWS, "list"), column(ROWS.astype(np.float32), "list")
    pq.write_table(pa.table({"tokens": small, "v": floats}), tmp_path / "a.parquet")
    assert open_source(tmp_path / "a.parquet").column == "v"  # type: ignore[attr-defined]
