"""The search of a graph of any size: contract it level by level, search the coarsest, move nodes.

The graph fits in memory wherever it comes from. The search that finds the best partition takes
about a hundred passes over the edges, which is too long for millions of rows, so there it works on
groups of rows that are closely linked. On the way back single groups, and last single rows, move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from prcut.runtime.progress import StepLog
from prcut.search.balance import N_RESAMPLES, Resampled
from prcut.search.fragments import (
    GROUP_SIZE,
    CoarseGraph,
    contract,
    find_groups,
    overlay,
)
from prcut.search.partition import find_partition
from prcut.search.prices import Prices
from prcut.search.problem import Partition, Problem
from prcut.search.sweep import cluster_sums, sweep

MOST_NODES = 2**18
"""Nodes of a graph that is searched as it is."""
COARSEST = 2**16
"""Nodes of the coarsest level: their search takes less than a minute."""
NODES_PER_CLUSTER = 32
"""Nodes of the coarsest level for every cluster, at least: in fewer groups, clusters mix."""
NEAR = 1.5
"""A level of so many times the nodes that are wanted is not contracted again."""
# nodes of a level over those of the level below, at most: else nothing is left to group
_LEAST_FALL = 0.75
# sweeps over a level: the first few make nearly all moves
_N_SWEEPS = 10


class Levels(NamedTuple):
    """A graph and coarser ones, each of groups of the nodes of the one before.

    Attributes
    ----------
    graphs : list of CoarseGraph
        The coarsest is last.
    groups : list of int64 arrays
        The group of every node, of all graphs but the last.
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
    levels, rng = Levels([graph], [], [prices]), np.random.default_rng([seed, 8])
    least = NODES_PER_CLUSTER * n_clusters
    wanted = max(least, min(COARSEST, most_nodes))
    if len(graph.sizes) <= max(most_nodes, least):
        return levels
    while (n_nodes := len(graph.sizes)) > NEAR * wanted:
        size = min(GROUP_SIZE, -(-n_nodes // wanted))
        groups = find_groups(graph.links, size, rng)
        if prices is not None:
            groups = _separate(Problem.of(graph, n_clusters, 0.0, prices), groups)
        n_groups = int(groups.max()) + 1
        if not least <= n_groups < _LEAST_FALL * n_nodes:
            break
        coarse = contract(graph.links, groups, sizes=graph.sizes)
        inner = graph.total - coarse.total
        graph = coarse._replace(inner=inner, edge_weight=graph.edge_weight)
        prices = None if prices is None else prices.of_groups(groups)
        levels.graphs.append(graph)
        levels.groups.append(groups)
        levels.prices.append(prices)
    return levels


def _separate(problem: Problem, groups: np.ndarray) -> np.ndarray:
    """Split groups whose nodes are fixed to different clusters, or are to be kept apart."""
    groups = problem.separate_fixed(groups)
    apart = None if problem.prices is None else problem.prices.apart
    if apart is None:
        return groups
    nodes = np.arange(len(groups))
    return overlay(groups, np.where(np.diff(apart.indptr) > 0, nodes + 1, 0))


def search_levels(
    graph: CoarseGraph,
    n_clusters: int,
    *,
    balance_weight: float | None = None,
    n_init: int = N_RESAMPLES,
    seed: int = 0,
    resampled: Resampled | None = None,
    starts: Sequence[np.ndarray] = (),
    n_jobs: int = 1,
    log: StepLog | None = None,
    prices: Prices | None = None,
    levels: Levels | None = None,
    keep_starts: bool = True,
) -> Partition:
    """Search for the partition of a graph of any size with the lowest objective.

    Parameters are those of :func:`prcut.search.partition.find_partition`, which searches the
    coarsest of the ``levels``, by default those of :func:`contract_levels`. ``resampled`` holds
    labels of the nodes of the coarsest, ``starts`` those of the nodes of the graph. Without
    ``keep_starts`` the partition has none: of 100 million rows they take three gigabytes.
    """
    log = StepLog() if log is None else log
    if levels is None:
        levels = contract_levels(graph, n_clusters, seed=seed, prices=prices)
    if levels.groups:
        log(f"contracted to {len(levels.graphs[-1].sizes):,} groups")
    top = levels.graphs[-1]
    partition = find_partition(
        top._replace(links=top.links.astype(np.float64, copy=False)),
        n_clusters,
        balance_weight=balance_weight,
        n_init=n_init,
        seed=seed,
        resampled=resampled,
        starts=[levels.of_groups(labels, n_clusters) for labels in starts],
        n_jobs=n_jobs,
        log=log,
        prices=levels.prices[-1],
    )
    if not levels.groups:
        return partition
    labels = partition.labels
    finer = zip(levels.graphs[:-1], levels.groups, levels.prices[:-1], strict=True)
    for level, groups, prices_of_level in reversed([*finer]):
        problem = Problem.of(level, n_clusters, partition.balance_weight, prices_of_level)
        labels = _move(problem, labels[groups])
        log(f"moved {len(labels):,} groups")
    scored = problem.score(labels)
    log("moved rows", scored.objective)
    starts = partition.starts if keep_starts else ()
    of_rows = tuple(levels.of_nodes(labels) for labels in starts)
    return partition._replace(labels=labels, objective=scored.objective, starts=of_rows)


def _move(problem: Problem, labels: np.ndarray) -> np.ndarray:
    """Move single nodes as long as the objective falls."""
    graph, cost, prices = problem
    if prices is not None:
        labels = prices.fix(labels)
    return sweep(
        graph, labels, cost, cluster_sums(graph, labels, cost.n_clusters), _N_SWEEPS, prices
    )
