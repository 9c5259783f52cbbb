"""Everything a table says of a clustering: how well it matches classes and cuts the graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from sklearn.utils import check_consistent_length

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.cuts import normalized_cut, ratio_cut
from prcut.numerics.matching import adjusted_rand, count_shared, match_counts, max_nmi
from prcut.numerics.objective import cluster_imbalance, hard_objective

__all__ = ["Scores", "hungarian_accuracy", "match_clusters", "score_clusters"]


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
    """Return all scores of a clustering, −1 being noise; no cuts where there is no graph."""
    labels, clusters = _check_labelings(labels, clusters)
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
    """Return the fraction of rows in the cluster that is matched with their class, one to one.

    Rows of noise (−1) and of clusters beyond the number of classes count as wrong.

    >>> hungarian_accuracy(np.array([0, 0, 1, 1, 1]), np.array([7, 7, 3, 3, -1]))
    0.8
    """
    labels, clusters = _check_labelings(labels, clusters)
    _, _, shared = _shared(labels, clusters)
    return float(shared[match_counts(shared)].sum() / len(labels))


def match_clusters(labels: np.ndarray, clusters: np.ndarray) -> dict[int, int]:
    """Match clusters with classes one to one so that the most rows are right.

    Noise (−1) and clusters beyond the number of classes are left out.

    >>> match_clusters(np.array([0, 0, 1, 1, 1]), np.array([7, 7, 3, 3, -1]))
    {7: 0, 3: 1}
    """
    classes, names, shared = _shared(*_check_labelings(labels, clusters))
    matched = zip(*match_counts(shared), strict=True)
    return {int(names[j]): int(classes[i]) for i, j in matched}


def _check_labelings(labels: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both as int64 vectors of one length, with noise as −1."""
    check_consistent_length(labels, clusters)
    return np.asarray(labels, np.int64), np.maximum(np.asarray(clusters, np.int64), -1)


def _shared(labels: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the classes, the clusters and the count of rows that they share, without noise."""
    kept = clusters >= 0
    classes, row_class = np.unique(labels[kept], return_inverse=True)
    names, row_cluster = np.unique(clusters[kept], return_inverse=True)
    shared = count_shared(row_class, row_cluster, len(classes), len(names))
    return classes, names, shared
