"""Limits of the clusters' sizes: rows flow along the cheapest moves until all limits hold.

Rows have less far to go from clusters that are nearly equal already, so these are searched too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from prcut.search.flow import ROUNDING, Limits, choose_moves, price_moves
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
# fraction of what lies outside the limits that a round of the flow brings inside at least
_LEAST_FALL = 0.05


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
    limited, slack = keep_limits(problem, limits), ROUNDING * problem.graph.sizes.sum()

    def outside(labels: np.ndarray) -> float:
        return float(np.abs(limits.excess(_sizes(problem, labels))).sum())

    def flow(labels: np.ndarray) -> Partition:
        return _refine(limited, _flow(limited, labels, limits), limits)

    far, found = outside(starts[0]), list[Partition]()
    if search is not None and len(starts[0]) >= _VERY_MANY_ROWS and far > _FAR * slack / ROUNDING:
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
    slack = ROUNDING * sizes.sum()
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
            anywhere = not anywhere and fall < _LEAST_FALL
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
    return problem.improve(groups, labels, (limits.least, limits.most, heaviest))
