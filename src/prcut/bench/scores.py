"""How well clusters match classes, and how well they cut the graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from prcut.cuts import normalized_cut, ratio_cut
from prcut.errors import InvalidInputError
from prcut.graph import SimilarityGraph
from prcut.objective import cluster_imbalance, hard_objective

__all__ = [
    "Scores",
    "adjusted_rand",
    "hungarian_accuracy",
    "match_clusters",
    "max_nmi",
    "score_clusters",
]


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
    labels, clusters = _check(labels, clusters)
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


def hungarian_accuracy(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Share of rows that are right when every class is matched with one cluster at most.

    Rows of noise (−1) and of clusters beyond the number of classes are wrong.

    >>> hungarian_accuracy(np.array([0, 0, 1, 1, 1]), np.array([7, 7, 3, 3, -1]))
    0.8
    """
    labels, clusters = _check(labels, clusters)
    match = match_clusters(labels, clusters)
    right = sum(((clusters == one) & (labels == name)).sum() for one, name in match.items())
    return float(right / len(labels))


def match_clusters(labels: np.ndarray, clusters: np.ndarray) -> dict[int, int]:
    """The class of every cluster, one to one, so that the most rows are right.

    Noise (−1) and clusters beyond the number of classes have none.

    >>> match_clusters(np.array([0, 0, 1, 1, 1]), np.array([7, 7, 3, 3, -1]))
    {7: 0, 3: 1}
    """
    from scipy.optimize import linear_sum_assignment

    labels, clusters = _check(labels, clusters)
    kept = clusters >= 0
    classes, row_class = np.unique(labels[kept], return_inverse=True)
    names, row_cluster = np.unique(clusters[kept], return_inverse=True)
    shared = np.zeros((len(classes), len(names)), np.int64)
    np.add.at(shared, (row_class, row_cluster), 1)
    matched = linear_sum_assignment(shared, maximize=True)
    return {int(names[j]): int(classes[i]) for i, j in zip(*matched, strict=True)}


def max_nmi(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Mutual information over the larger entropy; all rows of noise are one cluster together."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(*_check(labels, clusters), average_method="max"))


def adjusted_rand(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Adjusted Rand index; all rows of noise are one cluster together."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(*_check(labels, clusters)))


def _check(labels: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as int64 vectors of one length, noise as −1."""
    labels, clusters = np.asarray(labels), np.asarray(clusters)
    for name, given in (("labels", labels), ("clusters", clusters)):
        if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) == 0:
            raise InvalidInputError(
                f"{name} have shape {given.shape} and dtype {given.dtype}, expected a vector of "
                "whole numbers, one per row."
            )
    if len(labels) != len(clusters):
        raise InvalidInputError(f"{len(clusters)} clusters for {len(labels)} labels.")
    return labels.astype(np.int64), np.maximum(clusters.astype(np.int64), -1)
