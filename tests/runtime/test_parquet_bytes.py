"""Parquet as a stream: the same rows, in row groups of the asked size."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from prcut.runtime.parquet import encode_parquet


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
