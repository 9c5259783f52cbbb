"""The search for many clusters: merge along edges, move groups and rows, combine several starts.

Nothing here has a price for every fragment in every cluster, which would take gigabytes: work and
memory grow with the edges. Up to 512 clusters what :mod:`prcut.search.moves` does ends lower.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter

import numpy as np

from prcut.runtime.engine import map_threads
from prcut.search.fragments import GROUP_SIZE, CoarseGraph, contract, find_groups, overlay
from prcut.search.merge import merge_linked
from prcut.search.problem import Partition, Problem
from prcut.search.sweep import cluster_sums, sweep

MANY_CLUSTERS = 512
"""Clusters beyond which they are searched along edges."""
# groups of a cluster, at least, when they are searched, and when they are merged
_SEARCHED_GROUPS, _MERGED_GROUPS = 32, 2
# fractions of the balance that merges count: with all of it, pieces merge that share no edge
_START_FRACTION, _FRACTIONS = 0.1, (0.1, 0.0)
_objective = attrgetter("objective")


def group_many(graph: CoarseGraph, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Return the group of every row: what is searched, where there are many rows to a cluster."""
    found = np.arange(len(graph.sizes))
    for groups in _coarsen(graph, n_clusters, _SEARCHED_GROUPS, rng)[1]:
        found = groups[found]
    return found


def start_many(problem: Problem, rng: np.random.Generator) -> Partition:
    """Group rows, and groups, merge these to the clusters, and move them level by level."""
    graph, cost, _ = problem
    levels, groups = _coarsen(graph, cost.n_clusters, _MERGED_GROUPS, rng)
    labels = merge_linked(levels[-1], cost._replace(factor=_START_FRACTION * cost.factor))
    labels = _move(problem, levels[-1], labels)
    for level, of_nodes in zip(reversed(levels[:-1]), reversed(groups), strict=True):
        labels = _move(problem, level, labels[of_nodes])
    return move_groups(problem, labels, rng)


def _coarsen(
    graph: CoarseGraph, n_clusters: int, n_groups: int, rng: np.random.Generator
) -> tuple[list[CoarseGraph], list[np.ndarray]]:
    """Return a graph and its coarser levels, with so many nodes to a cluster, and their groups."""
    levels, found = [graph], []
    while (most := min(GROUP_SIZE, len(levels[-1].sizes) // (n_groups * n_clusters))) > 1:
        groups = find_groups(levels[-1].links, most, rng)
        if groups.max() + 1 == len(groups):  # nothing has an edge
            break
        levels.append(contract(levels[-1].links, groups, sizes=levels[-1].sizes))
        found.append(groups)
    return levels, found


def move_groups(problem: Problem, labels: np.ndarray, rng: np.random.Generator) -> Partition:
    """Move groups of rows of one cluster, then single rows."""
    pieces = overlay(find_groups(problem.graph.links, GROUP_SIZE, rng), labels)
    return min(problem.score(labels), _move_pieces(problem, pieces, labels), key=_objective)


def combine_many(problem: Problem, starts: Sequence[Partition], n_jobs: int = 1) -> Partition:
    """Merge what all starts keep together, then what the best of all and each start do."""
    best = min(starts, key=_objective)
    pieces: Iterable[Sequence[Partition]] = [starts, *([one] for one in starts)]
    for others in pieces:
        kept = overlay(best.labels, *(one.labels for one in others))
        merge = partial(_merge_pieces, problem, kept)
        found = map_threads(merge, _FRACTIONS, n_jobs)
        best = min(best, _move_pieces(problem, kept, best.labels), *found, key=_objective)
    return best


def _merge_pieces(problem: Problem, pieces: np.ndarray, fraction: float) -> Partition:
    """Merge pieces with a fraction of the balance, then move them and single rows."""
    between, cost = problem.contract(pieces), problem.cost
    labels = merge_linked(between, cost._replace(factor=fraction * cost.factor))
    return _move_pieces(problem, pieces, labels[pieces])


def _move_pieces(problem: Problem, pieces: np.ndarray, labels: np.ndarray) -> Partition:
    """Move pieces, none of which lies in two clusters, and then single rows."""
    of_pieces = np.zeros(int(pieces.max()) + 1, dtype=np.int64)
    of_pieces[pieces] = labels
    moved = _move(problem, problem.contract(pieces), of_pieces)[pieces]
    return problem.score(_move(problem, problem.graph, moved))


def _move(problem: Problem, graph: CoarseGraph, labels: np.ndarray) -> np.ndarray:
    sums = cluster_sums(graph, labels, problem.cost.n_clusters)
    return sweep(graph, labels, problem.cost, sums)
