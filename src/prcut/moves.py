"""Moving fragments between clusters, also uphill: what greedy moves of single rows cannot find.

On a few hundred fragments a partition is improved in a fraction of a second, so that many starts
can be tried and the one with the lowest objective kept.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from prcut.cluster_cost import ClusterCost
from prcut.coarse_graph import CoarseGraph
from prcut.merging import merge

__all__ = ["find_optima", "improve", "search"]

# a pass ends after so many moves without a new best, as a share of the fragments
_PATIENCE = 0.25
# merging that minds balance from the first joins small fragments that share no edge; which share
# of it is best differs from graph to graph
_SHARES_OF_BALANCE = 1.0, 0.3, 0.1, 0.0
# starts that must find the best before it is taken for the optimum
_OFTEN = 3
# relative fall of the objective that is worth another pass
_LEAST_GAIN = 1e-9


def improve(coarse: CoarseGraph, labels: np.ndarray, cost: ClusterCost) -> tuple[np.ndarray, float]:
    """Pass after pass of moves (Fiduccia and Mattheyses), until one brings nothing.

    In a pass each fragment moves at most once, the best move first even where it costs; then all
    moves behind the best moment are taken back. No cluster is emptied.

    Returns
    -------
    labels : int64 array, shape (n_fragments,)
    objective : float
    """
    moves = _Moves(coarse, labels, cost)
    best = moves.objective
    while True:
        moves.run_pass()
        if not moves.objective < best - _LEAST_GAIN * abs(best):
            return moves.labels, moves.objective
        best = moves.objective


class _Moves:
    """A partition with the worth of every move, kept up to date move by move."""

    def __init__(self, coarse: CoarseGraph, labels: np.ndarray, cost: ClusterCost) -> None:
        self.coarse, self.cost = coarse, cost
        self.degree = coarse.links.sum(1)
        self.labels = labels.copy()
        self._count()

    def _count(self) -> None:
        """Everything from the labels."""
        links, sizes = self.coarse
        n_fragments, n_clusters = len(sizes), self.cost.n_clusters
        everyone = np.arange(n_fragments)
        ones = np.ones(n_fragments)
        member = csr_array((ones, (self.labels, everyone)), shape=(n_clusters, n_fragments))
        # clusters are rows here: a move reads and writes two of them
        self.links = member @ links
        self.sizes = member @ sizes
        outside = self.degree - self.links[self.labels, everyone]
        self.cuts = np.bincount(self.labels, outside, n_clusters)
        self.objective = self.cost.objective(self.cuts, self.sizes)

    def run_pass(self) -> None:
        n_fragments, n_clusters = len(self.labels), self.cost.n_clusters
        self.is_free = np.ones(n_fragments, dtype=bool)
        self.enter = np.full((n_clusters, n_fragments), np.inf)
        self.leave = np.empty(n_fragments)
        # the cheapest cluster to enter, of every fragment
        self.target = np.zeros(n_fragments, dtype=np.int64)
        self.entry = np.full(n_fragments, np.inf)
        self._price(np.arange(n_clusters))
        made: list[tuple[int, int]] = []
        change = least = 0.0
        n_best = 0
        while len(made) - n_best <= _PATIENCE * n_fragments:
            worth = self.entry + self.leave
            fragment = int(worth.argmin())
            if not np.isfinite(worth[fragment]):
                break
            before, after = int(self.labels[fragment]), int(self.target[fragment])
            change += worth[fragment]
            self._move(fragment, before, after)
            self.is_free[fragment] = False
            made.append((fragment, before))
            if change < least - 1e-15:
                least, n_best = change, len(made)
            self._price(np.array([before, after]))
        for fragment, before in reversed(made[n_best:]):
            self.labels[fragment] = before
        self._count()

    def _move(self, fragment: int, before: int, after: int) -> None:
        links, sizes = self.coarse
        degree, own = self.degree[fragment], self.links[:, fragment]
        self.cuts[before] += 2 * own[before] - degree
        self.cuts[after] += degree - 2 * own[after]
        self.sizes[before] -= sizes[fragment]
        self.sizes[after] += sizes[fragment]
        self.links[before] -= links[fragment]
        self.links[after] += links[fragment]
        self.labels[fragment] = after

    def _price(self, clusters: np.ndarray) -> None:
        """What it costs to enter these clusters, and what their own fragments gain by leaving."""
        sizes = self.coarse.sizes
        cuts_after = self.cuts[clusters, None] + self.degree - 2 * self.links[clusters]
        sizes_after = self.sizes[clusters, None] + sizes
        costs = self.cost(self.cuts, self.sizes)
        entry = self.cost(cuts_after, sizes_after) - costs[clusters, None]

        is_touched = np.zeros(len(costs), dtype=bool)
        is_touched[clusters] = True
        inside = np.flatnonzero(is_touched[self.labels])
        own = self.labels[inside]
        sizes_left = self.sizes[own] - sizes[inside]
        cuts_left = self.cuts[own] - self.degree[inside] + 2 * self.links[own, inside]
        left = self.cost(cuts_left, sizes_left) - costs[own]
        self.leave[inside] = np.where(self.is_free[inside] & (sizes_left > 0.5), left, np.inf)

        self.enter[clusters] = entry
        self.enter[own, inside] = np.inf
        # of the other clusters nothing has changed: only fragments whose cheapest was one of these
        # look at all
        stale = np.flatnonzero(is_touched[self.target])
        self.target[stale] = self.enter[:, stale].argmin(0)
        self.entry[stale] = self.enter[self.target[stale], stale]
        for cluster in clusters:
            cheaper = np.flatnonzero(self.enter[cluster] < self.entry)
            self.target[cheaper] = cluster
            self.entry[cheaper] = self.enter[cluster, cheaper]


def search(
    coarse: CoarseGraph, cost: ClusterCost, rng: np.random.Generator, n_starts: int, n_shakes: int
) -> tuple[np.ndarray, float]:
    """The best partition of the fragments that was found, by its objective.

    The best of :func:`find_optima`, where several starts found it; otherwise two or three of its
    clusters are mixed up again and again, and a change is kept when it pays.

    Returns
    -------
    labels : int64 array, shape (n_fragments,)
    objective : float
    """
    n_clusters = cost.n_clusters
    optima = find_optima(coarse, cost, rng, n_starts, n_finds=_OFTEN)
    best, objective = optima[0]
    is_certain = _n_as_good(optima, objective) >= _OFTEN
    for _ in range(0 if is_certain or n_clusters == 2 else n_shakes):
        chosen = rng.choice(n_clusters, rng.integers(2, 4), replace=False)
        mixed = np.flatnonzero(np.isin(best, chosen))
        labels = best.copy()
        labels[mixed] = rng.permutation(chosen[np.arange(len(mixed)) % len(chosen)])
        labels, shaken = improve(coarse, labels, cost)
        if shaken < objective:
            best, objective = labels, shaken
    return best, objective


def find_optima(
    coarse: CoarseGraph,
    cost: ClusterCost,
    rng: np.random.Generator,
    n_starts: int,
    *,
    n_finds: int | None = None,
) -> list[tuple[np.ndarray, float]]:
    """Partitions that no pass of moves improves, with their objectives, the best first.

    Starts are what merging gives, with more and with less care for balance, and random labels,
    ``n_starts`` of these, or until ``n_finds`` have found the best.
    """
    n_fragments, n_clusters = len(coarse.sizes), cost.n_clusters
    found = []
    for share in _SHARES_OF_BALANCE:
        tree = merge(coarse, cost._replace(factor=share * cost.factor))
        found.append(improve(coarse, tree.labels(n_clusters), cost))
        if cost.factor == 0:
            break
    by_chance: list[tuple[np.ndarray, float]] = []
    for _ in range(n_starts):
        # each label at least once
        labels = rng.permutation(np.arange(n_fragments) % n_clusters)
        by_chance.append(improve(coarse, labels, cost))
        best = min(objective for _, objective in (*found, *by_chance))
        if n_finds is not None and _n_as_good(by_chance, best) >= n_finds:
            break
    return sorted((*found, *by_chance), key=lambda pair: pair[1])


def _n_as_good(optima: list[tuple[np.ndarray, float]], best: float) -> int:
    return sum(objective <= best + _LEAST_GAIN * abs(best) for _, objective in optima)
