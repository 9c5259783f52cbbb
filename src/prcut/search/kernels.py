"""The compiled loops of the search, called through ctypes: see kernels.c.

C behind ctypes, not numba or an extension module: numba compiles for 21 seconds on the first call
on a machine, and an extension needs a wheel for every version of Python. A call releases the GIL,
so independent starts run on several threads. Where the library was not compiled, every caller has
the same loop in NumPy, which the tests compare. ``PRCUT_KERNELS`` names another library, or, as
``PRCUT_KERNELS=numpy``, none.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from prcut.numerics.objective import ClusterCost
from prcut.search.prices import Prices

# sizes up to which the balance term is looked up: 32 MB of it
_MAX_TABLE = 2**22


class _Cost(ctypes.Structure):
    _fields_ = (
        ("n_samples", ctypes.c_double),
        ("scale", ctypes.c_double),
        ("factor", ctypes.c_double),
        ("table", ctypes.c_void_p),
    )


class _Graph(ctypes.Structure):
    _fields_ = (
        ("n", ctypes.c_int64),
        ("indptr", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
    )


class _Prices(ctypes.Structure):
    _fields_ = (
        ("preferred", ctypes.c_void_p),
        ("price", ctypes.c_void_p),
        ("least", ctypes.c_void_p),
        ("most", ctypes.c_void_p),
        ("apart", _Graph),
    )


def _array(dtype: Any) -> Any:
    return np.ctypeslib.ndpointer(dtype, flags="C_CONTIGUOUS")


_TYPES = {
    "n": ctypes.c_int64,
    "x": ctypes.c_double,
    "b": _array(np.bool_),
    "i": _array(np.int64),
    "s": _array(np.int32),
    "d": _array(np.float64),
    "C": ctypes.POINTER(_Cost),
    "G": ctypes.POINTER(_Graph),
    "P": ctypes.POINTER(_Prices),
    "o": ctypes.c_void_p,
}
_SIGNATURES = {
    "merge": "nddCid",
    "merge_linked": "GdnCi",
    "improve": "nnssddCoxxxxxid",
    "best_moves": "GniindddCxiid",
    "change_of_cuts": "Gniiibid",
    "mark_neighbors": "Gnib",
    "partition_cuts": "Gid",
    "sweep": "GdnnCPxidd",
    "propagate": "Ginni",
    "contract": "Giniissd",
}


def _load() -> ctypes.CDLL | None:
    path = Path(os.environ.get("PRCUT_KERNELS") or Path(__file__).with_name("libkernels.so"))
    if not path.exists():
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:  # compiled for another platform
        return None
    for name, signature in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = ctypes.c_int64
        function.argtypes = [_TYPES[letter] for letter in signature]
    return library


LIBRARY = _load()
"""The compiled library, or None where NumPy does its work."""


def call(name: str, *arguments: Any) -> int:
    """Call a compiled function; costs and graphs are passed by pointer."""
    passed = [_passed(argument) for argument in arguments]
    status: int = getattr(LIBRARY, name)(*passed)
    if status < 0:
        raise MemoryError(f"the search has no memory left for {name}.")
    return status


def _passed(argument: Any) -> Any:
    if isinstance(argument, ClusterCost):
        n_samples, scale, factor, _ = argument
        # a sum of rows' weights is a float: sizes are no integers then
        is_whole = isinstance(n_samples, int)
        table = _balance_table(argument._replace(scale=0.0, n_clusters=1)) if is_whole else None
        return _kept(_Cost(n_samples, scale, factor, address_of(table)), table)
    if isinstance(argument, Prices):
        *given, apart = argument
        dtypes = np.int64, np.float64, np.float64, np.float64
        arrays = [
            None if array is None else np.ascontiguousarray(array, dtype)
            for array, dtype in zip(given, dtypes, strict=True)
        ]
        graph = _Graph() if apart is None else _passed(_narrow(apart))
        return _kept(_Prices(*map(address_of, arrays), graph), (arrays, graph))
    if isinstance(argument, csr_array):
        arrays = [argument.indptr, argument.indices, argument.data]
        return _kept(_Graph(argument.shape[0], *map(address_of, arrays)), arrays)
    return argument


def _narrow(weight: csr_array) -> csr_array:
    """Return a graph with the types that the compiled loops read."""
    indices, indptr = (a.astype(np.int32, copy=False) for a in (weight.indices, weight.indptr))
    return csr_array((weight.data.astype(np.float64, copy=False), indices, indptr), weight.shape)


def address_of(array: np.ndarray | None) -> int | None:
    """Return where an array is, for a function or a structure that also takes none."""
    return None if array is None else array.ctypes.data


def _kept(structure: Any, pointed_to: Any) -> Any:
    """Return a structure that keeps alive what it points to."""
    structure.pointed_to = pointed_to
    return structure


@lru_cache(maxsize=2)
def _balance_table(cost: ClusterCost) -> np.ndarray | None:
    """Return the balance term of every size, computed by NumPy: the same bits as without C."""
    if cost.n_samples > _MAX_TABLE:
        return None
    return np.asarray(cost(0.0, np.arange(cost.n_samples + 1.0)), dtype=np.float64)


def fits(weight: csr_array) -> bool:
    """Return whether the compiled loops can be used for a graph."""
    has_ints = weight.indices.dtype == weight.indptr.dtype == np.int32
    return LIBRARY is not None and has_ints and weight.dtype == np.float64
