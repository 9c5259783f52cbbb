"""Move single nodes while the objective falls: rows, nodes of coarse graphs, or parts of a graph.

A part holds all edges of its own nodes and none of the nodes outside, which therefore stay.
"""

from __future__ import annotations

import numpy as np

from prcut.numerics.objective import ClusterCost
from prcut.search import kernels
from prcut.search.fragments import CoarseGraph
from prcut.search.prices import Prices

# a smaller gain of a move is rounding
_LEAST_GAIN = 1e-12
MAX_SWEEPS = 100


def sweep(
    coarse: CoarseGraph,
    labels: np.ndarray,
    cost: ClusterCost,
    sums: tuple[np.ndarray, np.ndarray],
    n_sweeps: int = MAX_SWEEPS,
    prices: Prices | None = None,
) -> np.ndarray:
    """Move every node to the best cluster of a neighbour, in order, until none gains by a move.

    ``sums`` are cuts and sizes of the clusters, which may count more than this graph; moves are
    judged by them, by the moves before, and by the prices. No cluster is emptied.
    """
    labels = labels.astype(np.int64)
    cuts, sizes = (values.astype(np.float64) for values in sums)
    prices = _complete(prices or Prices(), coarse, cost.n_clusters)
    limits = cost.n_clusters, n_sweeps, cost, prices, _LEAST_GAIN
    kernels.call("sweep", coarse.links, coarse.sizes, *limits, labels, cuts, sizes)
    return labels


def _complete(prices: Prices, coarse: CoarseGraph, n_clusters: int) -> Prices:
    """Return the prices with limits of size, which only keep clusters from becoming empty."""
    if prices.least is None:
        least = 0.5 * min(1.0, coarse.sizes.min(initial=1.0))
        prices = prices._replace(least=np.full(n_clusters, least))
    if prices.most is None:
        prices = prices._replace(most=np.full(n_clusters, np.inf))
    return prices


def cluster_sums(
    coarse: CoarseGraph, labels: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cut and the size of every cluster, as far as the edges of this graph tell."""
    # the sums of prcut.numerics.cuts.cluster_cuts, which takes three times as long on a CPU
    cuts, labels = np.zeros(n_clusters), np.ascontiguousarray(labels, np.int64)
    kernels.call("partition_cuts", coarse.links, labels, cuts)
    return cuts, np.bincount(labels, coarse.sizes, n_clusters)
