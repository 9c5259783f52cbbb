"""Greedy merging of fragments, cheapest pair first, down to one cluster."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from prcut.errors import InvalidInputError, check_positive_int
from prcut.numerics.objective import ClusterCost
from prcut.search import kernels
from prcut.search.fragments import CoarseGraph


class MergeTree(NamedTuple):
    """The order of merges, and the cost of each.

    Attributes
    ----------
    children : int64 array, shape (n_fragments - 1, 2)
        As in scikit-learn's agglomerative clustering: nodes below ``n_fragments`` are
        fragments, node ``n_fragments + i`` is the result of merge i.
    costs : float64 array, shape (n_fragments - 1,)
        Increase of the objective by every merge.
    """

    children: np.ndarray
    costs: np.ndarray

    def labels(self, n_clusters: int) -> np.ndarray:
        """Return each fragment's cluster when ``n_clusters`` are left, shape (n_fragments,).

        >>> MergeTree(np.array([[0, 2], [1, 3]]), np.array([0.1, 0.4])).labels(2)
        array([1, 0, 1])
        """
        n_fragments = len(self.children) + 1
        if not 1 <= check_positive_int("n_clusters", n_clusters) <= n_fragments:
            raise InvalidInputError(
                f"{n_clusters=} must be from 1 to {n_fragments}, the clusters that the tree merges."
            )
        parent = np.arange(2 * n_fragments - 1)
        merges = self.children[: n_fragments - n_clusters]
        parent[merges] = n_fragments + np.arange(len(merges))[:, None]
        return _number_roots(parent)[:n_fragments]

    def linkage(self) -> np.ndarray:
        """Return the tree as SciPy's functions take it, such as ``dendrogram``.

        A row of the float64 array, shape (n_fragments - 1, 4), has two nodes, the height at which
        they merge, and the fragments below. Heights are ``costs``, but never below 0 nor below an
        earlier merge's: SciPy draws no branch that falls.

        >>> MergeTree(np.array([[0, 2], [1, 3]]), np.array([0.1, 0.4])).linkage()
        array([[0. , 2. , 0.1, 2. ],
               [1. , 3. , 0.4, 3. ]])
        """
        heights = np.maximum.accumulate(np.maximum(self.costs, 0))
        counts = [1] * (len(self.children) + 1)
        for one, other in self.children.tolist():
            counts.append(counts[one] + counts[other])
        below = counts[len(self.children) + 1 :]
        return np.column_stack([self.children, heights, below]).astype(np.float64)


def merge(coarse: CoarseGraph, cost: ClusterCost) -> MergeTree:
    """Merge greedily the pair whose merge adds least to the objective."""
    # both are scratch of the loop
    links, sizes = coarse.links.toarray().astype(np.float64, copy=False), coarse.sizes.copy()
    n_fragments = len(sizes)
    children = np.empty((n_fragments - 1, 2), dtype=np.int64)
    costs = np.empty(n_fragments - 1)
    kernels.call("merge", n_fragments, links, sizes, cost, children, costs)
    return MergeTree(children, costs)


def merge_linked(coarse: CoarseGraph, cost: ClusterCost) -> np.ndarray:
    """Merge down to the clusters, the cheapest pair that shares an edge first; return the labels.

    Where no two share an edge any more, the smallest merge. Time and memory grow with the edges.
    """
    parent = np.arange(len(coarse.sizes))
    sizes = coarse.sizes.astype(np.float64)
    kernels.call("merge_linked", coarse.links, sizes, cost.n_clusters, cost, parent)
    groups = _number_roots(parent)
    found = np.arange(groups.max() + 1)
    left = [*zip(np.bincount(groups, coarse.sizes).tolist(), found.tolist(), strict=True)]
    heapq.heapify(left)
    while len(left) > cost.n_clusters:
        size, gone = heapq.heappop(left)
        found[gone] = left[0][1]
        heapq.heapreplace(left, (left[0][0] + size, left[0][1]))
    return _number_roots(found).take(groups)


def _number_roots(parent: np.ndarray) -> np.ndarray:
    """Return the number of every node's root, counted in the order of the roots."""
    while not np.array_equal(above := parent[parent], parent):
        parent = above
    return np.unique(parent, return_inverse=True)[1].reshape(-1)
