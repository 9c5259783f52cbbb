"""Columns of vectors: lists of floats, of int8 or uint8, and bytes.

Bytes do not say what they hold, so that a column's name does: ``"vector:float32"``, or ``":bits"``
for eight signs per byte, the first in its highest bit, as quantised embeddings have them; these may
also be in lists of uint8. Small numbers and signs are read as float16, which holds them exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prcut.errors import InvalidInputError

_BYTES = ("bits", "float16", "float32", "int8", "uint8")


def split_column(column: str, names: list[str]) -> tuple[str, str | None]:
    """Return the name of a column and what its bytes hold.

    >>> split_column("vector:bits", ["id", "vector"]), split_column("a:bits", ["a:bits"])
    (('vector', 'bits'), ('a:bits', None))
    """
    name, _, held = column.rpartition(":")
    return (name, held) if column not in names and held in _BYTES else (column, None)


def only_vector_column(schema: pa.Schema, path: str) -> str:
    """Return the name of the only column of float lists or, without any, of int8 or uint8 lists."""
    kinds = {field.name: _list_type(field.type) for field in schema}
    names = [name for name, kind in kinds.items() if pa.types.is_floating(kind)]
    names = names or [name for name, kind in kinds.items() if _is_small(kind)]
    if not names:
        raise InvalidInputError(
            f"{path} has no column of float lists; name its columns of numbers, such as by "
            f"column='f*'. It has {', '.join(schema.names[:20])}."
        )
    if len(names) > 1:
        raise InvalidInputError(
            f"{path} has {len(names)} columns of float lists ({', '.join(names)}); "
            "name one by column=."
        )
    return str(names[0])


def check_vector(kind: pa.DataType, held: str | None, column: str, path: str) -> None:
    """Refuse a column that holds no vectors, or bytes of which nobody says what they hold."""
    of_list = _list_type(kind)
    if held is None and _is_binary(kind):
        raise InvalidInputError(
            f"column {column!r} of {path} is {kind}; say what its bytes hold, "
            f"{', '.join(f'{column}:{one}' for one in _BYTES)}."
        )
    is_right = pa.types.is_floating(of_list) or _is_small(of_list)
    if held is not None:
        is_right = _is_binary(kind) or (held == "bits" and _is_small(of_list))
    if not is_right:
        raise InvalidInputError(
            f"column {column!r} of {path} is {kind}, expected lists of floats, int8 or uint8"
            + (f", or bytes of {held}." if held else ".")
        )


def vector_dtype(kind: pa.DataType, held: str | None) -> np.dtype[Any]:
    """Return the dtype in which vectors are read: float16 where it holds them exactly."""
    of_list = _list_type(kind)
    is_exact = of_list == pa.float16() or _is_small(of_list) or held in ("bits", "int8", "uint8")
    return np.dtype(np.float16 if is_exact or held == "float16" else np.float32)


def to_matrix(
    values: pa.Array, held: str | None, column: str, first_row: int, n_features: int | None = None
) -> np.ndarray:
    """Return vectors as rows; refuse nulls, and lengths that differ or are not ``n_features``."""
    stop = first_row + len(values)
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    check_no_nulls(values, column, "lists", first_row, stop)
    is_binary = _is_binary(values.type)
    if is_binary and not pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.large_binary())
    count = pc.binary_length if is_binary else pc.list_value_length
    lengths = count(values).to_numpy(zero_copy_only=False)
    per_value = 1 / 8 if held == "bits" else np.dtype(held).itemsize if is_binary and held else 1
    expected = n_features * per_value if n_features is not None else lengths[0]
    if (lengths != expected).any():
        row = int((lengths != expected).argmax())
        raise InvalidInputError(
            f"column {column!r} holds a list of {int(lengths[row] / per_value)} values in row "
            f"{first_row + row}, expected n_features={int(expected / per_value)} in every row."
        )
    if is_binary:
        flat = np.frombuffer(b"".join(values.to_pylist()), "u1" if held == "bits" else held)
    else:
        inside = values.flatten()
        check_no_nulls(inside, column, "values", first_row, stop)
        flat = inside.to_numpy(zero_copy_only=False)
    matrix: np.ndarray = flat.reshape(len(values), -1)
    if held == "bits":
        matrix = np.unpackbits(matrix.view(np.uint8), axis=1) * np.float16(2) - np.float16(1)
    return matrix


def check_no_nulls(values: Any, column: str, what: str, start: int, stop: int) -> None:
    """Refuse missing values in rows ``start:stop``."""
    if values.null_count:
        raise InvalidInputError(
            f"column {column!r} has {values.null_count} null {what} in rows {start}..{stop - 1}; "
            "remove or replace them."
        )


def _list_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a list, null for anything else."""
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return kind.value_type if any(check(kind) for check in is_list) else pa.null()


def _is_small(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int8(kind) or pa.types.is_uint8(kind))


def _is_binary(kind: pa.DataType) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(check(kind) for check in checks)
