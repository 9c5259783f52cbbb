"""Rows in memory: tensors, frames and Arrow streams give the array that they hold."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.runtime.sources import as_rows, open_source

ROWS = np.random.default_rng(0).integers(-9, 9, (12, 4)).astype(np.float32)
IDS = [f"id {row}" for row in range(len(ROWS))]


def arrow_table(rows: np.ndarray = ROWS) -> pa.Table:
    return pa.table({"id": IDS, "v": pa.array(list(rows))})


def pandas_frame(kind: str) -> Any:
    pd = pytest.importorskip("pandas")
    if kind == "lists":
        return pd.DataFrame({"id": IDS, "v": ROWS.tolist()})
    if kind == "arrow":
        return arrow_table().to_pandas(types_mapper=pd.ArrowDtype)
    return pd.DataFrame({"id": IDS, "v": list(ROWS)}, index=range(5, 5 + len(ROWS)))


@pytest.mark.parametrize("kind", ["arrays", "lists", "arrow"])
def test_pandas_columns_of_vectors(kind: str) -> None:
    frame = pandas_frame(kind)
    for given in (frame, frame[["v"]], frame["v"]):
        np.testing.assert_array_equal(as_rows(given), ROWS)


def test_polars_frames() -> None:
    pl = pytest.importorskip("polars")
    for kind in (pl.List(pl.Float32), pl.Array(pl.Float32, 4)):
        frame = pl.DataFrame({"id": IDS, "v": ROWS.tolist()}, schema_overrides={"v": kind})
        for given in (frame, frame.select("v"), frame["v"]):
            np.testing.assert_array_equal(as_rows(given), ROWS)
    numbers = pl.DataFrame(ROWS)
    assert as_rows(numbers) is numbers


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint8])
def test_arrow_tables_and_readers(dtype: Any) -> None:
    table = arrow_table(np.abs(ROWS).astype(dtype))
    for given in (table, table.to_reader(5), pa.concat_tables([table[:3], table[3:]])):
        found = as_rows(given)
        np.testing.assert_array_equal(found, np.abs(ROWS))
        assert found.dtype == (dtype if np.dtype(dtype).kind == "f" else np.float16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16])
def test_tensors_of_training(dtype: torch.dtype) -> None:
    tensor = torch.from_numpy(ROWS).to(dtype).requires_grad_()
    np.testing.assert_array_equal(as_rows(tensor), ROWS)
    assert open_source(tensor).n_samples == len(ROWS)


def test_fit_and_predict_take_them_all() -> None:
    """The same labels as of the array, whatever holds the rows."""
    rows = np.repeat(np.eye(4, dtype=np.float32) * 8, 10, 0)
    rows += np.random.default_rng(0).integers(-8, 8, rows.shape) / 16  # exact in bfloat16
    model = PRCut(n_clusters=4, random_state=0)
    expected = model.fit(rows).labels_
    frame = pytest.importorskip("pandas").DataFrame({"v": list(rows)})
    table = pa.table({"id": range(40), "v": pa.array(list(rows))})
    for given in (frame, table, torch.tensor(rows).bfloat16().requires_grad_()):
        np.testing.assert_array_equal(model.fit_predict(given), expected)
        assert len(model.predict(given)) == 40


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pa.table({"a": [[1.0]], "b": [[2.0]]}), r"2 columns of float lists \(a, b\)"),
        (pa.table({"a": [[1.0], [1.0, 2.0]]}), "a list of 2 values in row 1"),
        (pa.table({"a": [["x"]]}), "has no column of float lists"),
    ],
)
def test_what_holds_no_vectors_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_rows(given)
