"""A Parquet file as a stream of bytes, so that it can be written anywhere in constant memory."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq


def encode_parquet(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], group_rows: int
) -> Iterator[bytes]:
    """Yield the bytes of a Parquet file, a row group of at least ``group_rows`` at a time."""
    sink = _Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, "w"), schema) as writer:
        group: list[pa.RecordBatch] = []
        for batch in batches:
            group.append(batch)
            if sum(map(len, group)) >= group_rows:
                writer.write_table(pa.Table.from_batches(group))
                group.clear()
                yield sink.drain()
        if group:
            writer.write_table(pa.Table.from_batches(group))
    yield sink.drain()


class _Sink(io.BytesIO):
    """A file that hands on what is written to it."""

    _n_drained = 0

    def tell(self) -> int:
        return self._n_drained + super().tell()

    def drain(self) -> bytes:
        """Return what was written since the last call, and forget it."""
        content = self.getvalue()
        self._n_drained += len(content)
        self.seek(0)
        self.truncate()
        return content
