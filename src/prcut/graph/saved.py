"""A graph as a folder: three .npy files that can be mapped, sealed by ``graph.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.rows import shared_tensor
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.sparse import csr_tensor
from prcut.runtime.folder import Folder, check_format, parsing, whole_number

# the record that seals the arrays
GRAPH_RECORD = "graph.json"
_FORMAT = 1
_ARRAYS = ("indptr", "indices", "values")


def save_graph(
    path: str | Path | Folder, graph: SimilarityGraph, content: Mapping[str, Any] | None = None
) -> None:
    """Save a graph in a folder, with ``content`` in its record.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_graph(folder, SimilarityGraph.from_neighbors([[1], [0], [3], [2]]))
    ...     load_graph(folder)
    SimilarityGraph(n_samples=4, n_edges=2, n_components=2)
    """
    folder = path if isinstance(path, Folder) else Folder(path)
    weight = graph.weight.cpu()
    tensors = (weight.crow_indices(), weight.col_indices(), weight.values())
    arrays = {f"{name}.npy": data.numpy() for name, data in zip(_ARRAYS, tensors, strict=True)}
    sizes = {"format": _FORMAT, "n_samples": graph.n_samples, "n_edges": graph.n_edges}
    folder.seal(GRAPH_RECORD, arrays, {**(content or {}), **sizes})


def load_graph(path: str | Path | Folder, *, verify: bool = True) -> SimilarityGraph:
    """Load a graph that :func:`save_graph` saved; on a local disk it is mapped into memory.

    Parameters
    ----------
    path : str, path or Folder
    verify : bool
        Compare the files with their checksums and check the arrays, which reads them twice.
    """
    folder = path if isinstance(path, Folder) else Folder(path)
    record = folder.read_record(GRAPH_RECORD)
    if record is None:
        raise InvalidInputError(
            f"{folder.path} holds no finished graph (no valid {GRAPH_RECORD}); make one by "
            "save_graph or `prcut graph`."
        )
    with parsing(f"{folder.path}/{GRAPH_RECORD}"):
        found, n_samples = whole_number(record["format"]), whole_number(record["n_samples"])
    check_format(folder.path, found, _FORMAT)
    if verify:
        folder.verify(record)
    indptr, indices, values = (folder.map_array(f"{name}.npy") for name in _ARRAYS)
    is_graph = (
        indptr.shape == (n_samples + 1,)
        and indptr.dtype == indices.dtype == np.int64
        and values.dtype in (np.float32, np.float64)
        and indices.shape == values.shape == (int(indptr[-1]),)
    )
    # torch and SciPy do not check indices, and would read outside the arrays
    if not is_graph or (verify and not _is_valid(indptr, indices, values)):
        raise CorruptFileError(
            f"the arrays in {folder.path} do not form a graph; remove it and save it again."
        )
    weight = csr_tensor(shared_tensor(indptr), shared_tensor(indices), shared_tensor(values))
    return SimilarityGraph(weight)


def _is_valid(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> bool:
    """Check that rows are in order, neighbours are rows, and weights are finite and >= 0."""
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        return False
    if not len(indices):
        return True
    low, high = indices.min(), indices.max()
    return bool(0 <= low <= high < len(indptr) - 1 and 0 <= values.min() <= values.max() < np.inf)
