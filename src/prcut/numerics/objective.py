r"""The objective J: the ratio cut's surrogate for probabilities, the balance term, and hard labels.

For one cluster with probabilities :math:`p` and node weights :math:`ω` (1, or the degree for the
normalised cut), the surrogate is

.. math:: ½ \frac{p^⊤ W (1 − p)}{Σ_i ω_i p_i}
          = ½ \frac{Σ_{i<j} W_{ij} (p_i + p_j − 2 p_i p_j)}{Σ_i ω_i p_i}

It equals the ratio cut for hard assignments and is within O(1/n) of its expectation otherwise. It
is *not* an upper bound (errata 6): :func:`prcut.numerics.expectation.ratio_cut_upper_bound` is.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from prcut.numerics.cuts import Reduction, cluster_cuts, reduce_clusters
from prcut.numerics.validation import check_graph_weight, check_node_weight, check_probs

# numbers of an array that stay in the cache from one pass over them to the next
_VALUES_IN_CACHE = 1 << 17
# Smaller fractions of the sum of all sizes are rounding. Relative, since weights have any unit; one
# row in 2³¹ is far above it
_LEAST_FRACTION = 1e-12
# products of smaller probabilities are subnormal, for which a processor takes many times as long
_SMALLEST_PROB = 4e-18


def soft_ratio_cut(
    weight: Tensor, source_probs: Tensor, target_probs: Tensor, cluster_mass: Tensor
) -> Tensor:
    r"""Compute the surrogate on pairs, the form that training uses (paper, eq. 8; errata 1).

    .. math:: ½ Σ_ℓ \frac{Σ_a w_a (s_{aℓ} + t_{aℓ} − 2 s_{aℓ} t_{aℓ})}{mass_ℓ}

    The caller sets the scale. Every undirected edge once, with the masses :math:`Σ_i p_{iℓ}`, gives
    the surrogate of the ratio cut itself. Weights that average to 1, divided by the number of
    pairs, with the masses :math:`p̄_ℓ`, give :math:`(n/‖W‖_1) Σ_ℓ cut_ℓ/|C_ℓ|`, whose value does
    not depend on the size of the graph.

    Parameters
    ----------
    weight : tensor, shape (n_pairs,)
    source_probs, target_probs : tensors, shape (n_pairs, n_clusters)
        Cluster probabilities at the two ends of every pair; of several heads, shape
        (n_pairs, n_clusters, n_heads), for one value per head.
    cluster_mass : tensor, shape (n_clusters,) or (n_clusters, n_heads)

    Examples
    --------
    >>> source, target = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> soft_ratio_cut(torch.ones(2), source, target, torch.tensor([2.0, 2.0])).item()
    0.5
    """
    return divide_by_mass(soft_pair_cuts(weight, source_probs, target_probs), cluster_mass)


def soft_pair_cuts(weight: Tensor, source_probs: Tensor, target_probs: Tensor) -> Tensor:
    """Compute ½ Σ w(s + t − 2st) for every cluster and head."""
    split_probs = (source_probs + target_probs).addcmul_(source_probs, target_probs, value=-2)
    cuts = weight.to(split_probs.dtype) @ split_probs.flatten(1)
    return 0.5 * cuts.view(split_probs.shape[1:])


def divide_by_mass(cuts: Tensor, cluster_mass: Tensor) -> Tensor:
    """Sum the cuts over the masses; a cluster whose probabilities underflow everywhere adds 0."""
    return (cuts / nonzero_mass(cluster_mass)).sum(0)


def soft_pair_sums(weight: Tensor, ends: Tensor, node_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Compute :func:`soft_pair_cuts` and the masses Σ ωp of pairs whose rows are all different.

    ``ends`` are the probabilities of the sources and of the targets, and alone have a gradient.
    """
    weights = weight.to(ends.dtype), node_weight.to(ends.dtype)
    cuts, masses = _PairSums.apply(ends.flatten(2), *weights)  # type: ignore[no-untyped-call]
    return cuts.view(ends.shape[2:]), masses.view(ends.shape[2:])


class _PairSums(torch.autograd.Function):
    """Both sums, with slopes in one array: w(½ − t), w(½ − s), and ω.

    With a thousand clusters passes over memory are most of the loss. Autograd would make twice as
    many, and the pages of its arrays, given back and asked for again in each step, cost as much.
    """

    @staticmethod
    def forward(
        ctx: Any, ends: Tensor, weight: Tensor, node_weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(ends, weight, node_weight)
        parts = (soft_pair_cuts(w, *part) for part, w in _split_rows(ends, weight))
        cuts = sum(parts, start=ends.new_zeros(ends.shape[2]))
        return cuts, node_weight.flatten() @ ends.flatten(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_cuts: Tensor, of_masses: Tensor) -> tuple[Tensor, None, None]:
        ends, weight, node_weight = ctx.saved_tensors
        slopes = torch.empty_like(ends)
        parts = _split_rows(ends, weight[:, None], node_weight[..., None], slopes)
        for (s, t), w, (omega_s, omega_t), (of_s, of_t) in parts:
            half = w * (0.5 * of_cuts)
            torch.addcmul(half, half, t, value=-2, out=of_s).addcmul_(omega_s, of_masses)
            torch.addcmul(half, half, s, value=-2, out=of_t).addcmul_(omega_t, of_masses)
        return slopes, None, None


def _split_rows(ends: Tensor, weight: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    n_rows = max(1, _VALUES_IN_CACHE // ends.shape[2])
    columns = [ends.split(n_rows, 1), weight.split(n_rows)]
    return zip(*columns, *(other.split(n_rows, 1) for other in others), strict=True)


def soft_graph_ratio_cut(
    weight: Tensor,
    probs: Tensor,
    *,
    node_weight: Tensor | None = None,
    reduction: Reduction = "sum",
) -> Tensor:
    """Compute the surrogate over a whole sparse graph: one product, gradient included.

    Parameters
    ----------
    weight : sparse CSR tensor, shape (n_samples, n_samples)
        Symmetric similarities without diagonal; no gradient flows to them.
    probs : tensor, shape (n_samples, n_clusters)
    node_weight : tensor, shape (n_samples,), optional
        1 by default; the degree gives the surrogate of the normalised cut.
    reduction : {"sum", "none"}
        The total, or one value per cluster.

    Examples
    --------
    >>> from prcut import SimilarityGraph
    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [2]])
    >>> probs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> soft_graph_ratio_cut(path.weight, probs).item()
    0.5
    """
    n_samples = check_graph_weight(weight)
    check_probs(probs, n_samples)
    if node_weight is None:
        node_weight = probs.new_ones(n_samples)
    else:
        check_node_weight(node_weight, n_samples)
        node_weight = node_weight.to(probs.dtype)
    mass = nonzero_mass(node_weight @ probs)
    return reduce_clusters(soft_cuts(weight.to(probs.dtype), probs) / mass, reduction)


def soft_cuts(weight: Tensor, probs: Tensor) -> Tensor:
    """Compute ½ pᵀW(1−p) for every column of ``probs``, W symmetric: one product, slope included.

    >>> from prcut import SimilarityGraph
    >>> pair = SimilarityGraph.from_neighbors([[1], [0]])
    >>> soft_cuts(pair.weight, torch.eye(2)).tolist()
    [0.5, 0.5]
    """
    cuts: Tensor = _SoftCuts.apply(weight, probs)  # type: ignore[no-untyped-call]
    return cuts


class _SoftCuts(torch.autograd.Function):
    """The closed gradient (errata 4): autograd would pay a second product."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, probs: Tensor) -> Tensor:
        # a column of ones makes the same product give the degrees; 1 − P goes in, not P, because
        # d − WP would cancel where almost nothing is cut
        product = weight @ torch.cat([1 - probs, torch.ones_like(probs[:, :1])], dim=1)
        outside, degree = product[:, :-1], product[:, -1:]
        if ctx.needs_input_grad[1]:
            # W is symmetric, so ∂ pᵀW(1−p) = W(1−p) − Wp = 2W(1−p) − d
            ctx.save_for_backward(outside - 0.5 * degree)
        return 0.5 * (probs * outside).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (slope,) = ctx.saved_tensors
        return None, grad * slope


def softmax(logits: Tensor) -> Tensor:
    """Compute the softmax of each row over the clusters, the second dimension, at least 4e-18."""
    probs: Tensor = _Softmax.apply(logits)  # type: ignore[no-untyped-call]
    return probs


class _Softmax(torch.autograd.Function):
    # over fewer columns than a vector register holds, torch's softmax on the CPU is scalar: with
    # 10 columns the loss takes twice as long as with 32, unless the softmax runs down the columns

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.is_narrow = logits.ndim == 2 and logits.shape[1] < 16
        probs = logits.T.softmax(0).T if ctx.is_narrow else logits.softmax(1)
        ctx.save_for_backward(probs.clamp_min_(_SMALLEST_PROB))
        return probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (probs,) = ctx.saved_tensors
        slope = torch._softmax_backward_data
        if ctx.is_narrow:
            return slope(grad.T, probs.T, 0, probs.dtype).T
        return slope(grad, probs, 1, probs.dtype)


def carry_batch_gradient(running_mass: Tensor, batch_mass: Tensor) -> Tensor:
    r"""Return the running mass with the gradient of the batch's mass (errata 3).

    Dividing by it makes autograd give the paper's batch gradient (eq. 9), for one cluster's sum
    :math:`∂/∂p_i = \frac{2}{p̄} Σ_j W_{ij}(1−2p_j) − \frac{1}{n p̄^2} Σ_{ab} W_{ab}(p_a+p_b−2p_ap_b)`
    with :math:`p̄` the running mass and n the rows of the batch.
    """
    return running_mass + (batch_mass - batch_mass.detach())


def cluster_imbalance(cluster_mass: Tensor) -> Tensor:
    r"""Compute :math:`D_{KL}(p̄ ‖ 1/k) = \log k − H(p̄)`: 0 when balanced, log k at collapse.

    The clusters come first: a mass of shape (n_clusters, n_heads) has one value per head.

    >>> cluster_imbalance(torch.tensor([0.5, 0.5])).item()
    0.0
    """
    n_clusters = len(cluster_mass)
    return math.log(n_clusters) + (cluster_mass * nonzero_mass(cluster_mass).log()).sum(0)


def balance_factor(balance_weight: float, n_clusters: int) -> float:
    r"""Return the factor γ of the balance term at which an empty cluster costs ``balance_weight``.

    An empty cluster, the others being equal, has :math:`D_{KL} = \log\frac{k}{k-1}`; a cluster of
    random rows adds 1 to the cut. So a weight above 1 never empties a cluster and means the same
    at every k, which a fixed γ does not (errata, "Consequences of scale").

    >>> [round(balance_factor(1.0, k), 1) for k in (2, 10, 100, 1000)]
    [1.4, 9.5, 99.5, 999.5]
    """
    return balance_weight / math.log(n_clusters / (n_clusters - 1)) if n_clusters > 1 else 0.0


class ClusterCost(NamedTuple):
    r"""The cost of a cluster, a function of its cut and its size, and J of a partition.

    J is a sum over the clusters, plus a constant: the effect of a move or a merge follows from the
    cuts and sizes of the clusters that it touches.

    .. math:: J = Σ_ℓ \left(\frac{n}{‖W‖_1} \frac{cut_ℓ}{|C_ℓ|}
              + γ \frac{|C_ℓ|}{n} \log \frac{|C_ℓ|}{n}\right) + γ \log k
    """

    n_samples: float
    scale: float
    factor: float
    n_clusters: int

    @classmethod
    def of(
        cls, n_samples: float, total: float, n_clusters: int, *, balance_weight: float
    ) -> "ClusterCost":
        """Make the cost for a graph whose weights, counted in both directions, sum to ``total``."""
        scale = n_samples / total if total > 0 else 0.0
        return cls(n_samples, scale, balance_factor(balance_weight, n_clusters), n_clusters)

    def __call__(self, cuts: Any, sizes: Any) -> Any:
        """Return the cost of each cluster, in any shape; an empty cluster costs nothing."""
        # the search compares these numbers: another order of operations finds other partitions
        sizes = np.maximum(sizes, _LEAST_FRACTION * self.n_samples)
        fraction = sizes / self.n_samples
        return self.scale * cuts / sizes + self.factor * fraction * np.log(fraction)

    def objective(self, cuts: np.ndarray, sizes: np.ndarray) -> float:
        """Return J of a partition whose clusters have these cuts and sizes."""
        used = sizes > 0
        costs = self(cuts[used], sizes[used])
        return float(costs.sum() + self.factor * math.log(self.n_clusters))


def hard_objective(
    weight: Tensor, labels: Tensor, n_clusters: int, *, balance_weight: float = 2.0
) -> float:
    r"""Return J of a hard labelling: what training minimises, and what decides between partitions.

    .. math:: J(C) = \frac{n}{‖W‖_1} Σ_ℓ \frac{cut(C_ℓ)}{|C_ℓ|} + γ D_{KL}(|C|/n ‖ 1/k)

    Parameters
    ----------
    weight : sparse CSR tensor, shape (n_samples, n_samples)
    labels : integer tensor, shape (n_samples,)
    n_clusters : int
    balance_weight : float
        Sets γ: see :func:`balance_factor`.

    Examples
    --------
    >>> from prcut import SimilarityGraph
    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [2]])
    >>> round(hard_objective(path.weight, torch.tensor([0, 0, 1, 1]), 2), 4)  # 4/6 · (½ + ½)
    0.6667
    """
    cuts = cluster_cuts(weight, labels, n_clusters)
    sizes = torch.bincount(labels.long(), minlength=n_clusters)
    total = float(weight.values().double().sum())
    cost = ClusterCost.of(len(labels), total, n_clusters, balance_weight=balance_weight)
    return cost.objective(cuts.cpu().numpy(), sizes.cpu().numpy())


def nonzero_mass(cluster_mass: Tensor) -> Tensor:
    """Let a cluster whose probabilities underflow everywhere add 0 / tiny = 0, not NaN."""
    return cluster_mass.clamp_min(torch.finfo(cluster_mass.dtype).tiny)
