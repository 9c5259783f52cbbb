r"""The exact expected ratio cut of cluster probabilities, and an upper bound on it.

With :math:`a_i` independent Bernoulli(:math:`p_i`), one cluster's ratio cut is random. The paper
writes its expectation as an integral per pair and calls it intractable. All pairs share one
integrand (errata 8): with :math:`g(t) = Σ_m \log(1 − p_m t)`, :math:`u = p/(1−pt)` and
:math:`v = (1−p)/(1−pt)`,

.. math:: E[RC] = ½ ∫_0^1 e^{g(t)}\; u^⊤ W v \; dt

which costs one sparse product per quadrature node.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from prcut.errors import check_positive_int
from prcut.numerics.cuts import Reduction, reduce_clusters
from prcut.numerics.objective import soft_graph_ratio_cut
from prcut.numerics.sparse import degrees, for_many_products
from prcut.numerics.validation import check_graph_weight, check_probs

N_NODES = 32
"""Quadrature nodes: relative error below 1e-10 in every case measured."""

# the integrand is below e^{−λt}, λ = Σp: beyond 40/λ less than e⁻⁴⁰ of it is left
_TAIL_EXPONENT = 40.0
# nodes per sparse product: enough to share the reading of its indices, few enough to stay in cache
_COLUMNS = 16


def expected_ratio_cut(
    weight: Tensor, probs: Tensor, *, n_nodes: int = N_NODES, reduction: Reduction = "sum"
) -> Tensor:
    """Compute the expected ratio cut when every row draws its cluster from its row of ``probs``.

    Exact up to the quadrature's error, in float64, in O(n_nodes × nnz × n_clusters) time and
    O(n_samples) memory beside ``probs``. Differentiable in ``probs`` at the cost of the value.

    Parameters
    ----------
    weight : sparse CSR tensor, shape (n_samples, n_samples)
        Symmetric similarities without diagonal.
    probs : tensor, shape (n_samples, n_clusters), entries in [0, 1]
    n_nodes : int
        Gauss-Legendre nodes. ``n_samples // 2 + 1`` are exact; 32 suffice at any size.
    reduction : {"sum", "none"}
        The total, or one value per cluster.

    Examples
    --------
    >>> from prcut import SimilarityGraph
    >>> edge = SimilarityGraph.from_neighbors([[1], [0]])
    >>> fair = torch.full((2, 2), 0.5)  # cut with probability ½, its ratio cut is then 1
    >>> round(expected_ratio_cut(edge.weight, fair).item(), 12)
    0.5
    """
    check_probs(probs, check_graph_weight(weight))
    check_positive_int("n_nodes", n_nodes)
    per_cluster: Tensor = _ExpectedRatioCut.apply(  # type: ignore[no-untyped-call]
        weight, probs, n_nodes
    )
    return reduce_clusters(per_cluster, reduction)


class _ExpectedRatioCut(torch.autograd.Function):
    """Value and gradient from the same sparse products, cluster by cluster, some nodes at a time.

    From v = 1 − (1−t)u follows Wu = (d − Wv)/(1−t), so with S = uᵀWv the derivative of
    e^g S in p_i is e^g [ (2(Wv)_i − d_i)/(1−p_i t)² − t S/(1−p_i t) ].
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, probs: Tensor, n_nodes: int) -> Tensor:
        weight, exact = for_many_products(weight), probs.double()
        quadrature = np.stack(np.polynomial.legendre.leggauss(n_nodes)) / 2
        unit_quadrature = torch.from_numpy(quadrature).to(exact)
        per_cluster = exact.new_zeros(probs.shape[1])
        degree = degrees(weight)[:, None]
        gradient = torch.zeros_like(exact) if ctx.needs_input_grad[1] else None
        for cluster, p in enumerate(exact.T.contiguous()):
            end = (_TAIL_EXPONENT / p.sum()).clamp_max(1.0)  # Σp = 0 gives inf, hence 1
            for unit_node, unit_weight in unit_quadrature.split(_COLUMNS, dim=1):
                node = end * (unit_node + 0.5)
                survive = 1 - torch.outer(p, node)
                links = weight @ ((1 - p)[:, None] / survive)  # Wv, a column per node
                product = p @ (links / survive)  # uᵀWv
                scale = 0.5 * end * unit_weight * survive.log().sum(0).exp()
                per_cluster[cluster] += scale @ product
                if gradient is not None:
                    slope = (2 * links - degree) / survive**2 @ scale
                    gradient[:, cluster] += slope - survive.reciprocal() @ (scale * node * product)
        if gradient is not None:
            ctx.save_for_backward(gradient.to(probs.dtype))
        return per_cluster

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return None, grad.to(gradient.dtype) * gradient, None


def ratio_cut_upper_bound(weight: Tensor, probs: Tensor, *, reduction: Reduction = "sum") -> Tensor:
    r"""Bound :func:`expected_ratio_cut` from above at the cost of one sparse product.

    A pair's integral is at most :math:`∫_0^1 (1 − αt)^m dt = \frac{1−(1−α)^{m+1}}{(m+1)α}` with
    m = n − 2 and α the mean of the other probabilities (errata 7), which the two largest
    probabilities bound for all pairs at once. The result is the surrogate times a factor between
    1 and 2 that tends to 1 as clusters grow; 2 is the best constant (errata 6), the paper's is e².

    >>> from prcut import SimilarityGraph
    >>> edge = SimilarityGraph.from_neighbors([[1], [0]])
    >>> ratio_cut_upper_bound(edge.weight, torch.full((2, 2), 0.5)).item()
    0.5
    """
    n_samples = check_graph_weight(weight)
    check_probs(probs, n_samples)
    exact = probs.double()
    surrogate = soft_graph_ratio_cut(weight, exact, reduction="none")
    size = exact.sum(0)
    others = size - exact.topk(min(2, n_samples), dim=0).values.sum(0)
    limits = torch.finfo(torch.float64)  # the closed form is 0/0 at 0 and not smooth at 1
    alpha = (others / max(n_samples - 2, 1)).clamp(limits.tiny, 1 - limits.eps)
    power = max(n_samples - 1, 1)
    integral = -torch.expm1(power * torch.log1p(-alpha)) / (power * alpha)
    return reduce_clusters(surrogate * size * integral, reduction)
