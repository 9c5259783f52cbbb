"""Wide files, and files that are not Parquet."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prcut.errors import InvalidInputError
from prcut.runtime.parquet import match_columns, stack_columns
from prcut.runtime.sources import open_source, read_all

ROWS = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)


def write(path: Path, rows: np.ndarray = ROWS, **more: object) -> None:
    columns = {f"f{number}": rows[:, number] for number in range(rows.shape[1])}
    pq.write_table(pa.table({"id": range(len(rows)), **columns, **more}), path, row_group_size=20)


@pytest.mark.parametrize("pattern", ["f*", "f0,f1,f2", "f?", "f0, f[12]"])
def test_columns_of_numbers_are_the_features(tmp_path: Path, pattern: str) -> None:
    write(tmp_path / "wide.parquet")
    source = open_source(tmp_path / "wide.parquet", column=pattern, id_column="id")
    assert (source.n_samples, source.n_features, source.dtype) == (50, 3, np.float32)
    np.testing.assert_array_equal(read_all(source), ROWS)
    np.testing.assert_array_equal(source.read(15, 37), ROWS[15:37])
    ids = source.read_ids(3, 5)
    assert ids is not None
    assert ids.to_pylist() == [3, 4]


def test_files_may_have_their_columns_in_another_order(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    pq.write_table(table.select(["f2", "id", "f0", "f1"]), tmp_path / "b.parquet")
    source = open_source(tmp_path, column="f*")
    np.testing.assert_array_equal(read_all(source), np.concatenate([ROWS, ROWS]))
    pq.write_table(table.select(["f2", "f0"]), tmp_path / "c.parquet")
    with pytest.raises(InvalidInputError, match=r"c\.parquet has no column 'f1'"):
        open_source(tmp_path, column="f*")


def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    write(path, text=["a"] * 50)
    with pytest.raises(InvalidInputError, match=r"column='g\*' matches no column of .*id, f0"):
        open_source(path, column="g*")
    with pytest.raises(InvalidInputError, match=r"column 'text' of .* is string, expected numbers"):
        open_source(path, column="*")
    with pytest.raises(InvalidInputError, match=r"has no column of float lists; .* column='f\*'"):
        open_source(path)
    table = pq.read_table(path).set_column(1, "f0", pa.array([None, *ROWS[1:, 0].tolist()]))
    pq.write_table(table, path)
    with pytest.raises(InvalidInputError, match="holds NaN or infinity in 1 of the rows"):
        read_all(open_source(path, column="f*"))


@given(st.lists(st.text("ab*", min_size=1, max_size=3), min_size=1, max_size=5, unique=True))
@settings(max_examples=50)
def test_a_column_that_has_the_name_is_that_column(names: list[str]) -> None:
    schema = pa.schema([(name, pa.float32()) for name in names])
    for name in names:
        assert match_columns(schema, name, "x") == []
    assert match_columns(schema, "*,*", "x") == names or "*,*" in names
    assert len(stack_columns(pa.RecordBatch.from_pylist([], schema), names)) == 0


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_files_are_refused_with_the_line_that_converts_them(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    if kind == "csv":
        path.write_text("f0,f1\n1.5,2\n3,4\n")
    else:
        path.write_text('{"f0": 1.5, "f1": 2}\n{"f0": 3, "f1": 4}\n')
    with pytest.raises(InvalidInputError, match="is not Parquet; convert it once") as refused:
        open_source(path)
    found = re.search(r'python -c "(.+?)", then', str(refused.value))
    assert found is not None
    subprocess.run([sys.executable, "-c", found[1]], check=True)
    rows = read_all(open_source(tmp_path / "rows.parquet", column="f*"))
    np.testing.assert_array_equal(rows, [[1.5, 2], [3, 4]])
