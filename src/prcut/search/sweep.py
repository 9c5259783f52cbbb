"""Moves of nodes of any size, one after the other: the refinement of coarse graphs and of parts.

A part of a graph is one too, with all edges of its own nodes and none of those outside, which so
stay where they are.
"""

from __future__ import annotations

import numpy as np

from prcut.numerics.objective import ClusterCost
from prcut.search import kernels
from prcut.search.fragments import CoarseGraph
from prcut.search.prices import Prices

# a smaller gain of a move is rounding
_LEAST_GAIN = 1e-12
_MAX_SWEEPS = 100


def sweep(
    coarse: CoarseGraph,
    labels: np.ndarray,
    cost: ClusterCost,
    sums: tuple[np.ndarray, np.ndarray],
    n_sweeps: int = _MAX_SWEEPS,
    prices: Prices | None = None,
) -> np.ndarray:
    """Move every node to the best cluster of a neighbour, in order, until none gains by a move.

    ``sums`` are cuts and sizes of the clusters, which may count more than this graph; moves are
    judged by them, by the moves before, and by the prices. No cluster is emptied.
    """
    labels = labels.astype(np.int64)
    cuts, sizes = (values.astype(np.float64) for values in sums)
    prices = _complete(prices or Prices(), coarse, cost.n_clusters)
    if kernels.fits(coarse.links):
        limits = cost.n_clusters, n_sweeps, cost, prices, _LEAST_GAIN
        kernels.call("sweep", coarse.links, coarse.sizes, *limits, labels, cuts, sizes)
        return labels
    for _ in range(n_sweeps):
        if not _sweep_once(coarse, labels, cost, cuts, sizes, prices):
            break
    return labels


def _complete(prices: Prices, coarse: CoarseGraph, n_clusters: int) -> Prices:
    """Return the prices with limits of size, which only keep clusters from becoming empty."""
    if prices.least is None:
        least = 0.5 * min(1.0, coarse.sizes.min(initial=1.0))
        prices = prices._replace(least=np.full(n_clusters, least))
    if prices.most is None:
        prices = prices._replace(most=np.full(n_clusters, np.inf))
    return prices


def _sweep_once(
    coarse: CoarseGraph,
    labels: np.ndarray,
    cost: ClusterCost,
    cuts: np.ndarray,
    sizes: np.ndarray,
    prices: Prices,
) -> int:
    links, n_moved = coarse.links, 0
    assert prices.least is not None and prices.most is not None  # noqa: S101, PT018
    for node in range(len(labels)):
        edges = slice(links.indptr[node], links.indptr[node + 1])
        own, size, n_clusters = labels[node], coarse.sizes[node], cost.n_clusters
        left = sizes[own] - size
        if not left > prices.least[own]:
            continue
        link = np.bincount(labels[links.indices[edges]], links.data[edges], n_clusters)
        degree = links.data[edges].sum()
        paid, is_near = _paid(node, labels, prices, n_clusters)
        near = np.flatnonzero((link > 0) | is_near)
        near = near[(near != own) & (sizes[near] + size < prices.most[near])]
        if not len(near):
            continue
        cut_left = cuts[own] - degree + 2 * link[own]
        cuts_after, sizes_after = cuts[near] + degree - 2 * link[near], sizes[near] + size
        change = cost(cuts_after, sizes_after) - cost(cuts[near], sizes[near])
        change[sizes[near] == 0] = cost(cuts_after, sizes_after)[sizes[near] == 0]
        gain = cost(cut_left, left) - cost(cuts[own], sizes[own]) + change
        gain += paid[near] - paid[own]
        best = int(gain.argmin())
        if gain[best] < -_LEAST_GAIN:
            cuts[own], sizes[own] = cut_left, left
            cuts[near[best]], sizes[near[best]] = cuts_after[best], sizes_after[best]
            labels[node] = near[best]
            n_moved += 1
    return n_moved


def _paid(
    node: int, labels: np.ndarray, prices: Prices, n_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a node pays in every cluster, and the clusters that it considers for that."""
    paid, is_near = np.zeros(n_clusters), np.zeros(n_clusters, dtype=bool)
    if prices.apart is not None:
        edges = slice(prices.apart.indptr[node], prices.apart.indptr[node + 1])
        others = labels[prices.apart.indices[edges]]
        paid += np.bincount(others, prices.apart.data[edges], n_clusters)
        is_near |= paid[labels[node]] > 0
    if prices.preferred is not None and prices.price is not None and prices.preferred[node] >= 0:
        paid[prices.preferred[node]] -= prices.price[node]
        is_near[prices.preferred[node]] = True
    return paid, is_near


def cluster_sums(
    coarse: CoarseGraph, labels: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cut and the size of every cluster, as far as the edges of this graph tell."""
    source = np.repeat(labels, np.diff(coarse.links.indptr))
    crosses = source != labels[coarse.links.indices]
    cuts = np.bincount(source[crosses], coarse.links.data[crosses], n_clusters)
    return cuts.astype(np.float64), np.bincount(labels, coarse.sizes, n_clusters)
