"""The similarity graph: symmetric, non-negative, without self-loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.rows import shared_tensor
from prcut.numerics.sparse import (
    connected_components,
    csr_tensor,
    degrees,
    entry_rows,
    from_scipy,
    to_scipy,
)
from prcut.numerics.validation import check_graph_weight
from prcut.runtime.folder import Folder, check_format, parsing, whole_number

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# allowed ‖W − Wᵀ‖ relative to the largest weight: rounding of float32
_SYMMETRY_TOLERANCE = 1e-6
# a complete same-label graph with more entries (about 3 GB) is surely a mistake
_MAX_LABEL_ENTRIES = 2**28


@dataclass(frozen=True, eq=False, repr=False)
class SimilarityGraph:
    """A weighted undirected graph over the rows of a data set, in CSR form with 64-bit indices.

    Make one with :meth:`from_scipy`, :meth:`from_neighbors` or :meth:`from_labels`, which check
    and clean their input: the constructor only checks the layout and shape of ``weight``.

    Parameters
    ----------
    weight : sparse CSR tensor, shape (n_samples, n_samples)
        Symmetric similarities >= 0 with an empty diagonal, both directions stored.

    Examples
    --------
    >>> graph = SimilarityGraph.from_neighbors([[1], [0], [3], [2]])
    >>> graph
    SimilarityGraph(n_samples=4, n_edges=2, n_components=2)
    >>> graph.degree.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    weight: Tensor

    def __post_init__(self) -> None:
        check_graph_weight(self.weight)

    @classmethod
    def from_scipy(cls, matrix: Any) -> SimilarityGraph:
        """Make a graph from a square SciPy sparse (or dense) matrix of similarities.

        It must be symmetric, finite and >= 0. The diagonal and stored zeros are dropped: they do
        not change a cut. Weights stay float32 or float64; other dtypes become float32.
        """
        from scipy.sparse import csr_array

        try:
            matrix = csr_array(matrix)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the similarity matrix of type {type(matrix).__name__} is not a matrix: {error}."
            ) from error
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InvalidInputError(
                f"the similarity matrix has shape {matrix.shape}, expected (n_samples, n_samples)."
            )
        _check_values(matrix.data)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float32)
        matrix = matrix.tocoo()
        keep = (matrix.row != matrix.col) & (matrix.data != 0)
        entries = (matrix.data[keep], (matrix.row[keep], matrix.col[keep]))
        matrix = csr_array(entries, shape=matrix.shape)
        matrix.sum_duplicates()  # sorts the indices too
        asymmetry = abs(matrix - matrix.T).max() if matrix.nnz else 0.0
        if asymmetry > _SYMMETRY_TOLERANCE * matrix.data.max(initial=0.0):
            raise InvalidInputError(
                f"the similarity matrix is not symmetric: |W - W.T| reaches {asymmetry:.3g}; "
                "pass (W + W.T) / 2 or W.maximum(W.T)."
            )
        return cls(from_scipy(matrix))

    @classmethod
    def from_neighbors(
        cls,
        neighbors: ArrayLike,
        similarity: ArrayLike | None = None,
        *,
        symmetrize: Literal["either", "mean"] = "either",
    ) -> SimilarityGraph:
        """Make a graph from lists of neighbours: row i is linked to ``neighbors[i]``.

        Parameters
        ----------
        neighbors : integer array, shape (n_samples, n_neighbors)
            Row numbers; -1 where a row has fewer. A row's own number is ignored.
        similarity : array, shape (n_samples, n_neighbors), optional
            Weight of each link, 1 by default.
        symmetrize : {"either", "mean"}
            The weight of an edge from the weights of its two directions, 0 for a missing one:
            the larger (the paper's either-or kernel), or their mean.
        """
        from scipy.sparse import csr_array

        neighbors = np.asarray(neighbors)
        if neighbors.ndim != 2 or neighbors.dtype.kind not in "iu":
            raise InvalidInputError(
                f"neighbors have shape {neighbors.shape} and dtype {neighbors.dtype}, "
                "expected integers of shape (n_samples, n_neighbors)."
            )
        n_samples = len(neighbors)
        if neighbors.size and not -1 <= neighbors.min() <= neighbors.max() < n_samples:
            raise InvalidInputError(
                f"neighbors lie in [{neighbors.min()}, {neighbors.max()}], expected -1 "
                f"(none) or a row below {n_samples=}."
            )
        linked = (neighbors >= 0) & (neighbors != np.arange(n_samples)[:, None])
        if similarity is None:
            similarity = np.ones(neighbors.shape, np.float32)
        similarity = np.asarray(similarity)
        if similarity.shape != neighbors.shape:
            raise InvalidInputError(
                f"similarity has shape {similarity.shape}, "
                f"expected that of neighbors, {neighbors.shape}."
            )
        indptr = np.concatenate([[0], np.cumsum(linked.sum(1))])
        values = similarity[linked]
        _check_values(values)
        directed = csr_array((values, neighbors[linked], indptr), shape=(n_samples, n_samples))
        n_links = directed.nnz
        directed.sum_duplicates()
        if directed.nnz != n_links:
            raise InvalidInputError(
                f"neighbors repeat a row {n_links - directed.nnz} times; replace the repeats by -1."
            )
        if symmetrize == "either":
            return cls.from_scipy(directed.maximum(directed.T))
        if symmetrize == "mean":
            return cls.from_scipy((directed + directed.T) * np.float32(0.5))
        raise InvalidInputError(f"{symmetrize=} must be 'either' or 'mean'.")

    @classmethod
    def from_labels(cls, labels: ArrayLike) -> SimilarityGraph:
        """Link every two rows of the same label by weight 1; rows labelled -1 have no links.

        All pairs of every class are stored: meant for small data.
        """
        from scipy.sparse import csr_array

        labels = np.asarray(labels)
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise InvalidInputError(
                f"labels have shape {labels.shape} and dtype {labels.dtype}, "
                "expected one integer per row."
            )
        rows = np.flatnonzero(labels != -1)
        _, classes, count = np.unique(labels[rows], return_inverse=True, return_counts=True)
        n_entries = int((count.astype(np.int64) ** 2).sum())
        if n_entries > _MAX_LABEL_ENTRIES:
            raise InvalidInputError(
                f"same-label similarity would store {n_entries:,} entries, more than "
                f"{_MAX_LABEL_ENTRIES:,}; take fewer rows per class."
            )
        entries = np.ones(len(rows), np.float32), (rows, classes)
        member = csr_array(entries, shape=(len(labels), len(count)))
        return cls.from_scipy(member @ member.T)

    @property
    def edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """Every edge in both directions: ``source, target, weight = graph.edges``."""
        return entry_rows(self.weight), self.weight.col_indices(), self.weight.values()

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.weight.shape[0]

    @property
    def n_edges(self) -> int:
        """Number of undirected edges: half the stored entries."""
        return self.weight.values().numel() // 2

    @cached_property
    def degree(self) -> Tensor:
        """Sum of the weights at every row, float64, shape (n_samples,)."""
        return degrees(self.weight)

    @cached_property
    def components(self) -> Tensor:
        """Connected component of every row, numbered from 0, shape (n_samples,)."""
        return connected_components(self.weight)

    @cached_property
    def n_components(self) -> int:
        """Number of connected components; rows without edges are one each."""
        return int(self.components.max()) + 1 if self.n_samples else 0

    def to_scipy(self) -> csr_array:
        """Return the weights as a SciPy array, which shares their memory on the CPU."""
        return to_scipy(self.weight)

    def __repr__(self) -> str:
        return (
            f"SimilarityGraph(n_samples={self.n_samples}, n_edges={self.n_edges}, "
            f"n_components={self.n_components})"
        )


def _check_values(values: np.ndarray) -> None:
    """Reject similarities that are no weights."""
    if values.dtype.kind not in "biuf":
        raise InvalidInputError(f"similarities have dtype {values.dtype}, expected real numbers.")
    if not np.isfinite(values).all():
        raise InvalidInputError("similarities contain NaN or infinity; remove or replace them.")
    if values.min(initial=0) < 0:
        raise InvalidInputError(
            f"similarities contain {values.min():.3g}, expected values >= 0; "
            "map them first, for example by exp(similarity / temperature)."
        )


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

    ``verify`` compares the files with their checksums and checks the arrays, and so reads them.
    """
    folder = path if isinstance(path, Folder) else Folder(path)
    record = folder.read_record(GRAPH_RECORD)
    if record is None:
        raise InvalidInputError(
            f"{folder.path} holds no finished graph (no valid {GRAPH_RECORD}); make one by "
            "save_graph."
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
    if is_graph and verify:
        # torch and SciPy do not check indices, and would read outside the arrays
        is_graph = indptr[0] == 0 and not (indptr[1:] < indptr[:-1]).any()
        if is_graph and len(indices):
            is_graph = 0 <= indices.min() <= indices.max() < n_samples
            is_graph = is_graph and 0 <= values.min() <= values.max() < np.inf
    if not is_graph:
        raise CorruptFileError(
            f"the arrays in {folder.path} do not form a graph; remove it and save it again."
        )
    weight = csr_tensor(shared_tensor(indptr), shared_tensor(indices), shared_tensor(values))
    return SimilarityGraph(weight)
