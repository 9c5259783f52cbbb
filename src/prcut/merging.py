"""Merging fragments, the cheapest pair first, down to one: the tree of a partition."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prcut.cluster_cost import ClusterCost
from prcut.coarse_graph import CoarseGraph

__all__ = ["MergeTree", "merge"]


class MergeTree(NamedTuple):
    """Who merged with whom, and what it cost.

    Attributes
    ----------
    children : int64 array, shape (n_fragments - 1, 2)
        As scikit-learn's agglomerative clustering has them: nodes below ``n_fragments`` are
        fragments, node ``n_fragments + i`` is the outcome of merge i.
    costs : float64 array, shape (n_fragments - 1,)
        What every merge added to the objective.
    """

    children: np.ndarray
    costs: np.ndarray

    def labels(self, n_clusters: int) -> np.ndarray:
        """The fragments' clusters when ``n_clusters`` are left, int64, shape (n_fragments,)."""
        n_fragments = len(self.children) + 1
        parent = np.arange(2 * n_fragments - 1)
        for number, pair in enumerate(self.children[: max(0, n_fragments - n_clusters)]):
            parent[pair] = n_fragments + number
        for node in range(len(parent) - 1, -1, -1):  # parents have larger numbers
            parent[node] = parent[parent[node]]
        return np.unique(parent[:n_fragments], return_inverse=True)[1].reshape(-1)


def merge(coarse: CoarseGraph, cost: ClusterCost) -> MergeTree:
    """Merge greedily by what a merge adds to the objective.

    >>> links = np.array([[0.0, 5, 1, 0], [5, 0, 0, 1], [1, 0, 0, 5], [0, 1, 5, 0]])
    >>> cost = ClusterCost.of(4, links.sum(), 2, balance_weight=1.0)
    >>> merge(CoarseGraph(links, np.ones(4)), cost).labels(2).tolist()
    [0, 0, 1, 1]
    """
    links, sizes = coarse.links.copy(), coarse.sizes.copy()
    n_fragments = len(sizes)
    cuts, alive = links.sum(1), np.ones(n_fragments, dtype=bool)
    node = np.arange(n_fragments)
    own = cost(cuts, sizes)
    added = cost(cuts[:, None] + cuts - 2 * links, sizes[:, None] + sizes) - own[:, None] - own
    np.fill_diagonal(added, np.inf)
    partner, least = added.argmin(1), added.min(1)
    children = np.empty((n_fragments - 1, 2), dtype=np.int64)
    costs = np.empty(n_fragments - 1)
    for number in range(n_fragments - 1):
        kept = int(least.argmin())
        gone = int(partner[kept])
        children[number], costs[number] = sorted((node[kept], node[gone])), least[kept]
        cuts[kept] += cuts[gone] - 2 * links[kept, gone]
        sizes[kept] += sizes[gone]
        links[kept] += links[gone]
        links[:, kept] = links[kept]
        own[kept] = cost(cuts[kept], sizes[kept])
        node[kept], alive[gone] = n_fragments + number, False

        joined = cost(cuts[kept] + cuts - 2 * links[kept], sizes[kept] + sizes) - own[kept] - own
        joined[~alive] = joined[kept] = np.inf
        added[kept] = added[:, kept] = joined
        added[gone] = added[:, gone] = np.inf
        # only rows whose partner was one of the two may have lost it; others may have won one
        closer = joined < least
        least[closer], partner[closer] = joined[closer], kept
        lost = np.flatnonzero(alive & ~closer & ((partner == kept) | (partner == gone)))
        partner[lost] = added[lost].argmin(1)
        least[lost] = added[lost, partner[lost]]
        least[gone] = np.inf
    return MergeTree(children, costs)
