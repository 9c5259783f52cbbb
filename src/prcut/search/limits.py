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
from prcut.search.sweep import cluster_sums

# balance of searches for nearly equal clusters: 3 never empties one, 10 holds sizes within some %
_WEIGHTS = 3.0, 10.0
# rows that move together, cycles of these, and groups that a pass considers
_GROUP_SIZES, _MAX_CYCLES, _MAX_GROUPS = (256, 32, 4, 1), 4, 2**13
# rows of the groups that flow first where rows are many: their moves are priced in less time
_FLOW_SIZES, _MANY_ROWS = (64, 8), 10_000
# rows from which those of clusters far outside their limits do not flow, and the fraction of all
# rows that is far
_VERY_MANY_ROWS, _FAR = 200_000, 0.05
# the fraction of what a cluster must give or take, and of all that must move, before prices are
# computed again
_AT_ONCE, _AT_LEAST = 0.25, 0.05
# rows of a cluster that may go anywhere, where no neighbour is in a cluster that takes rows
_ANYWHERE = 32
# what sums of weights may differ by, as a fraction of all
_ROUNDING = 1e-9


class Needs(NamedTuple):
    """The sizes that clusters give, and that they take, to come within limits."""

    gives: np.ndarray
    takes: np.ndarray


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

    def hold(self, sizes: np.ndarray) -> bool:
        """Return whether sizes are within the limits, up to rounding."""
        return bool(np.abs(self.excess(sizes)).max() <= _ROUNDING * sizes.sum())

    def needs(self, sizes: np.ndarray) -> Needs:
        """Return what clusters give and what they take so that all come within the limits."""
        excess, slack = self.excess(sizes), _ROUNDING * sizes.sum()
        gives, takes = (np.where(one > slack, one, 0.0) for one in (excess, -excess))
        if not takes.any():  # nothing is too small: whatever has room takes
            takes = np.where(gives > 0, 0, np.maximum(self.most - sizes, 0))
        elif not gives.any():
            gives = np.where(takes > 0, 0, np.maximum(sizes - self.least, 0))
        return Needs(gives, takes)


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
    limited, slack = keep_limits(problem, limits), _ROUNDING * problem.graph.sizes.sum()

    def outside(labels: np.ndarray) -> float:
        return float(np.abs(limits.excess(_sizes(problem, labels))).sum())

    def flow(labels: np.ndarray) -> Partition:
        return _refine(limited, _flow(limited, labels, limits), limits)

    far, found = outside(starts[0]), list[Partition]()
    if search is not None and len(starts[0]) >= _VERY_MANY_ROWS and far > _FAR * slack / _ROUNDING:
        # a quick search for equal clusters takes less time than so many moves
        found.append(flow(search(balance_weight=_WEIGHTS[-1], n_init=0).labels))
    else:
        found += map(flow, starts)
        for weight in _WEIGHTS if search is not None and far > slack else ():
            other = search(balance_weight=weight, starts=[one.labels for one in found])  # type: ignore[misc]
            found.append(flow(other.labels))
    return min(found, key=lambda one: (round(outside(one.labels) / slack), one.objective))


def keep_limits(problem: Problem, limits: Limits) -> Problem:
    """Return a problem whose moves keep to the limits."""
    n_clusters, sizes = problem.cost.n_clusters, problem.graph.sizes
    slack = _ROUNDING * sizes.sum()
    least = np.full(n_clusters, max(limits.least - slack, 0.5 * sizes.min()))
    most = np.full(n_clusters, limits.most + slack)
    return problem._replace(prices=(problem.prices or Prices())._replace(least=least, most=most))


def _sizes(problem: Problem, labels: np.ndarray) -> np.ndarray:
    return np.asarray(np.bincount(labels, problem.graph.sizes, problem.cost.n_clusters))


def _flow(problem: Problem, labels: np.ndarray, limits: Limits) -> np.ndarray:
    """Move rows along shortest paths from clusters that are too large to those too small."""
    prices, rng = problem.prices or Prices(), np.random.default_rng(0)
    labels = prices.fix(labels).copy()
    for size in _FLOW_SIZES if prices.preferred is None and len(labels) >= _MANY_ROWS else ():
        groups = overlay(find_groups(problem.graph.links, size, rng), labels)
        of_groups = np.zeros(int(groups.max()) + 1, np.int64)
        of_groups[groups] = labels
        _move_rows(Problem(problem.contract(groups), problem.cost), of_groups, limits)
        labels = of_groups[groups]
    _move_rows(problem, labels, limits)
    return labels


def _move_rows(problem: Problem, labels: np.ndarray, limits: Limits) -> None:
    """Move rows, in place, until the limits hold or no move brings sizes nearer to them."""
    smallest, heaviest, anywhere = problem.graph.sizes.min(), np.inf, False
    sums = cluster_sums(problem.graph, labels, problem.cost.n_clusters)
    while not limits.hold(sums[1]):
        to_any = limits.needs(sums[1]) if anywhere else None
        moves = price_moves(problem, labels, sums, to_any, heaviest)
        chosen = choose_moves(moves, sums[1], limits)
        labels[moves.row[chosen]] = moves.after[chosen]
        before = np.abs(limits.excess(sums[1])).sum()
        sums = cluster_sums(problem.graph, labels, problem.cost.n_clusters)
        fall = 1 - np.abs(limits.excess(sums[1])).sum() / before
        if len(chosen) or not anywhere:
            # rows of clusters with few neighbours outside go anywhere
            anywhere = not anywhere and fall < _AT_LEAST
        elif heaviest <= smallest:
            break
        else:  # no row as heavy as those that were tried has room
            heaviest = max(0.5 * min(heaviest, problem.graph.sizes.max()), smallest)


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
        sums = cluster_sums(coarse, of_groups, problem.cost.n_clusters)
        moves = price_moves(Problem(coarse, problem.cost), of_groups, sums)
        cheapest = np.full(len(of_groups), np.inf)
        np.minimum.at(cheapest, moves.row, moves.change)
        may_move = np.zeros(len(of_groups), dtype=bool)
        may_move[np.argsort(cheapest, kind="stable")[:_MAX_GROUPS]] = True
        heaviest = coarse.sizes[may_move].max()
        joined = np.where(may_move[groups], groups, len(of_groups) + labels)
        groups = problem.separate_fixed(np.unique(joined, return_inverse=True)[1].reshape(-1))
    return problem.improve_groups(groups, labels, (limits.least, limits.most, heaviest))


class Moves(NamedTuple):
    """Moves of single rows between clusters, the rows' sizes, and the changes of the objective."""

    row: np.ndarray
    before: np.ndarray
    after: np.ndarray
    size: np.ndarray
    change: np.ndarray

    def take(self, numbers: np.ndarray) -> Moves:
        """Return some of the moves."""
        return Moves(*(values[numbers] for values in self))

    def rank(self, n_clusters: int) -> tuple[np.ndarray, np.ndarray]:
        """Sort by pairs of clusters, the cheapest first; return the order and ranks in it."""
        pair = self.before * n_clusters + self.after
        order = np.lexsort((self.change, pair))
        in_order = pair[order]
        return order, np.arange(len(order)) - np.searchsorted(in_order, in_order)


def price_moves(
    problem: Problem,
    labels: np.ndarray,
    sums: tuple[np.ndarray, np.ndarray],
    anywhere: Needs | None = None,
    heaviest: float = np.inf,
) -> Moves:
    """Return the moves of all rows that may move to clusters of neighbours.

    ``sums`` are cuts and sizes of the clusters, which may count more than this graph. ``anywhere``
    are moves of some rows of clusters that give to all that take, neighbours or not.
    """
    graph, cost, prices = problem
    n_rows, n_clusters, (cuts, sizes) = len(labels), cost.n_clusters, sums
    member = csr_array((np.ones(n_rows), labels, np.arange(n_rows + 1)), (n_rows, n_clusters))
    links = csr_array(graph.links @ member)
    row, after = np.repeat(np.arange(n_rows), np.diff(links.indptr)), links.indices
    link, is_own = links.data, after == labels[row]
    own_link, degree = np.zeros(n_rows), np.bincount(row, link, n_rows)
    own_link[row[is_own]] = link[is_own]
    costs, left = cost(cuts, sizes), sizes[labels] - graph.sizes
    leave = cost(cuts[labels] - degree + 2 * own_link, left) - costs[labels]
    # rows of other parts of a graph have no size: they stay
    smallest = graph.sizes.min(where=graph.sizes > 0, initial=np.inf)
    leave[(left < 0.5 * smallest) | (graph.sizes > heaviest) | (graph.sizes == 0)] = np.inf
    if prices is not None and prices.preferred is not None and prices.price is not None:
        leave += np.where(labels == prices.preferred, prices.price, 0.0)
    if anywhere is not None:
        row, after, link = _all_takers(links, labels, leave + cost.scale * degree, anywhere)
    may_move = (after != labels[row]) & np.isfinite(leave[row])
    row, after, link = row[may_move], after[may_move].astype(np.int64), link[may_move]
    cuts_after, sizes_after = cuts[after] + degree[row] - 2 * link, sizes[after] + graph.sizes[row]
    change = leave[row] + (cost(cuts_after, sizes_after) - np.where(sizes > 0, costs, 0)[after])
    if prices is not None and prices.preferred is not None and prices.price is not None:
        change -= np.where(after == prices.preferred[row], prices.price[row], 0.0)
    if prices is not None and prices.apart is not None:
        paid = csr_array(prices.apart @ member)
        change += np.asarray(paid[row, after] - paid[row, labels[row]]).reshape(-1)
    return Moves(row, labels[row], after, graph.sizes[row], change)


def _all_takers(
    links: csr_array, labels: np.ndarray, price: np.ndarray, needs: Needs
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return moves of some cheap rows of givers to all takers, with the links to them."""
    givers, takers = (np.flatnonzero(sizes > 0) for sizes in needs)
    rows = np.flatnonzero(np.isin(labels, givers) & np.isfinite(price))
    order = rows[np.lexsort((price[rows], labels[rows]))]
    rank = np.arange(len(order)) - np.searchsorted(labels[order], labels[order])
    chosen = order[rank < _ANYWHERE]
    row, after = np.repeat(chosen, len(takers)), np.tile(takers, len(chosen))
    return row, after, links[chosen][:, takers].toarray().reshape(-1)


def choose_moves(
    moves: Moves,
    sizes: np.ndarray,
    limits: Limits,
    at_once: float = _AT_ONCE,
    at_least: float = _AT_LEAST,
) -> np.ndarray:
    """Choose moves along the cheapest path to each cluster that takes rows; return their numbers.

    A path leads through clusters that give as many rows as they take. Because prices hold for some
    moves only, ``at_once`` is the fraction of what a cluster gives or takes along one of them, and
    paths are looked for again only until a fraction ``at_least`` of all is within the limits.
    """
    sizes, slack = sizes.astype(np.float64), _ROUNDING * sizes.sum()
    chosen: list[int] = []
    if not len(moves.row):
        return np.asarray(chosen, np.int64)
    queues, enough = _Queues(moves, len(sizes)), (1 - at_least) * np.abs(limits.excess(sizes)).sum()
    n_before = -1
    while len(chosen) > n_before and np.abs(limits.excess(sizes)).sum() > max(enough, slack):
        n_before = len(chosen)
        gives, takes = limits.needs(sizes)
        options = {"indices": np.flatnonzero(gives), "min_only": True, "return_predecessors": True}
        distance, before, source = dijkstra(queues.cheapest(), **options)
        for target in np.argsort(distance, kind="stable"):
            if takes[target] == 0 or not np.isfinite(distance[target]):
                continue
            path = [int(target)]
            while before[path[-1]] >= 0:
                path.append(int(before[path[-1]]))
            path.reverse()
            wanted = min(takes[target], gives[source[target]]) / queues.mean_size
            for _ in range(max(1, int(at_once * wanted))):
                if not (taken := queues.take(path)):
                    break
                now = sizes[path]
                then = now.copy()
                then[:-1] -= moves.size[taken]
                then[1:] += moves.size[taken]
                if np.abs(limits.excess(now)).sum() - np.abs(limits.excess(then)).sum() <= slack:
                    break
                sizes[path] = then
                chosen += taken
    return np.asarray(chosen, np.int64)


class _Queues:
    """The moves from each cluster to each other, cheapest first, every row once."""

    def __init__(self, moves: Moves, n_clusters: int) -> None:
        self.order, rank = moves.rank(n_clusters)
        self.first = np.flatnonzero(rank == 0)
        self.last = np.append(self.first[1:], len(rank))
        self.moves, self.n_clusters, self.used = moves, n_clusters, set[int]()
        self.mean_size = moves.size.mean()
        best = moves.take(self.order[self.first])
        self.pairs = best.before * n_clusters + best.after

    def cheapest(self) -> csr_array:
        """Return the price of the next move between each two clusters that have one left."""
        left = self.first < self.last
        best = self.moves.take(self.order[self.first[left]])
        # the shortest path knows no gains, and no edge of length 0
        price, ends = np.maximum(best.change, 0) + 1e-15, (best.before, best.after)
        return csr_array((price, ends), (self.n_clusters, self.n_clusters))

    def take(self, path: list[int]) -> list[int]:
        """Return one move for each step of a path, or nothing where a step has none left."""
        taken = []
        for one, other in pairwise(path):
            place = int(np.searchsorted(self.pairs, one * self.n_clusters + other))
            while self.first[place] < self.last[place]:
                number = int(self.order[self.first[place]])
                self.first[place] += 1
                row = int(self.moves.row[number])
                if row not in self.used:
                    self.used.add(row)
                    taken.append(number)
                    break
            else:
                return []
        return taken
