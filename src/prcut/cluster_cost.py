r"""What one cluster adds to the objective: the currency of merging, moving and refining.

The objective of a partition is a sum over its clusters (and a constant),

.. math:: J = Σ_ℓ \left(\frac{n}{‖W‖_1} \frac{cut_ℓ}{|C_ℓ|}
          + γ \frac{|C_ℓ|}{n} \log \frac{|C_ℓ|}{n}\right) + γ \log k

so what a move or a merge is worth follows from the cuts and sizes of the clusters it touches.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from prcut.objective import balance_factor

__all__ = ["ClusterCost"]


class ClusterCost(NamedTuple):
    """Cost of a cluster as a function of its cut and its size.

    >>> cost = ClusterCost.of(4, 6.0, 2, balance_weight=0.0)  # the path 0-1-2-3
    >>> round(float(cost.objective(np.array([1.0, 1.0]), np.array([2.0, 2.0]))), 4)
    0.6667
    """

    n_samples: int
    scale: float
    factor: float
    n_clusters: int

    @classmethod
    def of(
        cls, n_samples: int, total: float, n_clusters: int, *, balance_weight: float
    ) -> ClusterCost:
        """For a graph of so many rows whose weights, both directions, sum to ``total``."""
        scale = n_samples / total if total > 0 else 0.0
        return cls(n_samples, scale, balance_factor(balance_weight, n_clusters), n_clusters)

    def __call__(self, cuts: Any, sizes: Any) -> Any:
        """Of clusters with these cuts and sizes, in any shape; an empty one costs nothing."""
        sizes = np.maximum(sizes, 1e-9)
        share = sizes / self.n_samples
        return self.scale * cuts / sizes + self.factor * share * np.log(share)

    def objective(self, cuts: np.ndarray, sizes: np.ndarray) -> float:
        """Of a partition: :func:`prcut.objective.hard_objective`."""
        used = sizes > 0
        costs = self(cuts[used], sizes[used])
        return float(costs.sum() + self.factor * math.log(self.n_clusters))
