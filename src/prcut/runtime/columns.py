"""Data that is not one column of lists: a column per feature, and files that are not Parquet."""

from __future__ import annotations

from fnmatch import filter as match_names
from pathlib import Path

import numpy as np
import pyarrow as pa

from prcut.errors import InvalidInputError

# what reads other files, by the ends of their names
_READERS = {
    ".csv": "csv.read_csv",
    ".json": "json.read_json",
    ".jsonl": "json.read_json",
    ".ndjson": "json.read_json",
}


def match_columns(schema: pa.Schema, pattern: str, path: str) -> list[str]:
    """Return the columns of numbers that ``f*`` or ``x,y,z`` selects; [] where it names one column.

    >>> schema = pa.schema({"id": pa.int64(), "f0": pa.float32(), "f1": pa.float32()})
    >>> match_columns(schema, "f*", "rows.parquet"), match_columns(schema, "f0", "rows.parquet")
    (['f0', 'f1'], [])
    """
    if pattern in schema.names or not set("*?[,") & set(pattern):
        return []
    matched = [match_names(schema.names, one.strip()) for one in pattern.split(",")]
    if not all(matched):
        shown = ", ".join(schema.names[:20])
        raise InvalidInputError(f"column={pattern!r} matches no column of {path}; it has {shown}.")
    names = list(dict.fromkeys(name for names in matched for name in names))
    for name in names:
        kind = schema.field(name).type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            raise InvalidInputError(
                f"column {name!r} of {path}, which column={pattern!r} matches, is {kind}, expected "
                "numbers."
            )
    return names


def stack_columns(batch: pa.RecordBatch, names: list[str]) -> pa.FixedSizeListArray:
    """Return columns of numbers as one of lists; a null becomes NaN, which the reader refuses."""
    columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
    values = np.column_stack([column.astype(np.float32) for column in columns])
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), len(names))


def refuse_other_formats(path: str) -> None:
    """Say how a text file becomes Parquet."""
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None or not Path(path).is_file():
        return
    target = str(Path(path).with_suffix(".parquet"))
    raise InvalidInputError(
        f'{path} is not Parquet; convert it once, with python -c "from pyarrow import '
        f"{reader.partition('.')[0]}, parquet; parquet.write_table({reader}({path!r}), "
        f"{target!r})\", then name its columns of numbers, such as by column='f*'."
    )
