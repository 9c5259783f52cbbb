r"""A lower bound on every ratio cut, which certifies how far from optimal a partition is at most.

The indicators of k non-empty clusters, scaled to unit length, are orthonormal columns F with
:math:`RC = ½ Tr(F^⊤ L F)`, so by Ky Fan no ratio cut into k clusters is below half the sum of the k
smallest eigenvalues of L = D − W. With node weights ω the same holds for
:math:`Ω^{-1/2} L Ω^{-1/2}` and the cut over Σω (the degree: the normalised cut).
"""

import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prcut.errors import InvalidInputError, PRCutError, check_positive_int
from prcut.numerics.sparse import connected_components, degrees, for_many_products
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
    n_samples = check_graph_weight(weight)
    check_positive_int("n_clusters", n_clusters)
    if n_clusters > n_samples:
        raise InvalidInputError(f"{n_clusters=} must be <= {n_samples=}.")
    weight = for_many_products(weight.detach().cpu())
    degree = degrees(weight)
    scale = _inverse_root(degree, node_weight)
    if n_samples <= max(_DENSE_SAMPLES, 5 * (n_clusters + _GUARD_VECTORS)):
        laplacian = torch.diag(degree) - weight.to_dense()
        try:
            eigenvalues = torch.linalg.eigvalsh(scale[:, None] * laplacian * scale)[:n_clusters]
        except RuntimeError as error:  # torch's LinAlgError
            raise PRCutError(
                "the eigenvalues of the graph do not converge: its weights differ by too many "
                "orders of magnitude; clip them."
            ) from error
        residual = 0.0
    else:
        eigenvalues, residual = _smallest_eigenvalues(
            weight, degree, scale, n_clusters, tolerance, max_iter
        )
    lowered = (eigenvalues - residual).clamp_min(0)
    return SpectralBound(0.5 * float(lowered.sum()), eigenvalues, residual)


def _inverse_root(degree: Tensor, node_weight: Tensor | None) -> Tensor:
    """Return Ω^{-1/2}; a row without edges keeps its zero eigenvalue whatever its weight."""
    if node_weight is None:
        return torch.ones_like(degree)
    check_node_weight(node_weight, len(degree))
    node_weight = node_weight.cpu().double()
    if bool(((node_weight == 0) & (degree > 0)).any()):
        raise InvalidInputError(
            "node_weight must be > 0 in every row that has an edge; remove the rows of weight 0."
        )
    return torch.where(node_weight > 0, node_weight, 1.0).rsqrt()


def _smallest_eigenvalues(
    weight: Tensor, degree: Tensor, scale: Tensor, n_clusters: int, tolerance: float, max_iter: int
) -> tuple[Tensor, float]:
    """Return the smallest eigenvalues of a large scaled Laplacian and their largest error."""
    from scipy.sparse.linalg import lobpcg

    component = connected_components(weight)
    n_zero = min(int(component.max()) + 1, n_clusters)
    eigenvalues = torch.zeros(n_clusters, dtype=torch.float64)
    if n_zero == n_clusters:
        return eigenvalues, 0.0
    diagonal = degree * scale**2

    # Jacobi: hubs make the diagonal span orders of magnitude
    jacobi = np.where(diagonal > 0, diagonal, 1.0)[:, None]

    def apply(block: np.ndarray) -> np.ndarray:
        scaled = scale[:, None] * torch.from_numpy(block)
        return np.asarray(scale[:, None] * (degree[:, None] * scaled - weight @ scaled))

    n_wanted = n_clusters - n_zero
    start = np.random.default_rng(0).standard_normal((len(degree), n_wanted + _GUARD_VECTORS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # not converged: the residual accounts for it
        values, vectors = lobpcg(
            apply,
            start,
            M=lambda block: block / jacobi,
            Y=_null_vectors(component, scale),
            tol=tolerance * float(diagonal.mean()),
            maxiter=max_iter,
            largest=False,
        )
    wanted = np.argsort(values)[:n_wanted]
    values, vectors = values[wanted], vectors[:, wanted]
    eigenvalues[n_zero:] = torch.from_numpy(values)
    # Kahan: as many distinct eigenvalues lie within the spectral norm of AV − VΘ of the values
    return eigenvalues, float(np.linalg.norm(apply(vectors) - vectors * values, ord=2))


def _null_vectors(component: Tensor, scale: Tensor) -> np.ndarray:
    """Return orthonormal null vectors of the scaled Laplacian, one per connected component."""
    null = torch.zeros(len(component), int(component.max()) + 1, dtype=torch.float64)
    null[torch.arange(len(component)), component] = scale.reciprocal()
    return np.asarray(null / null.norm(dim=0))
