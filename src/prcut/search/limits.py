"""Limits of the clusters' sizes: rows flow along the cheapest moves until all limits hold.

Rows have less far to go from clusters that are nearly equal already, so these are searched too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from prcut.search.fragments import find_groups, overlay
from prcut.search.prices import Prices
from prcut.search.problem import Partition, Problem
from prcut.search.refine import partition_cuts

# the fraction of what a cluster must give or take that moves before prices are computed again
_AT_ONCE = 0.25
# rows of a cluster that may go anywhere, where no neighbour is in a cluster that takes rows
_ANYWHERE = 32
# balance of searches for nearly equal clusters: 3 never empties one, 10 holds sizes within some %
_WEIGHTS = 3.0, 10.0
# rows that move together, cycles of these, and groups that a pass considers
_GROUP_SIZES, _MAX_CYCLES, _MAX_GROUPS = (256, 32, 4, 1), 4, 2**13
# what sums of weights may differ by, as a fraction of all
_ROUNDING = 1e-9


class Limits(NamedTuple):
    """The least and the most that the rows of every cluster may weigh together."""

    least: float
    most: float

    def excess(self, sizes: np.ndarray) -> np.ndarray:
        """Return by how much sizes lie outside the limits: above 0 too large, below too small.

        >>> Limits(2, 4).excess(np.array([1, 2, 3, 4, 6]))
        array([-1,  0,  0,  0,  2])
        """
        outside: np.ndarray = np.maximum(sizes - self.most, 0) - np.maximum(self.least - sizes, 0)
        return outside

    def price(self, problem: Problem) -> Problem:
        """Return a problem whose moves keep to the limits."""
        n_clusters, smallest = problem.cost.n_clusters, problem.graph.sizes.min()
        slack = _ROUNDING * problem.graph.sizes.sum()
        least = np.full(n_clusters, max(self.least - slack, 0.5 * smallest))
        most = np.full(n_clusters, self.most + slack)
        prices = (problem.prices or Prices())._replace(least=least, most=most)
        return problem._replace(prices=prices)


class _Moves(NamedTuple):
    """Moves of single rows: where they lead, and the changes of the objective."""

    row: np.ndarray
    after: np.ndarray
    change: np.ndarray


def limit_sizes(
    problem: Problem,
    starts: Sequence[np.ndarray],
    limits: Limits,
    search: Callable[..., Partition] | None = None,
) -> Partition:
    """Return the partition with the lowest objective that comes of the starts within the limits.

    Where the first start is outside, ``search``, which takes ``balance_weight`` and ``starts``,
    finds clusters that are nearly equal before rows flow, which then have less far to go.
    With rows of weight 1, none of them fixed, the limits hold exactly. A row that is heavier than
    what a cluster may still take cannot be split: then they hold as nearly as single moves reach.
    """
    limited, slack = limits.price(problem), _ROUNDING * problem.graph.sizes.sum()

    def outside(labels: np.ndarray) -> float:
        return float(np.abs(limits.excess(_sizes(problem, labels))).sum())

    found = [_refine(limited, _flow(limited, labels, limits), limits) for labels in starts]
    for weight in _WEIGHTS if search is not None and outside(starts[0]) > slack else ():
        other = search(balance_weight=weight, starts=[one.labels for one in found])  # type: ignore[misc]
        found.append(_refine(limited, _flow(limited, other.labels, limits), limits))
    return min(found, key=lambda one: (round(outside(one.labels) / slack), one.objective))


def _sizes(problem: Problem, labels: np.ndarray) -> np.ndarray:
    return np.asarray(np.bincount(labels, problem.graph.sizes, problem.cost.n_clusters))


def _flow(problem: Problem, labels: np.ndarray, limits: Limits) -> np.ndarray:
    """Move rows along shortest paths from clusters that are too large to those too small."""
    sizes_of_rows = problem.graph.sizes
    slack = _ROUNDING * sizes_of_rows.sum()
    labels = (problem.prices or Prices()).fix(labels).copy()
    heaviest, anywhere = np.inf, False
    while np.abs(limits.excess(_sizes(problem, labels))).max() > slack:
        moves = _price_moves(problem, labels, anywhere, heaviest)
        if _move_along_paths(problem, labels, moves, limits):
            anywhere = False
        elif not anywhere:
            anywhere = True
        elif heaviest <= sizes_of_rows.min():
            break
        else:  # no row as heavy as those that were tried has room
            heaviest = max(0.5 * min(heaviest, sizes_of_rows.max()), sizes_of_rows.min())
    return labels


def _price_moves(
    problem: Problem, labels: np.ndarray, anywhere: bool = False, heaviest: float = np.inf
) -> _Moves:
    """Return the moves of all rows that may move to clusters of neighbours, or to any cluster."""
    graph, cost, prices = problem
    n_rows, n_clusters = len(labels), cost.n_clusters
    member = csr_array((np.ones(n_rows), labels, np.arange(n_rows + 1)), (n_rows, n_clusters))
    links = csr_array(graph.links @ member)
    row, after = np.repeat(np.arange(n_rows), np.diff(links.indptr)), links.indices
    link, is_own = links.data, after == labels[row]
    own_link, degree = np.zeros(n_rows), np.bincount(row, link, n_rows)
    own_link[row[is_own]] = link[is_own]
    cuts, sizes = partition_cuts(graph.links, labels, n_clusters), _sizes(problem, labels)
    costs, left = cost(cuts, sizes), sizes[labels] - graph.sizes
    leave = cost(cuts[labels] - degree + 2 * own_link, left) - costs[labels]
    leave[(left < 0.5 * graph.sizes.min()) | (graph.sizes > heaviest)] = np.inf
    if prices is not None and prices.preferred is not None and prices.price is not None:
        leave += np.where(labels == prices.preferred, prices.price, 0.0)
    if anywhere:
        row, after, link = _all_clusters(links, labels, leave + cost.scale * degree, n_clusters)
    may_move = (after != labels[row]) & np.isfinite(leave[row])
    row, after, link = row[may_move], after[may_move], link[may_move]
    cuts_after, sizes_after = cuts[after] + degree[row] - 2 * link, sizes[after] + graph.sizes[row]
    change = leave[row] + (cost(cuts_after, sizes_after) - np.where(sizes > 0, costs, 0)[after])
    if prices is not None and prices.preferred is not None and prices.price is not None:
        change -= np.where(after == prices.preferred[row], prices.price[row], 0.0)
    return _Moves(row, after.astype(np.int64), change)


def _all_clusters(
    links: csr_array, labels: np.ndarray, price: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return moves to all clusters, with the links to them, of some cheap rows of each."""
    order = np.lexsort((price, labels))
    order = order[np.isfinite(price[order])]
    rank = np.arange(len(order)) - np.searchsorted(labels[order], labels[order])
    chosen = order[rank < _ANYWHERE]
    row, after = np.repeat(chosen, n_clusters), np.tile(np.arange(n_clusters), len(chosen))
    return row, after, links[chosen].toarray().reshape(-1)


def _move_along_paths(problem: Problem, labels: np.ndarray, moves: _Moves, limits: Limits) -> int:
    """Move rows, in place, along the cheapest path to each cluster that takes some; count paths."""
    sizes, n_clusters = _sizes(problem, labels), problem.cost.n_clusters
    excess, slack = limits.excess(sizes), _ROUNDING * problem.graph.sizes.sum()
    gives, takes = np.maximum(excess, 0), np.maximum(-excess, 0)
    if takes.max() <= slack:  # nothing is too small: whatever has room takes
        takes = np.where(gives > 0, 0, limits.most - sizes)
    elif gives.max() <= slack:
        gives = np.where(takes > 0, 0, sizes - limits.least)
    if gives.max() <= slack or takes.max() <= slack:
        return 0
    queues = _Queues(moves, labels, n_clusters)
    sources = np.flatnonzero(gives > slack)
    options = {"indices": sources, "min_only": True, "return_predecessors": True}
    distance, before, source = dijkstra(queues.cheapest, **options)
    n_paths = 0
    for target in np.argsort(distance, kind="stable"):
        if takes[target] <= slack or not np.isfinite(distance[target]):
            continue
        path = [int(target)]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        wanted = min(takes[target], gives[source[target]])
        for _ in range(max(1, int(_AT_ONCE * wanted))):
            moved = queues.take(path[::-1])
            after = sizes.copy()
            for row, cluster in moved:
                after[labels[row]] -= problem.graph.sizes[row]
                after[cluster] += problem.graph.sizes[row]
            better = np.abs(limits.excess(sizes)).sum() - np.abs(limits.excess(after)).sum()
            if not moved or better <= slack:
                break
            for row, cluster in moved:
                labels[row] = cluster
            sizes, n_paths = after, n_paths + 1
    return n_paths


class _Queues:
    """The moves from each cluster to each other, cheapest first, every row once."""

    def __init__(self, moves: _Moves, labels: np.ndarray, n_clusters: int) -> None:
        pair = labels[moves.row] * n_clusters + moves.after
        order = np.lexsort((moves.change, pair))
        self.rows, pair = moves.row[order], pair[order]
        self.pairs, self.first = np.unique(pair, return_index=True)
        self.last = np.append(self.first[1:], len(pair))
        self.n_clusters, self.used = n_clusters, set[int]()
        # the shortest path knows no gains, and no edge of length 0
        price = np.maximum(moves.change[order][self.first], 0) + 1e-15
        ends = self.pairs // n_clusters, self.pairs % n_clusters
        self.cheapest = csr_array((price, ends), (n_clusters, n_clusters))

    def take(self, path: list[int]) -> list[tuple[int, int]]:
        """Return one row for each step of a path, or nothing where a step has none left."""
        taken = []
        for one, other in pairwise(path):
            place = int(np.searchsorted(self.pairs, one * self.n_clusters + other))
            while self.first[place] < self.last[place]:
                row = int(self.rows[self.first[place]])
                self.first[place] += 1
                if row not in self.used:
                    self.used.add(row)
                    taken.append((row, other))
                    break
            else:
                return []
        return taken


def _refine(problem: Problem, labels: np.ndarray, limits: Limits) -> Partition:
    """Move groups of rows and single rows within the limits as long as the objective falls."""
    best, rng = problem.refine(labels), np.random.default_rng(0)
    for _ in range(_MAX_CYCLES):
        found = best
        for size in _GROUP_SIZES:
            other = _move_groups(problem, found.labels, limits, size, rng)
            found = min(found, other, key=attrgetter("objective"))
        if not found.objective < best.objective - 1e-9 * abs(best.objective):
            break
        best = found
    return best


def _move_groups(
    problem: Problem, labels: np.ndarray, limits: Limits, size: int, rng: np.random.Generator
) -> Partition:
    """Move groups of up to ``size`` rows, those with the cheapest moves where there are many."""
    groups = np.arange(len(labels))
    if size > 1:
        linked = find_groups(problem.graph.links, size, rng)
        groups = problem.separate_fixed(overlay(linked, labels))
    coarse, of_groups = problem.contract(groups), np.zeros(int(groups.max()) + 1, np.int64)
    of_groups[groups] = labels
    heaviest = coarse.sizes.max()
    if len(of_groups) > _MAX_GROUPS:
        row, _, change = _price_moves(Problem(coarse, problem.cost), of_groups)
        cheapest = np.full(len(of_groups), np.inf)
        np.minimum.at(cheapest, row, change)
        may_move = np.zeros(len(of_groups), dtype=bool)
        may_move[np.argsort(cheapest, kind="stable")[:_MAX_GROUPS]] = True
        heaviest = coarse.sizes[may_move].max()
        joined = np.where(may_move[groups], groups, len(of_groups) + labels)
        groups = problem.separate_fixed(np.unique(joined, return_inverse=True)[1].reshape(-1))
    return problem.improve(groups, labels, (limits.least, limits.most, heaviest))
