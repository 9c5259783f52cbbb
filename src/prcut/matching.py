"""How well clusters match classes, or another clustering of the same rows."""

from __future__ import annotations

import numpy as np

from prcut.errors import InvalidInputError

__all__ = [
    "adjusted_rand",
    "check_labelings",
    "count_shared",
    "hungarian_accuracy",
    "match_clusters",
    "match_counts",
    "max_nmi",
]


def hungarian_accuracy(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Share of rows that are right when every class is matched with one cluster at most.

    Rows of noise (−1) and of clusters beyond the number of classes are wrong.

    >>> hungarian_accuracy(np.array([0, 0, 1, 1, 1]), np.array([7, 7, 3, 3, -1]))
    0.8
    """
    labels, clusters = check_labelings(labels, clusters)
    _, _, shared = _shared(labels, clusters)
    return float(shared[match_counts(shared)].sum() / len(labels))


def match_clusters(labels: np.ndarray, clusters: np.ndarray) -> dict[int, int]:
    """The class of every cluster, one to one, so that the most rows are right.

    Noise (−1) and clusters beyond the number of classes have none.

    >>> match_clusters(np.array([0, 0, 1, 1, 1]), np.array([7, 7, 3, 3, -1]))
    {7: 0, 3: 1}
    """
    classes, names, shared = _shared(*check_labelings(labels, clusters))
    matched = zip(*match_counts(shared), strict=True)
    return {int(names[j]): int(classes[i]) for i, j in matched}


def count_shared(
    labels: np.ndarray, clusters: np.ndarray, n_labels: int, n_clusters: int
) -> np.ndarray:
    """Rows that a class and a cluster share, int64, shape (n_labels, n_clusters).

    >>> count_shared(np.array([0, 0, 1]), np.array([1, 1, 0]), 2, 2).tolist()
    [[0, 2], [1, 0]]
    """
    both = labels.astype(np.int64) * n_clusters + clusters
    return np.bincount(both, minlength=n_labels * n_clusters).reshape(n_labels, n_clusters)


def match_counts(shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of a table of counts, matched one to one so that the most is counted.

    >>> [part.tolist() for part in match_counts(np.array([[0, 2], [1, 0]]))]
    [[0, 1], [1, 0]]
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(shared, maximize=True)
    return rows, columns


def max_nmi(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Mutual information over the larger entropy; all rows of noise are one cluster together."""
    from sklearn.metrics import normalized_mutual_info_score

    both = check_labelings(labels, clusters)
    return float(normalized_mutual_info_score(*both, average_method="max"))


def adjusted_rand(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Adjusted Rand index; all rows of noise are one cluster together."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(*check_labelings(labels, clusters)))


def check_labelings(labels: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def _shared(labels: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes, clusters, and the rows that each two share; noise left out."""
    kept = clusters >= 0
    classes, row_class = np.unique(labels[kept], return_inverse=True)
    names, row_cluster = np.unique(clusters[kept], return_inverse=True)
    shared = count_shared(row_class, row_cluster, len(classes), len(names))
    return classes, names, shared
