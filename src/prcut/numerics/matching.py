"""Scores of how well clusters match classes, or another clustering of the same rows."""

from __future__ import annotations

import numpy as np


def count_shared(
    labels: np.ndarray, clusters: np.ndarray, n_labels: int, n_clusters: int
) -> np.ndarray:
    """Count the rows that each class and cluster share, int64, shape (n_labels, n_clusters).

    Rows with a label of −1 belong to none.
    """
    both = (labels.astype(np.int64) * n_clusters + clusters)[(labels >= 0) & (clusters >= 0)]
    return np.bincount(both, minlength=n_labels * n_clusters).reshape(n_labels, n_clusters)


def match_counts(shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Match rows and columns of a table of counts one to one, so that the sum is largest."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(shared, maximize=True)
    return rows, columns


def max_nmi(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Divide the mutual information by the larger entropy; rows of noise form one cluster."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(labels, clusters, average_method="max"))


def shared_beyond_chance(
    labels: np.ndarray, clusters: np.ndarray, rng: np.random.Generator
) -> float:
    """Compute the adjusted mutual information, divided by the larger entropy.

    Many small clusters share information by chance. Its amount is measured on shuffled rows, since
    the exact expectation takes minutes for a thousand clusters of a million rows.

    Examples
    --------
    >>> labels = np.repeat(np.arange(4), 50)
    >>> shared_beyond_chance(labels, labels, np.random.default_rng(0))
    1.0
    """
    from sklearn.metrics import mutual_info_score

    by_chance = mutual_info_score(labels, rng.permutation(clusters))
    most = max(mutual_info_score(one, one) for one in (labels, clusters))
    if most == by_chance:
        return 1.0
    return float((mutual_info_score(labels, clusters) - by_chance) / (most - by_chance))


def adjusted_rand(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Compute the adjusted Rand index; rows of noise form one cluster.

    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([5, 5, 2, 2]))
    1.0
    """
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(labels, clusters))
