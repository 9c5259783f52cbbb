"""Everything a table says of a clustering: how well it matches classes and cuts the graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from prcut.cuts import normalized_cut, ratio_cut
from prcut.graph import SimilarityGraph
from prcut.matching import adjusted_rand, check_labelings, hungarian_accuracy, max_nmi
from prcut.objective import cluster_imbalance, hard_objective

__all__ = ["Scores", "score_clusters"]


class Scores(NamedTuple):
    """Everything a table says of one clustering."""

    acc: float
    nmi: float
    ari: float
    ratio_cut: float | None
    """None where rows were left out as noise: a cut is of a partition of all rows."""
    normalized_cut: float | None
    cut: float | None
    """Ratio cut in the unit of the objective: 2 n / ‖W‖₁ times as large."""
    imbalance: float | None
    """Divergence of the cluster sizes from equal ones; ``cut + γ imbalance`` is the objective."""
    used_clusters: int
    """Clusters with rows in them, noise not counted."""
    noise_share: float


def score_clusters(
    labels: np.ndarray, clusters: np.ndarray, graph: SimilarityGraph | None
) -> Scores:
    """All scores of a clustering, −1 being noise; no cuts where there is no graph."""
    labels, clusters = check_labelings(labels, clusters)
    noise = clusters < 0
    rc, nc, cut, imbalance = None, None, None, None
    if graph is not None and not noise.any():
        # numbered without gaps, as a method may call its clusters what it likes
        numbered = torch.from_numpy(np.unique(clusters, return_inverse=True)[1])
        rc = float(ratio_cut(graph.weight, numbered))
        nc = float(normalized_cut(graph.weight, numbered))
        sizes = numbered.bincount().double()
        cut = float(hard_objective(graph.weight, numbered, len(sizes), balance_weight=0.0))
        imbalance = float(cluster_imbalance(sizes / sizes.sum()))
    return Scores(
        hungarian_accuracy(labels, clusters),
        max_nmi(labels, clusters),
        adjusted_rand(labels, clusters),
        rc,
        nc,
        cut,
        imbalance,
        len(np.unique(clusters[~noise])),
        float(noise.mean()),
    )
