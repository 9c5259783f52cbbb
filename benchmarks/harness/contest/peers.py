"""Peers that only the contest has: more of k-means, hierarchies and mixtures.

As in the tables, none is tuned. PRCut takes rows as they come and Euclidean neighbours, so the
peers' rows are its rows; k-means also has columns of equal variance and rows of equal length.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from benchmarks.harness.peers import quiet_peers, require_package
from benchmarks.harness.task import Method, Task
from sklearn.preprocessing import normalize, scale

__all__ = ["CONTEST_PEERS"]

# PRCut needs a second or two for any few rows, in which k-means starts more often
_RESTARTS, _RESTARTS_SMALL, _SMALL_ROWS = 10, 100, 5000
# a full covariance has half the square of so many numbers for every cluster
_MAX_FULL_FEATURES = 32


def _labels(labels: np.ndarray) -> np.ndarray:
    return np.asarray(labels).astype(np.int64)


def _as_given(rows: np.ndarray) -> np.ndarray:
    return rows


def _restart_kmeans(prepare: Callable[[np.ndarray], np.ndarray]) -> Callable[[Task], np.ndarray]:
    """Keep the best of 10 starts, of 100 below 5,000 rows."""

    def run(task: Task) -> np.ndarray:
        from sklearn.cluster import KMeans

        n_starts = _RESTARTS_SMALL if len(task.rows) < _SMALL_ROWS else _RESTARTS
        kmeans = KMeans(task.n_clusters, n_init=n_starts, random_state=task.seed)
        return _labels(kmeans.fit_predict(prepare(task.rows)))

    return run


def _kmeans_constrained(task: Task) -> np.ndarray:
    # not in the extra: ortools asks for an older protobuf than onnx has, and uses none of it here
    remedy = (
        "pip install 'prcut[bench]' && "
        "pip install --no-deps k-means-constrained ortools absl-py immutabledict"
    )
    module = require_package("k_means_constrained", "k-means-constrained", remedy)
    smallest, remainder = divmod(len(task.rows), task.n_clusters)
    kmeans = module.KMeansConstrained(
        task.n_clusters,
        size_min=smallest,
        size_max=smallest + bool(remainder),
        random_state=task.seed,
    )
    return _labels(kmeans.fit_predict(task.rows))


def _ward(task: Task) -> np.ndarray:
    from sklearn.cluster import AgglomerativeClustering

    return _labels(AgglomerativeClustering(task.n_clusters).fit_predict(task.rows))


def _gaussian_mixture(task: Task) -> np.ndarray:
    """Fit full covariances up to 32 columns, diagonal ones beyond."""
    from sklearn.mixture import GaussianMixture

    kind = "full" if task.rows.shape[1] <= _MAX_FULL_FEATURES else "diag"
    mixture = GaussianMixture(task.n_clusters, covariance_type=kind, random_state=task.seed)
    with quiet_peers():  # that it did not converge in 100 steps
        # in single precision covariances of many columns are not positive
        return _labels(mixture.fit_predict(task.rows.astype(np.float64)))


def _finch(task: Task) -> np.ndarray:
    """Ask for k clusters; it returns fewer where its first partition has fewer."""
    finch = require_package("finch", "finch-clust")
    with quiet_peers():
        _, _, labels = finch.FINCH(
            task.rows, req_clust=task.n_clusters, verbose=False, random_state=task.seed
        )
    return _labels(labels)


_SKLEARN = ("scikit-learn",)
CONTEST_PEERS: dict[str, Method] = {
    "kmeans_restarts": Method("k-means, restarts", _restart_kmeans(_as_given), _SKLEARN),
    "kmeans_standardized": Method(
        "k-means, restarts, columns standardised", _restart_kmeans(scale), _SKLEARN
    ),
    "kmeans_cosine": Method("k-means, restarts, unit rows", _restart_kmeans(normalize), _SKLEARN),
    "kmeans_constrained": Method(
        "k-means-constrained, equal sizes", _kmeans_constrained, ("k-means-constrained",)
    ),
    "ward": Method("Ward (scikit-learn)", _ward, _SKLEARN, seeded=False),
    "gaussian_mixture": Method("GaussianMixture (scikit-learn)", _gaussian_mixture, _SKLEARN),
    "finch": Method("FINCH at equal k", _finch, ("finch-clust",), seeded=False),
}
