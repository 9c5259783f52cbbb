"""Score a representation for clustering by the agreement of independent searches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from prcut.errors import check_positive_int
from prcut.graph.build import link_neighbors
from prcut.graph.neighbors import Metric, find_neighbors
from prcut.graph.rows import as_rows
from prcut.numerics.matching import adjusted_rand
from prcut.search.balance import Resampled, choose_balance

_N_SPLITS = 2
# rotating more columns takes longer than the searches
_MAX_ROTATED = 1024


def score_representation(
    rows: Any,
    n_clusters: int,
    *,
    n_neighbors: int = 15,
    metric: Metric = "euclidean",
    seed: int = 0,
) -> float:
    """Return how much independent clusterings of a representation agree: 1 fully, 0 by chance.

    The score is the mean of two mean adjusted Rand indices: between searches of the same graph with
    resampled edges, and between searches of the graphs of two random halves of the columns, which
    are rotated first so that the halves are similar. The score is low if the clusters depend on the
    random start of the search, or on a few columns, or if there are only a few columns.

    Compare only representations of the same rows, with the same ``n_clusters`` and ``n_neighbors``.

    Parameters
    ----------
    rows : array or SciPy sparse matrix, shape (n_samples, n_features)
    n_clusters, n_neighbors : int
    metric : {"euclidean", "cosine", "inner_product"}
    seed : int

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> blobs, _ = make_blobs(300, 8, centers=3, random_state=0)
    >>> noise = np.random.default_rng(0).normal(size=(300, 8))
    >>> bool(score_representation(blobs, 3) > 0.9 > 0.5 > score_representation(noise, 3))
    True
    """
    check_positive_int("n_clusters", n_clusters)
    check_positive_int("n_neighbors", n_neighbors)
    rows = as_rows(rows)

    def search(columns: Any) -> Resampled:
        found = find_neighbors(columns, n_neighbors, metric=metric, seed=seed)
        graph = link_neighbors(found, columns, "mean")
        return choose_balance(graph, n_clusters, seed=seed)

    halves = [
        adjusted_rand(*(search(half).partitions[0] for half in both))
        for both in _split(rows, np.random.default_rng(seed))
    ]
    return float((search(rows).agreement + np.mean(halves)) / 2)


def _split(rows: Any, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """Yield two halves of the columns at a time, rotated at random, or only permuted if many."""
    n_features = rows.shape[1]
    half = max(1, n_features // 2)
    for _ in range(_N_SPLITS):
        if n_features > _MAX_ROTATED:
            order = rng.permutation(n_features)
            yield rows[:, order[:half]], rows[:, order[half:]]
        else:
            rotation, _ = np.linalg.qr(rng.normal(size=(n_features, n_features)))
            rotated = np.ascontiguousarray(rows @ rotation.astype(np.float32))
            yield (
                np.ascontiguousarray(rotated[:, :half]),
                np.ascontiguousarray(rotated[:, -half:]),
            )
