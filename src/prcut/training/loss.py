"""The loss as modules with a running cluster mass, for this training loop or your own."""

from typing import Any

import torch
from torch import Tensor, distributed, nn

from prcut.errors import InvalidInputError, check_positive_int
from prcut.numerics.objective import (
    balance_factor,
    carry_batch_gradient,
    cluster_imbalance,
    soft_ratio_cut,
)


class RunningClusterMass(nn.Module):
    """Cluster mass to divide by: a running average in value, the batch mean in gradient.

    A batch mean alone is too noisy to divide by when there are many clusters, an average over the
    whole history lags behind the assigner (errata 12); ``update_rate`` is the constant weight of
    the newest batch. Under torch.distributed the batch is the joined batch of all processes, in
    value and gradient.

    Parameters
    ----------
    n_clusters : int
    update_rate : float in (0, 1]
        The paper's β.
    n_heads : int
        Heads that each have a mass of their own.

    Examples
    --------
    >>> mass = RunningClusterMass(2, update_rate=0.5)
    >>> mass(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))  # half of (½, ½), half of (1, 0)
    tensor([0.7500, 0.2500])
    """

    running: Tensor

    def __init__(self, n_clusters: int, update_rate: float = 0.8, n_heads: int = 1) -> None:
        super().__init__()
        check_positive_int("n_clusters", n_clusters)
        check_positive_int("n_heads", n_heads)
        if not 0 < update_rate <= 1:
            raise InvalidInputError(f"{update_rate=} must be in (0, 1].")
        self.update_rate = update_rate
        shape = (n_clusters,) if n_heads == 1 else (n_clusters, n_heads)
        self.register_buffer("running", torch.full(shape, 1 / n_clusters))

    def forward(self, probs: Tensor, node_weight: Tensor | None = None) -> Tensor:
        """Update the running mass by a batch and return it, shape (n_clusters[, n_heads]).

        Parameters
        ----------
        probs : tensor, shape (n_rows, n_clusters) or (n_rows, n_clusters, n_heads)
            All rows of the batch, sources and targets alike.
        node_weight : tensor, shape (n_rows,), optional
            Weight of every row in the mean. With rows drawn uniformly: 1 (default) for the ratio
            cut, the degree for the normalised cut. With rows drawn in proportion to their degree:
            1/degree, and 1.
        """
        if node_weight is None:
            node_weight = probs.new_ones(len(probs))
        node_weight = node_weight.to(probs.dtype)
        return self.average(node_weight @ probs.flatten(1), node_weight.sum())

    def average(self, sums: Tensor, total: Tensor) -> Tensor:
        """Update the running mass by the weighted sums of a batch and the sum of its weights."""
        # summed over ranks together, since ranks may differ in both
        joined = _sum_over_ranks(torch.cat([sums.flatten(), total.to(sums.dtype)[None]]))
        batch_mass = (joined[:-1] / joined[-1]).view_as(self.running)
        with torch.no_grad():
            self.running.lerp_(batch_mass.to(self.running.dtype), self.update_rate)
        return carry_batch_gradient(self.running.to(sums.dtype), batch_mass)


def _sum_over_ranks(local: Tensor) -> Tensor:
    if distributed.is_available() and distributed.is_initialized():
        total: Tensor = _SumOverRanks.apply(local)  # type: ignore[no-untyped-call]
        return total
    return local


class _SumOverRanks(torch.autograd.Function):
    """Sum over processes whose gradient is summed too.

    Every process then holds the gradient of the *sum* of all losses; the mean over processes that
    DistributedDataParallel takes makes it that of the mean loss.
    """

    @staticmethod
    def forward(_ctx: Any, local: Tensor) -> Tensor:
        total = local.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone()
        distributed.all_reduce(total)
        return total


class RatioCutLoss(nn.Module):
    """Surrogate of the expected ratio cut of pairs, with the balance term and the running mass.

    Keep it beside your model and add its value to your loss; under DistributedDataParallel the
    cluster mass is that of all processes. Its terms are also functions:
    :func:`prcut.soft_ratio_cut`, :func:`prcut.cluster_imbalance`.

    Parameters
    ----------
    n_clusters : int
    balance_weight : float
        Penalty for an empty cluster: see :func:`prcut.numerics.objective.balance_factor`. It may
        be changed before any step, as by :func:`prcut.training.settings.relax_balance`.
    mass_update_rate : float
        Weight of the newest batch in the running cluster mass.
    n_heads : int
        Heads of the model, such as ``Assigner(…, n_heads=16)``, which are trained side by side.
        After a step ``by_head`` holds the loss of each.

    Examples
    --------
    >>> import torch
    >>> from prcut import Assigner
    >>> loss = RatioCutLoss(n_clusters=4)
    >>> assigner = Assigner(8, 4)
    >>> rows = torch.randn(6, 8)  # rows 0..2 are similar to rows 3..5
    >>> pairs = torch.tensor([[0, 1, 2], [3, 4, 5]])
    >>> loss(assigner.probs(rows), pairs).backward()
    """

    def __init__(
        self,
        n_clusters: int,
        balance_weight: float = 2.0,
        mass_update_rate: float = 0.8,
        n_heads: int = 1,
    ) -> None:
        super().__init__()
        self.cluster_mass = RunningClusterMass(n_clusters, mass_update_rate, n_heads)
        self.balance_weight = balance_weight
        self.by_head: Tensor | None = None

    def forward(
        self,
        probs: Tensor,
        pairs: Tensor,
        weight: Tensor | None = None,
        node_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss, a scalar: about ``n_clusters - 1`` for random labels.

        The losses of several heads are added.

        Parameters
        ----------
        probs : tensor, shape (n_rows, n_clusters) or (n_rows, n_clusters, n_heads)
        pairs : int64 tensor, shape (2, n_pairs)
            Similar rows: two views of one object, neighbours, or a batch of
            :class:`prcut.training.pairs.WalkPairs`.
        weight : tensor, shape (n_pairs,), optional
            Similarities, equal by default; they are scaled to the sum 1.
        node_weight : tensor, shape (n_rows,), optional
            As for :class:`prcut.training.RunningClusterMass`.
        """
        source, target = pairs
        weight = probs.new_ones(len(source)) if weight is None else weight
        mass = self.cluster_mass(probs, node_weight)
        cut = soft_ratio_cut(
            weight / weight.sum(),
            probs.index_select(0, source),
            probs.index_select(0, target),
            mass,
        )
        factor = balance_factor(self.balance_weight, len(mass))
        loss = cut + factor * cluster_imbalance(mass)
        self.by_head = loss.detach()
        return loss.sum()
