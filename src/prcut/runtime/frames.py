"""Rows in memory, from tensors, data frames and anything that gives an Arrow stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from prcut.errors import InvalidInputError


def as_rows(data: Any) -> Any:
    """Return tensors and columns of vectors as arrays; leave anything else as it is.

    A tensor may need gradients, be on a device or of bfloat16. A frame of pandas or Polars, a table
    of pyarrow, or what else has ``__arrow_c_stream__``, may have one column of vectors, beside
    columns of other kinds.

    >>> as_rows([[1.0, 2.0]])
    [[1.0, 2.0]]
    """
    if isinstance(data, list | tuple) and data and isinstance(data[0], str):
        raise InvalidInputError(
            f"X has texts, such as {data[0][:40]!r}; embed them first: prcut.embed(X, 'minilm')."
        )
    if hasattr(data, "detach"):
        tensor = data.detach().cpu()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    if getattr(getattr(data, "dtype", None), "name", None) == "bfloat16":
        return data.astype(np.float32)
    if hasattr(data, "iloc"):
        return _rows_of_pandas(data)
    return _rows_of_arrow(data) if hasattr(data, "__arrow_c_stream__") else data


def _rows_of_pandas(data: Any) -> Any:
    columns = {"": data} if data.ndim == 1 else {name: data[name] for name in data.columns}
    vectors = {name: values for name, values in columns.items() if _holds_vectors(values)}
    if not vectors:
        return data
    name = _only([*vectors])
    import pyarrow as pa

    from prcut.runtime.vector_column import to_matrix

    try:
        return _floats(to_matrix(pa.array(vectors[name].to_list()), None, str(name), 0))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"column {name!r} does not hold vectors of numbers: {error}"
        ) from error


def _holds_vectors(values: Any) -> bool:
    # a frame may have two columns of one name, which gives a frame of both
    is_column = values.ndim == 1 and len(values) > 0 and not hasattr(values.dtype, "categories")
    return is_column and isinstance(values.iloc[0], list | tuple | np.ndarray)


def _rows_of_arrow(data: Any) -> Any:
    import pyarrow as pa

    from prcut.runtime.vector_column import only_vector_column, to_matrix

    try:
        table = pa.table(data)
    except (pa.ArrowException, TypeError, ValueError):  # one column, which is no table
        table = pa.table({"": pa.chunked_array(data)})
    kinds = [kind for kind in table.schema.types if pa.types.is_nested(kind)]
    if not kinds and not any(pa.types.is_fixed_size_list(kind) for kind in table.schema.types):
        return data if hasattr(data, "__array__") else table
    name = only_vector_column(table.schema, "X")
    column = table[name].combine_chunks()
    parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return _floats(np.concatenate([to_matrix(part, None, name, 0) for part in parts]))


def _only(names: list[Any]) -> Any:
    if len(names) > 1:
        raise InvalidInputError(
            f"X has {len(names)} columns of vectors, {names}; pass one of them."
        )
    return names[0]


def _floats(rows: np.ndarray) -> np.ndarray:
    """Return floats; small whole numbers fit in half precision."""
    if rows.dtype.kind == "f":
        return rows
    return rows.astype(np.float16 if rows.dtype.itemsize == 1 else np.float32)
