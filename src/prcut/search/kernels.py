"""The compiled loops of the search, called through ctypes: see kernels.c.

C behind ctypes, not numba or an extension module: numba compiles for 21 seconds on the first call
on a machine, and an extension needs a wheel for every version of Python. A call releases the GIL,
so independent starts run on several threads. ``PRCUT_KERNELS`` names another library to load.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from prcut.errors import InvalidInputError
from prcut.numerics.objective import ClusterCost
from prcut.search.prices import Prices

# sizes up to which the balance term is looked up: 32 MB of it
_MAX_TABLE = 2**22
# must equal interface() in kernels.c, which rises when the arguments of a function change
_INTERFACE = 4
# columns of a graph are 32-bit integers
_MAX_ROWS = 2**31 - 1


class _Cost(ctypes.Structure):
    _fields_ = (
        ("n_samples", ctypes.c_double),
        ("scale", ctypes.c_double),
        ("factor", ctypes.c_double),
        ("table", ctypes.c_void_p),
    )


class Graph(ctypes.Structure):
    """A graph as C reads it: 64-bit row pointers, 32-bit columns, weights of either precision."""

    _fields_ = (
        ("n", ctypes.c_int64),
        ("indptr", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("single", ctypes.c_void_p),
    )


class _Prices(ctypes.Structure):
    _fields_ = (
        ("preferred", ctypes.c_void_p),
        ("price", ctypes.c_void_p),
        ("least", ctypes.c_void_p),
        ("most", ctypes.c_void_p),
        ("apart", Graph),
    )


def _array(dtype: Any) -> Any:
    return np.ctypeslib.ndpointer(dtype, flags="C_CONTIGUOUS")


class _Optional:
    """A float64 array, or None for a null pointer."""

    @classmethod
    def from_param(cls, array: np.ndarray | None) -> Any:
        return None if array is None else _array(np.float64).from_param(array)


_TYPES = {
    "n": ctypes.c_int64,
    "x": ctypes.c_double,
    "i": _array(np.int64),
    "s": _array(np.int32),
    "d": _array(np.float64),
    "C": ctypes.POINTER(_Cost),
    "G": ctypes.POINTER(Graph),
    "P": ctypes.POINTER(_Prices),
    "o": _Optional,
}
_SIGNATURES = {
    "merge": "nddCid",
    "merge_linked": "GdnCi",
    "improve": "GdnCoxxxxxid",
    "partition_cuts": "Gid",
    "sweep": "GdnnCPxidd",
    "propagate": "Ginni",
    "contract": "Giniinisd",
}


def _load() -> ctypes.CDLL:
    named = os.environ.get("PRCUT_KERNELS")
    path = Path(named or Path(__file__).with_name("libkernels.so"))
    remedy = "reinstall prcut from a wheel, or from source with a C compiler."
    if named:
        remedy = "PRCUT_KERNELS names it: correct the path, or unset the variable."
    if not path.exists():
        raise ImportError(f"prcut's compiled search, {path}, is missing; {remedy}")
    try:
        library = ctypes.CDLL(str(path))
        if library.interface() != _INTERFACE:
            raise OSError("it was compiled from another version of kernels.c")
        for name, signature in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = ctypes.c_int64
            function.argtypes = [_TYPES[letter] for letter in signature]
    except (OSError, AttributeError) as error:
        # compiled for another platform, or before functions of these names were there
        message = f"prcut's compiled search, {path}, cannot be loaded: {error}; {remedy}"
        raise ImportError(message) from error
    return library


LIBRARY = _load()


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
        return _kept(_Cost(n_samples, scale, factor, _address(table)), table)
    if isinstance(argument, Prices):
        *given, apart = argument
        dtypes = np.int64, np.float64, np.float64, np.float64
        arrays = [
            None if array is None else np.ascontiguousarray(array, dtype)
            for array, dtype in zip(given, dtypes, strict=True)
        ]
        graph = Graph() if apart is None else as_graph(apart)
        return _kept(_Prices(*map(_address, arrays), graph), (arrays, graph))
    if isinstance(argument, csr_array):
        return as_graph(argument)
    return argument


def as_graph(weight: csr_array) -> Graph:
    """Convert a graph to the types that C reads."""
    n_rows = max(weight.shape)
    if n_rows > _MAX_ROWS:
        raise InvalidInputError(
            f"n_samples={n_rows} must be <= {_MAX_ROWS}, the rows of a graph that can be searched; "
            "fit a sample of the rows and predict the others."
        )
    # a row notes a cluster when the weight to it is 0 so far: with stored zeros it would note more
    # clusters than there is memory for
    if not weight.data.min(initial=1) > 0:
        raise InvalidInputError(
            "the graph stores weights that are not above 0; make it with "
            "SimilarityGraph.from_scipy, which drops zeros and refuses the others."
        )
    indptr = np.ascontiguousarray(weight.indptr, np.int64)
    indices = np.ascontiguousarray(weight.indices, np.int32)
    is_single = weight.data.dtype == np.float32
    data = np.ascontiguousarray(weight.data, np.float32 if is_single else np.float64)
    double, single = (None, data) if is_single else (data, None)
    made = Graph(weight.shape[0], *map(_address, (indptr, indices, double, single)))
    graph: Graph = _kept(made, (indptr, indices, data))
    return graph


def _address(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data


def _kept(structure: Any, pointed_to: Any) -> Any:
    """Return a structure that keeps alive what it points to."""
    structure.pointed_to = pointed_to
    return structure


@lru_cache(maxsize=2)
def _balance_table(cost: ClusterCost) -> np.ndarray | None:
    """Return the balance term of every size by NumPy: not all C libraries' logarithms agree."""
    if cost.n_samples > _MAX_TABLE:
        return None
    return np.asarray(cost(0.0, np.arange(cost.n_samples + 1.0)), dtype=np.float64)
