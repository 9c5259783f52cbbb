"""Greedy merging of fragments, cheapest pair first, down to one cluster."""

from __future__ import annotations

import heapq
import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from prcut.errors import InvalidInputError
from prcut.numerics.objective import ClusterCost
from prcut.numerics.validation import check_positive_int
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
    links, sizes = coarse.links.toarray(), coarse.sizes.copy()
    n_fragments = len(sizes)
    children = np.empty((n_fragments - 1, 2), dtype=np.int64)
    costs = np.empty(n_fragments - 1)
    if kernels.LIBRARY is not None:
        kernels.call("merge", n_fragments, links, sizes, cost, children, costs)
        return MergeTree(children, costs)
    cuts, alive = links.sum(1), np.ones(n_fragments, dtype=bool)
    node = np.arange(n_fragments)
    own = cost(cuts, sizes)
    added = cost(cuts[:, None] + cuts - 2 * links, sizes[:, None] + sizes) - own[:, None] - own
    np.fill_diagonal(added, np.inf)
    partner, least = added.argmin(1), added.min(1)
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
        # only fragments whose partner was one of the two lost it; others may have a cheaper one
        closer = joined < least
        least[closer], partner[closer] = joined[closer], kept
        lost = np.flatnonzero(alive & ~closer & ((partner == kept) | (partner == gone)))
        partner[lost] = added[lost].argmin(1)
        least[lost] = added[lost, partner[lost]]
        least[gone] = np.inf
    return MergeTree(children, costs)


def merge_linked(coarse: CoarseGraph, cost: ClusterCost) -> np.ndarray:
    """Merge down to the clusters, the cheapest pair that shares an edge first; return the labels.

    Where no two share an edge any more, the smallest merge. Time and memory grow with the edges.
    """
    parent = np.arange(len(coarse.sizes))
    if kernels.fits(coarse.links):
        sizes = coarse.sizes.astype(np.float64)
        kernels.call("merge_linked", coarse.links, sizes, cost.n_clusters, cost, parent)
    else:
        _merge_along_edges(coarse, cost, parent)
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


def _merge_along_edges(coarse: CoarseGraph, cost: ClusterCost, parent: np.ndarray) -> None:
    """Merge pairs that share an edge; write the node that each is merged into."""
    links, sizes = coarse.links, coarse.sizes.tolist()
    near = [
        dict(zip(links.indices[start:stop].tolist(), links.data[start:stop].tolist(), strict=True))
        for start, stop in pairwise(links.indptr.tolist())
    ]
    cuts, version, n_left = [sum(edges.values()) for edges in near], [0] * len(sizes), len(sizes)

    # ClusterCost, which takes arrays, is five times slower for one number
    def price(cut: float, size: float) -> float:
        fraction = size / cost.n_samples
        return cost.scale * cut / size + cost.factor * fraction * math.log(fraction)

    own = [price(cut, size) for cut, size in zip(cuts, sizes, strict=True)]

    def cheapest(one: int) -> tuple[float, int, int, int, int]:
        cut, size = cuts[one], sizes[one]
        least, partner = min(
            (price(cut + cuts[other] - 2 * weight, size + sizes[other]) - own[other], other)
            for other, weight in near[one].items()
        )
        return least - own[one], one, partner, version[one], version[partner]

    # only the cheapest pair of each is in the heap. A pair's price changes with its ends, and the
    # one that changed last has seen it: so none is cheaper than the heap says, and those whose
    # partner has changed since, as the versions tell, are looked up again when their turn comes
    heap = [cheapest(one) for one, edges in enumerate(near) if edges]
    heapq.heapify(heap)
    while n_left > cost.n_clusters and heap:
        _, kept, gone, *versions = heapq.heappop(heap)
        if version[kept] != versions[0]:
            continue
        if version[gone] == versions[1]:
            if len(near[kept]) < len(near[gone]):
                kept, gone = gone, kept
            cuts[kept] += cuts[gone] - 2 * near[kept].pop(gone)
            sizes[kept] += sizes[gone]
            del near[gone][kept]
            for other, weight in near[gone].items():
                near[kept][other] = near[other][kept] = near[kept].get(other, 0.0) + weight
                del near[other][gone]
            parent[gone], n_left = kept, n_left - 1
            near[gone], version[gone], version[kept] = {}, -1, version[kept] + 1
            own[kept] = price(cuts[kept], sizes[kept])
        if near[kept]:
            heapq.heappush(heap, cheapest(kept))
