r"""A lower bound on every ratio cut, which certifies how far from optimal a partition is at most.

The indicators of k non-empty clusters, scaled to unit length, are orthonormal columns F with
:math:`RC = ½ Tr(F^⊤ L F)`, so by Ky Fan no ratio cut into k clusters is below half the sum of the k
smallest eigenvalues of L = D − W. With node weights ω the same holds for
:math:`Ω^{-1/2} L Ω^{-1/2}` and the cut over Σω (the degree: the normalised cut).
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prcut.errors import InvalidInputError, PRCutError, check_positive_int
from prcut.numerics.sparse import to_scipy
from prcut.numerics.validation import check_graph_weight, check_node_weight

# below this a dense decomposition takes seconds and misses nothing
_DENSE_SAMPLES = 2000
# extra vectors in the iterated block: the wanted ones converge faster, multiplicities are found
_GUARD_VECTORS = 5


class SpectralBound(NamedTuple):
    """A lower bound on every ratio cut into ``len(eigenvalues)`` non-empty clusters."""

    value: float
    """Half the sum of the eigenvalues, each lowered by the residual."""
    eigenvalues: Tensor
    """The k smallest eigenvalues, ascending, shape (n_clusters,)."""
    residual: float
    """Largest possible error of each eigenvalue."""

    def ratio(self, cut: float) -> float:
        """Return an upper bound on ``cut`` / optimum; inf when the bound is 0 and the cut is not.

        >>> SpectralBound(2.0, torch.zeros(1), 0.0).ratio(3.0)
        1.5
        """
        if cut <= self.value:
            return 1.0
        return cut / self.value if self.value > 0 else float("inf")


def spectral_lower_bound(
    weight: Tensor,
    n_clusters: int,
    *,
    node_weight: Tensor | None = None,
    tolerance: float = 1e-5,
    max_iter: int = 100,
) -> SpectralBound:
    """Bound the ratio cut from below (with degrees as ``node_weight``: the normalised cut).

    Up to 2000 rows every eigenvalue is computed. Beyond that, LOBPCG iterates a block of vectors
    until its residuals fall to ``tolerance`` × the mean diagonal; connected components give the
    zero eigenvalues exactly. Stopping early only loosens the bound, as the residual is subtracted.
    The bound assumes that the random block did not miss an eigenvalue.

    Parameters
    ----------
    weight : sparse CSR tensor, shape (n_samples, n_samples)
    n_clusters : int
        Number of non-empty clusters of the partitions that are bounded.
    node_weight : tensor, shape (n_samples,), optional
        Positive wherever the row has an edge.

    Examples
    --------
    >>> from prcut import SimilarityGraph, ratio_cut
    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [2]])
    >>> bound = spectral_lower_bound(path.weight, 2)
    >>> cut = ratio_cut(path.weight, torch.tensor([0, 0, 1, 1])).item()
    >>> round(bound.value, 3), round(bound.ratio(cut), 2)
    (0.293, 1.71)
    """
    from scipy.sparse import csr_array, diags
    from scipy.sparse.csgraph import connected_components

    n_samples = check_graph_weight(weight)
    check_positive_int("n_clusters", n_clusters)
    if n_clusters > n_samples:
        raise InvalidInputError(f"{n_clusters=} must be <= {n_samples=}.")
    matrix = to_scipy(weight).astype(np.float64)
    degree = np.asarray(matrix.sum(1)).reshape(-1)
    scale = diags(_inverse_root(degree, node_weight))
    laplacian = csr_array(scale @ (diags(degree) - matrix) @ scale)
    residual = 0.0
    if n_samples <= max(_DENSE_SAMPLES, 5 * (n_clusters + _GUARD_VECTORS)):
        try:
            eigenvalues = np.linalg.eigvalsh(laplacian.toarray())[:n_clusters]
        except np.linalg.LinAlgError as error:
            raise PRCutError(
                "the eigenvalues of the graph do not converge: its weights differ by too many "
                "orders of magnitude; clip them."
            ) from error
    else:
        _, component = connected_components(matrix, directed=False)
        n_zero = min(int(component.max()) + 1, n_clusters)
        eigenvalues = np.zeros(n_clusters)
        if n_zero < n_clusters:
            # orthonormal null vectors, one per connected component
            null = np.zeros((n_samples, component.max() + 1))
            null[np.arange(n_samples), component] = 1 / scale.diagonal()
            null /= np.linalg.norm(null, axis=0)
            eigenvalues[n_zero:], residual = _smallest_eigenvalues(
                laplacian, null, n_clusters - n_zero, tolerance, max_iter
            )
    lowered = np.maximum(eigenvalues - residual, 0)
    return SpectralBound(0.5 * float(lowered.sum()), torch.from_numpy(eigenvalues), residual)


def _inverse_root(degree: np.ndarray, node_weight: Tensor | None) -> np.ndarray:
    """Return Ω^{-1/2}; a row without edges keeps its zero eigenvalue whatever its weight."""
    if node_weight is None:
        return np.ones(len(degree))
    check_node_weight(node_weight, len(degree))
    given = node_weight.detach().cpu().double().numpy()
    if ((given == 0) & (degree > 0)).any():
        raise InvalidInputError(
            "node_weight must be > 0 in every row that has an edge; remove the rows of weight 0."
        )
    root: np.ndarray = np.where(given > 0, given, 1.0) ** -0.5
    return root


def _smallest_eigenvalues(
    laplacian: Any, null: np.ndarray, n_wanted: int, tolerance: float, max_iter: int
) -> tuple[np.ndarray, float]:
    """Return the smallest eigenvalues orthogonal to ``null``, ascending, and their error."""
    from scipy.sparse import diags
    from scipy.sparse.linalg import lobpcg

    diagonal = laplacian.diagonal()
    jacobi = diags(1 / np.where(diagonal > 0, diagonal, 1.0))  # hubs span orders of magnitude
    n_samples = len(diagonal)
    start = np.random.default_rng(0).standard_normal((n_samples, n_wanted + _GUARD_VECTORS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # not converged: the residual accounts for it
        values, vectors = lobpcg(
            laplacian,
            start,
            M=jacobi,
            Y=null,
            tol=tolerance * float(diagonal.mean()),
            maxiter=max_iter,
            largest=False,
        )
    wanted = np.argsort(values)[:n_wanted]
    values, vectors = values[wanted], vectors[:, wanted]
    # Kahan: as many distinct eigenvalues lie within the spectral norm of AV − VΘ of the values
    return values, float(np.linalg.norm(laplacian @ vectors - vectors * values, ord=2))
