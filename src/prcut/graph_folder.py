"""A graph as a folder: three .npy files that can be mapped, sealed by ``graph.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prcut.batches import shared_tensor
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph import SimilarityGraph
from prcut.sparse import csr_tensor
from prcut.storage import Folder, check_format

__all__ = ["GRAPH_RECORD", "load_graph", "save_graph"]

# the record that seals the arrays
GRAPH_RECORD = "graph.json"
_FORMAT = 1
_ARRAYS = ("indptr", "indices", "values")


def save_graph(
    path: str | Path | Folder, graph: SimilarityGraph, content: Mapping[str, Any] | None = None
) -> None:
    """Save a graph in a folder; the record also holds ``content``.

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
    parts = (weight.crow_indices(), weight.col_indices(), weight.values())
    arrays = {f"{name}.npy": part.numpy() for name, part in zip(_ARRAYS, parts, strict=True)}
    sizes = {"format": _FORMAT, "n_samples": graph.n_samples, "n_edges": graph.n_edges}
    folder.seal(GRAPH_RECORD, arrays, {**(content or {}), **sizes})


def load_graph(path: str | Path | Folder, *, verify: bool = True) -> SimilarityGraph:
    """The graph that :func:`save_graph` saved, mapped into memory where it is on a local disk.

    Parameters
    ----------
    path : str, path or Folder
    verify : bool
        Compare the files with their checksums first, which reads them once.
    """
    folder = path if isinstance(path, Folder) else Folder(path)
    record = folder.read_record(GRAPH_RECORD)
    if record is None:
        raise InvalidInputError(
            f"{folder.path} holds no finished graph (no valid {GRAPH_RECORD}); make one by "
            "save_graph or `prcut graph`."
        )
    try:
        found, n_samples = int(record["format"]), int(record["n_samples"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{folder.path}/{GRAPH_RECORD} lacks {error}.") from error
    check_format(folder.path, found, _FORMAT)
    if verify:
        folder.verify(record)
    indptr, indices, values = (shared_tensor(folder.map_array(f"{name}.npy")) for name in _ARRAYS)
    if (
        len(indptr) != n_samples + 1
        or int(indptr[-1]) != len(indices)
        or len(values) != len(indices)
    ):
        raise CorruptFileError(
            f"the arrays in {folder.path} do not fit each other; remove it and make it again."
        )
    return SimilarityGraph(csr_tensor(indptr, indices, values))
