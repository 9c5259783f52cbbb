"""The one way prcut makes and reads a sparse matrix: torch CSR with 64-bit indices."""

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "connected_components",
    "csr_tensor",
    "degrees",
    "entry_rows",
    "for_many_products",
    "to_scipy",
]


def csr_tensor(
    indptr: Tensor, indices: Tensor, values: Tensor, n_columns: int | None = None
) -> Tensor:
    """CSR tensor over the given arrays, without copying them; square by default.

    >>> row = csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.ones(2))
    >>> row.to_dense().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    n_rows = indptr.numel() - 1
    shape = (n_rows, n_rows if n_columns is None else n_columns)
    with warnings.catch_warnings():
        # torch says once per process that CSR is in beta: its product with a dense matrix,
        # all that is used here, is tested against loops
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False)


def entry_rows(weight: Tensor) -> Tensor:
    """Row of every stored entry, shape (nnz,)."""
    # not repeat_interleave: on a busy machine it takes milliseconds for the smallest graph
    n_entries = weight.values().numel()
    starts = torch.bincount(weight.crow_indices()[1:-1], minlength=n_entries + 1)
    return starts[:n_entries].cumsum(0)


def degrees(weight: Tensor) -> Tensor:
    """Row sums in float64: millions of float32 terms do not add up in float32."""
    ones = torch.ones(weight.shape[0], dtype=torch.float64, device=weight.device)
    return weight.double() @ ones


def for_many_products(weight: Tensor) -> Tensor:
    """A float64 copy with 32-bit indices where they suffice.

    The CPU's sparse product reads 32-bit indices, and torch converts others at every call: at
    60,000 rows and 9.3M entries that took half of the time of a product with 10 columns.
    """
    indptr, indices = weight.crow_indices(), weight.col_indices()
    if max(len(indices), len(indptr)) <= torch.iinfo(torch.int32).max:
        indptr, indices = indptr.int(), indices.int()
    return csr_tensor(indptr, indices, weight.values().double())


def to_scipy(weight: Tensor) -> "csr_array":
    """The same matrix as a SciPy array that shares its memory (on the CPU)."""
    from scipy.sparse import csr_array

    parts = (weight.values(), weight.col_indices(), weight.crow_indices())
    return csr_array(tuple(part.detach().cpu().numpy() for part in parts), shape=weight.shape)


def connected_components(weight: Tensor) -> Tensor:
    """Component of every row, numbered from 0, shape (n_samples,)."""
    from scipy.sparse import csgraph

    _, component = csgraph.connected_components(to_scipy(weight), directed=False)
    return torch.from_numpy(component).long()
