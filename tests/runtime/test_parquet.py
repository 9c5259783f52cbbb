import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.runtime import parquet
from prcut.runtime.parquet import ParquetSource, encode_parquet
from prcut.runtime.sources import open_source, read_all

ROWS = np.random.default_rng(0).standard_normal((101, 5)).astype(np.float32)


def as_lists(rows: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def write(folder: Path, rows: np.ndarray, **columns: list[object]) -> Path:
    """Three files, row groups of 7."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(len(rows)), 3)):
        table = pa.table(
            {"x": as_lists(rows[part])}
            | {name: [values[i] for i in part] for name, values in columns.items()}
        )
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=7)
    return folder


@given(ranges=st.lists(st.tuples(st.integers(0, 101), st.integers(0, 101)), max_size=8))
@settings(max_examples=40, deadline=None)
def test_any_range_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, ranges: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "ranges"
    if not folder.exists():
        write(folder, ROWS, id=[f"é{i}" for i in range(101)])
    source = open_source(folder, id_column="id")
    for bounds in ranges:
        start, stop = min(bounds), max(bounds)
        np.testing.assert_array_equal(source.read(start, stop), ROWS[start:stop])
        if stop > start:
            ids = source.read_ids(start, stop)
            assert ids is not None
            assert ids.to_pylist() == [f"é{i}" for i in range(start, stop)]


def test_other_files_are_passed_over_and_single_files_and_filesystems_work(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", ROWS)
    for name in ("_SUCCESS.parquet", ".tmp.parquet", "readme.txt"):
        (folder / name).write_bytes(b"no")
    assert open_source(folder).n_samples == 101
    assert open_source(folder / "0.parquet").n_samples == 34
    remote = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert open_source("data", filesystem=remote).n_samples == 101
    assert open_source(f"file://{folder}").n_samples == 101


def test_two_list_columns_must_be_named(tmp_path: Path) -> None:
    table = pa.table({"a": as_lists(ROWS), "b": as_lists(ROWS), "n": range(101)})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InvalidInputError, match=r"has 2 columns of float lists \(a, b\); name one"):
        open_source(tmp_path / "t.parquet")
    one, other = (open_source(tmp_path / "t.parquet", column=name) for name in "ab")
    assert other.n_features == 5
    assert one.fingerprint != other.fingerprint
    with pytest.raises(InvalidInputError, match=r"no column 'c'; it has a, b, n"):
        open_source(tmp_path / "t.parquet", column="c")
    with pytest.raises(InvalidInputError, match=r"column 'n' of .* is int64, expected lists"):
        open_source(tmp_path / "t.parquet", column="n")
    with pytest.raises(InvalidInputError, match=r"no column 'id'"):
        open_source(tmp_path / "t.parquet", column="a", id_column="id")
    with pytest.raises(InvalidInputError, match=r"column 'b' of .*, expected integers or strings"):
        open_source(tmp_path / "t.parquet", column="a", id_column="b")


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            [[1.0, 2.0], [1.0]],
            "column 'x' holds a list of 1 values in row 1, expected n_features=2",
        ),
        ([[1.0, 2.0], None], "column 'x' has 1 null lists in rows 0..1"),
        ([[1.0, 2.0], [1.0, None]], "column 'x' has 1 null values in rows 0..1"),
        ([[1.0, 2.0], [1.0, float("nan")]], "NaN or infinity in 1 of the rows .* first is row 1"),
    ],
)
def test_wrong_lists_are_refused(tmp_path: Path, lists: list[object], message: str) -> None:
    pq.write_table(pa.table({"x": lists}), tmp_path / "t.parquet")
    source = open_source(tmp_path / "t.parquet")
    with pytest.raises(InvalidInputError, match=message):
        source.read(0, 2)


def test_values_of_any_column_are_read_at_given_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 3)  # several batches in a row group of 7
    folder = write(tmp_path / "data", ROWS, text=[f"row {i}" for i in range(101)])
    source = ParquetSource(str(folder), None, None, None)
    for rows in ([], [0], [100], [6, 7], [0, 5, 6, 33, 34, 35, 90, 100], list(range(101))):
        found = source.read_values("text", np.asarray(rows, np.int64))
        assert found == [f"row {row}" for row in rows]
    with pytest.raises(InvalidInputError, match="no column 'other'; it has x, text"):
        source.read_values("other", np.arange(3))


def test_a_source_that_reads_can_be_sent_to_another_process(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "data", ROWS))
    source.read(0, 10)
    sent = pickle.loads(pickle.dumps(source))  # noqa: S301
    np.testing.assert_array_equal(sent.read(10, 50), ROWS[10:50])
    np.testing.assert_array_equal(source.read(10, 50), ROWS[10:50])


LISTS = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32()))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"e": pa.array([1.0, 2.0]), "id": pa.array([1, 2])}, "expected lists of floats"),
        ({"e": LISTS, "id": pa.array([1.5, 2.5])}, "expected integers or strings"),
        ({"e": LISTS, "id": pa.array(["a", "b"])}, "make them the same"),
        ({"e": LISTS}, "has no column 'id'"),
    ],
)
def test_files_of_one_folder_must_be_of_one_kind(
    tmp_path: Path, columns: dict[str, pa.Array], message: str
) -> None:
    pq.write_table(pa.table({"e": LISTS, "id": [1, 2]}), tmp_path / "0.parquet")
    pq.write_table(pa.table(columns), tmp_path / "1.parquet")
    with pytest.raises(InvalidInputError, match=message):
        open_source(str(tmp_path), column="e", id_column="id")


def test_files_with_fewer_rows_than_they_say_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"e": LISTS}), tmp_path / "0.parquet")
    source = open_source(str(tmp_path))
    monkeypatch.setattr(source, "n_samples", 10**13)
    with pytest.raises(InvalidInputError, match="do not fit in memory"):
        read_all(source)
    monkeypatch.setattr(source, "n_samples", 3)
    with pytest.raises(CorruptFileError, match="hold fewer rows than they declare"):
        read_all(source)
    for n_rows, groups in ((3, [2]), (-1, [-1]), (2**62, [2**62])):
        with pytest.raises(CorruptFileError, match="it is altered or forged"):
            parquet._check_counts(n_rows, groups, 1000, "x")


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 20))
def test_streams_are_files(lengths: list[int], group_rows: int) -> None:
    schema = pa.schema([("a", pa.int64())])
    batches = [pa.record_batch({"a": pa.array(range(n), pa.int64())}, schema) for n in lengths]
    pieces = [*encode_parquet(schema, batches, group_rows)]
    file = pq.ParquetFile(io.BytesIO(b"".join(pieces)))
    assert file.read()["a"].to_pylist() == [value for n in lengths for value in range(n)]
    groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert all(group >= group_rows for group in groups[:-1])
    assert len(pieces) <= sum(lengths) // group_rows + 1
