"""The clusters of a fit: their cost and sizes, the coarser layers they merge to, their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from prcut.errors import InvalidInputError
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.objective import ClusterCost
from prcut.runtime.folder import whole_number
from prcut.search.fragments import CoarseGraph, contract
from prcut.search.hierarchy import merge_further
from prcut.search.merge import MergeTree
from prcut.search.sweep import cluster_sums

MOST_LINKED = 4096
"""Clusters that are merged further; the links between 4,096 of them take 134 MB."""


class Score(NamedTuple):
    """Cost of a partition: J (see :func:`prcut.numerics.hard_objective`) and its ratio cut.

    There is no merge tree where a cluster is empty, or where there are too many.
    """

    objective: float
    ratio_cut: float
    cluster_sizes: np.ndarray
    merge_tree: MergeTree | None


def score_labels(
    graph: SimilarityGraph | CoarseGraph,
    labels: np.ndarray,
    n_clusters: int,
    balance_weight: float,
    layer_sizes: Sequence[int] = (),
    weights: np.ndarray | None = None,
) -> Score:
    """Score the labels of all rows of a graph whose edges include the weights of the rows, if any.

    The merge tree passes through the layers: see :func:`prcut.search.hierarchy.merge_further`.
    """
    labels = labels.astype(np.int64, copy=False)
    links = graph.links if isinstance(graph, CoarseGraph) else graph.to_scipy()
    cuts, _ = cluster_sums(CoarseGraph.of_rows(links), labels, n_clusters)
    sizes = np.bincount(labels, weights, n_clusters).astype(np.float64)
    total = float(links.data.sum(dtype=np.float64))
    cost = ClusterCost.of(float(sizes.sum()), total, n_clusters, balance_weight=balance_weight)
    tree = None
    if n_clusters <= MOST_LINKED and sizes.all():
        between = contract(links, labels)._replace(sizes=sizes)
        tree = merge_further(between, cost, layer_sizes)
    ratio_cut = float(np.divide(0.5 * cuts, sizes, out=np.zeros(len(cuts)), where=cuts > 0).sum())
    is_whole = sizes.max() < 2**53 and np.array_equal(np.rint(sizes), sizes)
    counted = sizes.astype(np.int64) if is_whole else sizes
    return Score(cost.objective(cuts, sizes), ratio_cut, counted, tree)


class Layers(NamedTuple):
    """The clusters of a fit, and the layers of coarser clusters, which nest exactly.

    Attributes
    ----------
    sizes : list of int
        Numbers of clusters, the largest first: one unless ``n_clusters`` was chosen.
    merge_tree : MergeTree or None
    """

    sizes: list[int]
    merge_tree: MergeTree | None

    def names(self, level: int) -> np.ndarray:
        """Return the cluster of a layer that every finest cluster belongs to."""
        if isinstance(level, bool) or level not in range(len(self.sizes)):
            raise InvalidInputError(
                f"{level=} must be from 0, the finest, to {len(self.sizes) - 1}; layers are found "
                "by n_clusters='auto'."
            )
        if level == 0 or self.merge_tree is None:
            return np.arange(self.sizes[0])
        return self.merge_tree.labels(self.sizes[level])

    def labels(self, labels: np.ndarray) -> list[np.ndarray]:
        """Return the labels in every layer; −1 stays −1."""
        names = (self.names(level) for level in range(len(self.sizes)))
        return [np.where(labels < 0, -1, one[labels]) for one in names]

    def tree(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return the clusters in every cluster of the layer above, as (layer, cluster)."""
        tree: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for level in range(len(self.sizes)):
            fine, is_top = self.names(level), level + 1 == len(self.sizes)
            coarse = np.zeros_like(fine) if is_top else self.names(level + 1)
            for above, below in sorted(set(zip(coarse.tolist(), fine.tolist(), strict=True))):
                tree.setdefault((level + 1, above), []).append((level, below))
        return tree

    def sum_probs(self, probs: np.ndarray, level: int) -> np.ndarray:
        """Add up the probabilities of clusters that belong to the same cluster of a layer."""
        names = self.names(level)
        if level == 0:
            return probs
        summed: np.ndarray = probs @ np.eye(self.sizes[level], dtype=probs.dtype)[names]
        return summed


class ClusterIds(NamedTuple):
    """Ids of the clusters, which no other cluster is ever given.

    Attributes
    ----------
    ids : int64 array, shape (n_clusters,)
    n_given : int
        Ids below this have been used, also by clusters that were removed.
    """

    ids: np.ndarray
    n_given: int

    @classmethod
    def first(cls, n_clusters: int) -> ClusterIds:
        """Return the ids of a first fit."""
        return cls(np.arange(n_clusters), n_clusters)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the clusters with these ids, −1 for an id that is not used."""
        order = np.argsort(self.ids)
        found = order[np.searchsorted(self.ids, ids, sorter=order).clip(max=len(order) - 1)]
        return np.where(self.ids[found] == ids, found, -1)

    @property
    def are_first(self) -> bool:
        """Whether these are the ids of a first fit."""
        n_clusters = len(self.ids)
        return self.n_given == n_clusters and np.array_equal(self.ids, np.arange(n_clusters))

    def describe(self) -> dict[str, Any]:
        """Return the ids in JSON's types."""
        return {"cluster_ids": self.ids.tolist(), "n_ids": self.n_given}

    @classmethod
    def parse(cls, description: Any, n_clusters: int) -> ClusterIds:
        """Read the result of :meth:`describe`, which a stranger may have written.

        >>> ClusterIds.parse({"cluster_ids": [0, 5], "n_ids": 6}, 2).ids.tolist()
        [0, 5]
        """
        if "cluster_ids" not in description:
            return cls.first(n_clusters)
        ids = np.array([whole_number(one) for one in description["cluster_ids"]], np.int64)
        n_given = whole_number(description["n_ids"])
        if len(ids) != n_clusters or len(np.unique(ids)) != n_clusters or ids.max() >= n_given:
            raise ValueError(f"{len(ids)} ids of {n_clusters} clusters")
        return cls(ids, n_given)
