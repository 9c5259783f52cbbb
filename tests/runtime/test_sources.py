from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prcut.errors import InvalidInputError
from prcut.runtime import sources
from prcut.runtime.sources import (
    ArraySource,
    cut_row_ranges,
    map_npy,
    open_source,
    read_all,
    sample_rows,
)

ROWS = np.random.default_rng(0).standard_normal((101, 5)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_arrays_and_mapped_files(tmp_path: Path, dtype: type) -> None:
    rows = ROWS.astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    for data in (rows, tmp_path / "rows.npy", str(tmp_path / "rows.npy")):
        source = open_source(data)
        np.testing.assert_array_equal(source.read(3, 9), rows[3:9].astype(source.dtype))
        assert source.read_ids(0, 1) is None


def test_wrong_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="data is a list, expected an array or the path"):
        open_source([[1.0]])
    with pytest.raises(InvalidInputError, match=r"shape \(3,\) and dtype float64, expected floats"):
        open_source(np.zeros(3))
    with pytest.raises(InvalidInputError, match="dtype int64"):
        open_source(np.zeros((3, 2), np.int64))
    with pytest.raises(InvalidInputError, match="nosuch://x is not a URI that pyarrow knows"):
        open_source("nosuch://x")
    with pytest.raises(InvalidInputError, match="does not exist"):
        open_source(tmp_path / "absent")
    with pytest.raises(InvalidInputError, match=r"holds no \.parquet file"):
        open_source(tmp_path)
    with pytest.raises(InvalidInputError, match=r"absent\.npy does not exist"):
        open_source(tmp_path / "absent.npy")
    (tmp_path / "bad.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(InvalidInputError, match=r"bad\.parquet cannot be read as Parquet"):
        open_source(tmp_path)


@pytest.mark.parametrize("group_rows", [7, 30, 50, 90, 1000])
@pytest.mark.parametrize("range_rows", [1, 10, 40, 64, 500])
def test_ranges_begin_where_groups_do_and_hold_every_row(
    tmp_path: Path, group_rows: int, range_rows: int
) -> None:
    for number, n_rows in enumerate((200, 130)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * n_rows, np.float32)), 2)
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"x": lists}), path, row_group_size=group_rows)
    source = open_source(tmp_path)
    cuts = cut_row_ranges(source, range_rows)
    assert (cuts[0], cuts[-1]) == (0, 330)
    sizes = np.diff(cuts)
    assert sizes.min() >= 1
    assert sizes.max() <= 2 * range_rows
    starts = set(source.group_starts.tolist())
    if group_rows <= range_rows:
        assert set(cuts.tolist()) <= starts
    np.testing.assert_array_equal(cuts, cut_row_ranges(source, range_rows))


def test_all_rows_are_read_without_a_copy_where_that_is_possible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "_READ_BYTES", 7 * 5 * 4)
    assert read_all(ArraySource(ROWS)) is ROWS
    for other in (ROWS.astype(np.float64), np.asfortranarray(ROWS)):
        np.testing.assert_array_equal(read_all(ArraySource(other)), ROWS)
    broken = ROWS.copy()
    broken[50, 2] = np.inf
    with pytest.raises(InvalidInputError, match=r"infinity in 1 of the rows 49\.\.55, .* row 50"):
        read_all(ArraySource(broken))


def test_samples_are_in_order_and_of_rows_spread_over_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "_READ_BYTES", 10 * 4)  # ranges of 10 rows
    monkeypatch.setattr(sources, "_SAMPLED_RANGES", 4)
    source = ArraySource(np.arange(200, dtype=np.float32)[:, None])
    sample = sample_rows(source, 8, seed=3).ravel()
    assert (np.diff(sample) > 0).all()
    assert np.unique(sample // 10).tolist() == [0, 6, 12, 19]
    np.testing.assert_array_equal(sample, sample_rows(source, 8, seed=3).ravel())
    assert len(sample_rows(source, 1000, seed=3)) == 40


def test_arrays_of_any_shape_are_mapped_and_those_without_columns_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.zeros((3, 4, 5), np.uint8))
    mapped = map_npy(tmp_path / "images.npy")
    assert isinstance(mapped, np.memmap)
    assert mapped.shape == (3, 4, 5)
    np.save(tmp_path / "empty.npy", np.zeros((3, 0)))
    with pytest.raises(InvalidInputError, match="n_features=0 columns, expected at least one"):
        map_npy(tmp_path / "empty.npy")
    with pytest.raises(InvalidInputError, match="is not a file"):
        map_npy(tmp_path)
