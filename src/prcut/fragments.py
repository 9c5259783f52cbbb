"""Fragments: many small pieces of a graph, each of rows that walks hardly leave."""

from __future__ import annotations

import numpy as np
from torch import Generator

from prcut.graph import SimilarityGraph
from prcut.graph_features import graph_features

__all__ = ["choose_n_fragments", "find_fragments"]

_N_COLUMNS = 64
_KMEANS_ROUNDS = 10
# that k-means looks at: more do not move its centres
_ROWS_PER_FRAGMENT = 64


def find_fragments(graph: SimilarityGraph, n_fragments: int, *, seed: int) -> np.ndarray:
    """Fragment of every row, int64, numbered from 0: k-means of smoothed noise.

    Where there are hardly more rows than fragments, every row is one.
    """
    import faiss

    if n_fragments >= graph.n_samples:
        return np.arange(graph.n_samples)
    generator = Generator().manual_seed(seed)
    columns = graph_features(graph, _N_COLUMNS, generator=generator).cpu().numpy()
    columns = np.ascontiguousarray(columns)
    kmeans = faiss.Kmeans(
        columns.shape[1],
        n_fragments,
        niter=_KMEANS_ROUNDS,
        seed=seed % 2**31,
        min_points_per_centroid=1,
        max_points_per_centroid=_ROWS_PER_FRAGMENT,
    )
    kmeans.train(columns)
    nearest = kmeans.index.search(columns, 1)[1].reshape(-1)
    return np.unique(nearest, return_inverse=True)[1].reshape(-1)


def choose_n_fragments(n_samples: int, n_clusters: int) -> int:
    """Fragments by default: of twelve rows or more, 400 of them, or eight a cluster up to 4096.

    Few rows have at least 150 fragments, or are one each; there are always two a cluster.

    >>> [choose_n_fragments(n, k) for n, k in ((150, 3), (1797, 10), (60_000, 10), (10**6, 1000))]
    [150, 150, 400, 4096]
    """
    wanted = max(min(400, max(150, n_samples // 12)), min(8 * n_clusters, 4096, n_samples // 4))
    return min(max(wanted, 2 * n_clusters), n_samples)
