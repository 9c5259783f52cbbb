"""The ratio cut of labels and of probabilities, as pure functions of tensors."""

from prcut.numerics.cuts import cluster_cuts
from prcut.numerics.expectation import ratio_cut_upper_bound
from prcut.numerics.objective import balance_factor, hard_objective, soft_graph_ratio_cut

__all__ = [
    "balance_factor",
    "cluster_cuts",
    "hard_objective",
    "ratio_cut_upper_bound",
    "soft_graph_ratio_cut",
]
