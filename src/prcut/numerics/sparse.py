"""How prcut makes and reads sparse matrices: torch CSR tensors with 64-bit indices."""

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def csr_tensor(
    indptr: Tensor, indices: Tensor, values: Tensor, n_columns: int | None = None
) -> Tensor:
    """Make a CSR tensor over the given arrays without copying them; square by default."""
    n_rows = indptr.numel() - 1
    shape = (n_rows, n_rows if n_columns is None else n_columns)
    with warnings.catch_warnings():
        # torch warns once per process that CSR is in beta; only its product with a dense matrix is
        # used here, and tests compare that with loops
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False)


def entry_rows(weight: Tensor) -> Tensor:
    """Return the row of every stored entry, shape (nnz,)."""
    # not repeat_interleave: on a busy machine it takes milliseconds for the smallest graph
    n_entries = weight.values().numel()
    starts = torch.bincount(weight.crow_indices()[1:-1], minlength=n_entries + 1)
    return starts[:n_entries].cumsum(0)


def degrees(weight: Tensor) -> Tensor:
    """Sum the rows in float64: a sum of millions of float32 terms loses digits in float32."""
    ones = torch.ones(weight.shape[0], dtype=torch.float64, device=weight.device)
    return weight.double() @ ones


def for_many_products(weight: Tensor) -> Tensor:
    """Copy to float64, with 32-bit indices where they suffice.

    The sparse product on the CPU reads 32-bit indices, and torch converts others at every call: at
    60,000 rows and 9.3M entries that took half the time of a product with 10 columns.
    """
    indptr, indices = weight.crow_indices(), weight.col_indices()
    if max(len(indices), len(indptr)) <= torch.iinfo(torch.int32).max:
        indptr, indices = indptr.int(), indices.int()
    return csr_tensor(indptr, indices, weight.values().double())


def to_scipy(weight: Tensor) -> "csr_array":
    """Return the matrix as a SciPy array, which shares its memory on the CPU."""
    from scipy.sparse import csr_array

    tensors = (weight.values(), weight.col_indices(), weight.crow_indices())
    return csr_array(tuple(t.detach().cpu().numpy() for t in tensors), shape=weight.shape)


def from_scipy(matrix: "csr_array") -> Tensor:
    """Make a CSR tensor with 64-bit indices that shares the memory of the values."""
    arrays = (matrix.indptr, matrix.indices, matrix.data)
    indptr, indices, values = (torch.from_numpy(array) for array in arrays)
    return csr_tensor(indptr.long(), indices.long(), values, matrix.shape[1])


def connected_components(weight: Tensor) -> Tensor:
    """Return the connected component of every row, numbered from 0, shape (n_samples,)."""
    from scipy.sparse import csgraph

    _, component = csgraph.connected_components(to_scipy(weight), directed=False)
    return torch.from_numpy(component).long()
