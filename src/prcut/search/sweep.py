"""Moves of nodes of any size, one after the other: the refinement of coarse graphs and of parts.

A part of a graph is one too, with all edges of its own nodes and none of those outside, which so
stay where they are.
"""

from __future__ import annotations

import numpy as np

from prcut.numerics.objective import ClusterCost
from prcut.search import kernels
from prcut.search.fragments import CoarseGraph

# a smaller gain of a move is rounding
_LEAST_GAIN = 1e-12
_MAX_SWEEPS = 100


def sweep(
    coarse: CoarseGraph,
    labels: np.ndarray,
    cost: ClusterCost,
    sums: tuple[np.ndarray, np.ndarray],
    n_sweeps: int = _MAX_SWEEPS,
) -> np.ndarray:
    """Move every node to the best cluster of a neighbour, in order, until none gains by a move.

    ``sums`` are cuts and sizes of the clusters, which may count more than this graph; moves are
    judged by them and by the moves before. No cluster is emptied.
    """
    labels = labels.astype(np.int64)
    cuts, sizes = (values.astype(np.float64) for values in sums)
    if kernels.fits(coarse.links):
        limits = cost.n_clusters, n_sweeps, cost, _LEAST_GAIN
        kernels.call("sweep", coarse.links, coarse.sizes, *limits, labels, cuts, sizes)
        return labels
    for _ in range(n_sweeps):
        if not _sweep_once(coarse, labels, cost, cuts, sizes):
            break
    return labels


def _sweep_once(
    coarse: CoarseGraph, labels: np.ndarray, cost: ClusterCost, cuts: np.ndarray, sizes: np.ndarray
) -> int:
    links, n_moved = coarse.links, 0
    for node in np.flatnonzero(np.diff(links.indptr)):
        edges = slice(links.indptr[node], links.indptr[node + 1])
        own, size = labels[node], coarse.sizes[node]
        left = sizes[own] - size
        if not left > 0.5:  # it would be empty
            continue
        near, first = np.unique(labels[links.indices[edges]], return_inverse=True)
        link = np.bincount(first.reshape(-1), links.data[edges], len(near))
        degree = links.data[edges].sum()
        cut_left = cuts[own] - degree + 2 * link[near == own].sum()
        cuts_after, sizes_after = cuts[near] + degree - 2 * link, sizes[near] + size
        change = cost(cuts_after, sizes_after) - cost(cuts[near], sizes[near])
        change[sizes[near] == 0] = cost(cuts_after, sizes_after)[sizes[near] == 0]
        gain = cost(cut_left, left) - cost(cuts[own], sizes[own]) + change
        gain[near == own] = np.inf
        best = int(gain.argmin())
        if gain[best] < -_LEAST_GAIN:
            cuts[own], sizes[own] = cut_left, left
            cuts[near[best]], sizes[near[best]] = cuts_after[best], sizes_after[best]
            labels[node] = near[best]
            n_moved += 1
    return n_moved


def cluster_sums(
    coarse: CoarseGraph, labels: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cut and the size of every cluster, as far as the edges of this graph tell."""
    source = np.repeat(labels, np.diff(coarse.links.indptr))
    crosses = source != labels[coarse.links.indices]
    cuts = np.bincount(source[crosses], coarse.links.data[crosses], n_clusters)
    return cuts.astype(np.float64), np.bincount(labels, coarse.sizes, n_clusters)
