"""The whole loss as one module, for other people's training loops."""

from torch import Tensor, nn

from prcut.objective import balance_factor, cluster_imbalance, soft_ratio_cut
from prcut.running_mass import RunningClusterMass

__all__ = ["RatioCutLoss"]


class RatioCutLoss(nn.Module):
    """Surrogate of the expected ratio cut of pairs, with the balance term and the running mass.

    Put it beside your model and add its value to your loss; under DistributedDataParallel the
    cluster mass is that of all processes. The parts are functions too:
    :func:`prcut.soft_ratio_cut`, :func:`prcut.cluster_imbalance`.

    Parameters
    ----------
    n_clusters : int
    balance_weight : float
        What an empty cluster costs: see :func:`prcut.objective.balance_factor`.
    mass_update_rate : float
        Weight of the newest batch in the running cluster mass.

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
        self, n_clusters: int, balance_weight: float = 2.0, mass_update_rate: float = 0.8
    ) -> None:
        super().__init__()
        self.cluster_mass = RunningClusterMass(n_clusters, mass_update_rate)
        self.balance_factor = balance_factor(balance_weight, n_clusters)

    def forward(
        self,
        probs: Tensor,
        pairs: Tensor,
        weight: Tensor | None = None,
        node_weight: Tensor | None = None,
    ) -> Tensor:
        """The loss, a scalar: about ``n_clusters - 1`` for a model that knows nothing.

        Parameters
        ----------
        probs : tensor, shape (n_rows, n_clusters)
        pairs : int64 tensor, shape (2, n_pairs)
            Rows that are similar: two views of one thing, neighbours, a batch of
            :class:`prcut.pairs.WalkPairs`.
        weight : tensor, shape (n_pairs,), optional
            Similarities, equal by default; they are scaled to the sum 1.
        node_weight : tensor, shape (n_rows,), optional
            As for :class:`prcut.RunningClusterMass`.
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
        return cut + self.balance_factor * cluster_imbalance(mass)
