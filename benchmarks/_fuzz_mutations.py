"""Ways to spoil a file: as a failing disk does, and as somebody does who knows the format."""

from __future__ import annotations

import ast
import io
import json
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["mutated"]

_NUMBERS = (-1, 0, 1, 2, 3, 7, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 10**12, 10**30)
_VALUES: tuple[Any, ...] = (
    *_NUMBERS,
    *(None, True, False, 0.5, -0.5, 1e308, float("nan"), float("inf"), -(2**31)),
    *("", "0", "x", "../x", "/etc/passwd", "..", "a/b", "C:\\x", "nul\0", "é" * 300, "F32", "meta"),
    *([], {}, [1], [[1]], {"a": 1}, [None], [-1, -1], {"size": 1, "sha256": "0"}),
)
_DESCRIPTIONS = (
    *("<f4", "<f8", ">f4", "<f2", "<i8", "<u8", "|b1", "|O", "<c8", "|S0", "|V0", "<U3", "<M8[s]"),
    *("<f16", "f4,f4", [("a", "<f4")], [("a", "|O")], [], None, 5, ("<f4", (2,))),
)
_BOMBS = (
    *(b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000, b'{"format": ' + b"9" * 5_000 + b"}"),
    *(b"", b"\0", b"null", b"[]", b"{}", b'""', b"NaN", b"\xff\xfe", b"\x80\x04."),
    *(b"PK\x03\x04", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff", b"PAR1PAR1", b"PAR1"),
)


def mutated(name: str, content: bytes, rng: random.Random) -> bytes:
    """Return the content of a file, spoilt in one of the ways that suit its kind."""
    own = _OWN.get(name.rpartition(".")[2])
    if own is None or rng.random() < 0.25:
        return _bytes(content, rng)
    try:
        return own(content, rng)
    except (ValueError, SyntaxError, KeyError, OverflowError, struct.error):
        return _bytes(content, rng)  # what was spoilt before cannot be taken apart


def _bytes(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return rng.choice(_BOMBS)
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        position = rng.randrange(len(data) + 1)
        way = rng.randrange(6)
        if way == 0 and data:
            data[position % len(data)] ^= 1 << rng.randrange(8)
        elif way == 1 and data:
            data[position % len(data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif way == 2:
            del data[position:]
        elif way == 3:
            del data[position : position + rng.randrange(1, 16)]
        elif way == 4:
            data[position:position] = rng.randbytes(rng.randrange(1, 16))
        else:
            width = rng.choice((2, 4, 8))
            number = rng.choice(_NUMBERS) % 256**width
            data[position : position + width] = number.to_bytes(
                width, rng.choice(("little", "big"))
            )
    return bytes(data)


# -- JSON ------------------------------------------------------------------------------------


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for key, part in inside:
        yield from _places(part, (*path, key))


def _changed(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _changed(value[path[0]], path[1:], change)
    return copy


def _spoilt(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with one part of it replaced, removed, renamed or repeated."""
    path = rng.choice(list(_places(value)))

    def change(part: Any) -> Any:
        way = rng.randrange(5)
        if way == 0 and isinstance(part, dict) and part:
            gone = rng.choice(list(part))
            return {key: one for key, one in part.items() if key != gone}
        if way == 1 and isinstance(part, dict):
            return {**part, rng.choice(("x", "../x", "files", "")): rng.choice(_VALUES)}
        if way == 0 and isinstance(part, list) and part:
            return part[1:]
        if way == 1 and isinstance(part, list):
            return [*part, part[0] if part else rng.choice(_VALUES)]
        if isinstance(part, int) and way == 2:
            return part + rng.choice((-2, -1, 1, 2, 2**31))
        return rng.choice(_VALUES)

    return _changed(value, path, change)


def _json(content: bytes, rng: random.Random) -> bytes:
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2))):
        value = _spoilt(value, rng)
    return json.dumps(value).encode()


# -- tensors and arrays ----------------------------------------------------------------------


def _safetensors(content: bytes, rng: random.Random) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    header, tensors = content[8 : 8 + length], content[8 + length :]
    way = rng.randrange(4)
    if way == 0:
        return struct.pack("<Q", rng.choice(_NUMBERS) % 2**64) + header + tensors
    if way == 1:
        return content[: 8 + length] + _numbers(tensors, rng)
    header = _json(header, rng)
    return struct.pack("<Q", len(header)) + header + tensors


def _numbers(data: bytes, rng: random.Random) -> bytes:
    """Other numbers in the places of some."""
    dtype = rng.choice((np.float32, np.int64, np.int32))
    size = np.dtype(dtype).itemsize
    values = np.frombuffer(data[: len(data) // size * size], dtype).copy()
    if not len(values):
        return data
    for _ in range(rng.choice((1, 1, 3))):
        known = [-1, 0, 1, 5, 2**31 - 1, -(2**31)]
        known += [2**62] if dtype == np.int64 else []
        known += [float("nan"), float("inf"), 1e38, 1e-45] if dtype == np.float32 else []
        values[rng.randrange(len(values))] = rng.choice(known)
    return values.tobytes() + data[len(values) * size :]


def _npy(content: bytes, rng: random.Random) -> bytes:
    (length,) = struct.unpack("<H", content[8:10])
    header, numbers = content[10 : 10 + length], content[10 + length :]
    if rng.random() < 0.3:
        return content[: 10 + length] + _numbers(numbers, rng)
    fields = ast.literal_eval(header.decode())
    way = rng.randrange(5)
    if way == 0:
        fields["descr"] = rng.choice(_DESCRIPTIONS)
    elif way == 1:
        n_axes = rng.randrange(5)
        fields["shape"] = tuple(rng.choice((*_NUMBERS, True, 1.5, "x")) for _ in range(n_axes))
    elif way == 2:
        shape = list(fields["shape"])
        shape[rng.randrange(len(shape))] += rng.choice((-1, 1))
        fields["shape"] = tuple(shape)
        count = int(np.prod(shape)) * np.dtype(fields["descr"]).itemsize
        numbers = numbers[:count].ljust(count, b"\0")
    elif way == 3:
        fields["fortran_order"] = rng.choice((True, 1, None, "x"))
    else:
        fields = _spoilt(fields, rng)
    text = repr(fields).encode("utf-8")
    # versions 2 and 3 have a longer field for the length
    version = rng.choice((1, 1, 1, 1, 2, 3, 9))
    made = io.BytesIO()
    made.write(b"\x93NUMPY" + bytes((version, 0)))
    made.write(struct.pack("<H" if version == 1 else "<I", len(text)))
    return made.getvalue() + text + numbers


_OWN = {"json": _json, "safetensors": _safetensors, "npy": _npy}
