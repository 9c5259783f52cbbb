"""Coarser levels of a graph: contract it step by step, and move nodes on the way back.

A graph fits in memory wherever it comes from. A search of millions of rows takes too long, so there
groups of rows that are closely linked are searched. Every search begins in this way too: groups of
groups merge to the clusters, and then groups move, level by level, and last single rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prcut.search.fragments import GROUP_SIZE, CoarseGraph, contract, find_groups, overlay
from prcut.search.prices import Prices
from prcut.search.problem import Partition, Problem

MOST_NODES = 2**18
"""Nodes of a graph that is searched as it is."""
COARSEST = 2**16
"""Nodes of the coarsest level of a larger graph: their search takes less than a minute."""
NODES_PER_CLUSTER = 32
"""Nodes of that level for every cluster, at least: in fewer groups, clusters mix."""
# nodes of a level over those of the level below, at most: otherwise contracting gains nothing
_LEAST_FALL = 0.75
# groups of a cluster when they are merged: merges of fewer, larger groups follow the graph at large
_MERGED_GROUPS = 2
# nodes of a level up to which groups also move uphill: on more, it takes too many passes
_MOST_IMPROVED = 2**11
# sweeps over a level of a large graph: the first few make nearly all moves
_N_SWEEPS = 10


class Levels(NamedTuple):
    """A graph and coarser ones, each of groups of the nodes of the one before.

    Attributes
    ----------
    graphs : list of CoarseGraph
        The coarsest is last.
    groups : list of int64 arrays
        The group of every node, for all graphs but the last.
    prices : list of Prices or None
        Prices of the nodes of every graph.
    """

    graphs: list[CoarseGraph]
    groups: list[np.ndarray]
    prices: list[Prices | None]

    def of_nodes(self, labels: np.ndarray) -> np.ndarray:
        """Return the labels of the first graph's nodes from those of the last one's."""
        for groups in reversed(self.groups):
            labels = labels[groups]
        return labels

    def of_groups(self, labels: np.ndarray, n_clusters: int) -> np.ndarray:
        """Return the labels of the last graph's nodes: those of most rows of each."""
        for graph, groups in zip(self.graphs[:-1], self.groups, strict=True):
            pairs, pair = np.unique(groups * n_clusters + labels, return_inverse=True)
            size = np.bincount(pair.reshape(-1), graph.sizes)
            group, cluster = np.divmod(pairs, n_clusters)
            order = np.lexsort((-size, group))
            first = order[np.flatnonzero(np.diff(group[order], prepend=-1))]
            labels = cluster[first]
        return labels

    def refine(self, labels: np.ndarray, n_clusters: int, balance_weight: float) -> Partition:
        """Move single nodes of every level, from the labels of the coarsest to the first graph."""
        finer = zip(self.graphs[:-1], self.groups, self.prices[:-1], strict=True)
        for graph, groups, prices in reversed([*finer]):
            problem = Problem.of(graph, n_clusters, balance_weight, prices)
            partition = problem.refine(labels[groups], _N_SWEEPS)
            labels = partition.labels
        return partition


def contract_levels(
    graph: CoarseGraph,
    n_clusters: int,
    *,
    seed: int = 0,
    prices: Prices | None = None,
    most_nodes: int = MOST_NODES,
) -> Levels:
    """Contract a graph until it can be searched; a graph of ``most_nodes`` stays as it is.

    >>> from prcut.graph.similarity_graph import SimilarityGraph
    >>> from prcut.search.fragments import as_coarse
    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [4], [5], [4]])
    >>> levels = contract_levels(as_coarse(path), 2, most_nodes=4)
    >>> len(levels.graphs), levels.graphs[-1].total == levels.graphs[0].total
    (1, True)
    """
    rng, least = np.random.default_rng([seed, 8]), NODES_PER_CLUSTER * n_clusters
    if len(graph.sizes) <= max(most_nodes, least):
        return Levels([graph], [], [prices])
    return _contract(
        Problem.of(graph, n_clusters, 0.0, prices), max(least, min(COARSEST, most_nodes)), rng
    )


def merge_levels(problem: Problem, rng: np.random.Generator) -> Partition:
    """Merge groups of groups to the clusters, then move groups, level by level, and single rows."""
    cost = problem.cost
    levels = _contract(problem, _MERGED_GROUPS * cost.n_clusters, rng)
    coarsest = problem._replace(graph=levels.graphs[-1], prices=levels.prices[-1])
    nodes = np.arange(len(coarsest.graph.sizes))
    labels = coarsest.search(nodes, rng).labels
    finer = zip(levels.graphs[:-1], levels.groups, levels.prices[:-1], strict=True)
    for graph, groups, prices in reversed([*finer]):
        level = problem._replace(graph=graph, prices=prices)
        is_small = len(groups) <= _MOST_IMPROVED
        labels = (level.improve if is_small else level.refine)(labels[groups]).labels
    return problem.score(labels)


def _contract(problem: Problem, wanted: int, rng: np.random.Generator) -> Levels:
    """Contract a graph until it has fewer than twice the nodes that are wanted, and no fewer."""
    levels = Levels([problem.graph], [], [problem.prices])
    while (size := min(GROUP_SIZE, len(problem.graph.sizes) // wanted)) > 1:
        graph, prices = problem.graph, problem.prices
        groups = _separate(problem, find_groups(graph.links, size, rng))
        if groups.max() + 1 > _LEAST_FALL * len(groups):
            break
        coarse = contract(graph.links, groups, sizes=graph.sizes)
        coarse = coarse._replace(inner=graph.total - coarse.total, edge_weight=graph.edge_weight)
        problem = Problem(
            coarse, problem.cost, None if prices is None else prices.of_groups(groups)
        )
        levels.graphs.append(coarse)
        levels.groups.append(groups)
        levels.prices.append(problem.prices)
    return levels


def _separate(problem: Problem, groups: np.ndarray) -> np.ndarray:
    """Split groups whose nodes are fixed to different clusters, or are to be kept apart."""
    groups = problem.separate_fixed(groups)
    apart = None if problem.prices is None else problem.prices.apart
    if apart is None:
        return groups
    nodes = np.arange(len(groups))
    return overlay(groups, np.where(np.diff(apart.indptr) > 0, nodes + 1, 0))
