"""Moves of fragments between clusters, also uphill: optima that greedy moves of rows cannot reach.

On a few hundred fragments a partition is improved in a fraction of a second, so many starts can be
tried and the one with the lowest objective kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from operator import itemgetter

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from prcut.numerics.objective import ClusterCost
from prcut.runtime.engine import map_threads
from prcut.search import kernels
from prcut.search.fragments import CoarseGraph, kmeans
from prcut.search.merge import merge
from prcut.search.prices import match_prices

# a pass stops after this many moves without a new minimum: a fraction of the fragments, at most 300
_PATIENCE, _MAX_PATIENCE = 0.25, 300
# merging with full balance joins small fragments that share no edge; the fraction of the balance
# that works best differs from graph to graph, but is small where there are many clusters
_BALANCE_FRACTIONS, _MANY_CLUSTERS = (1.0, 0.3, 0.1, 0.0), 250
# starts from eigenvectors, and the number of fragments up to which these are cheap
_N_SPECTRAL, _MAX_SPECTRAL_FRAGMENTS = 4, 1500
# shuffles of one partition that threads share, before the next are of what these found
_SHUFFLED_AT_ONCE = 2
# random starts that must reach the lowest objective before it is taken for the optimum
_N_CONFIRMATIONS = 3
# relative fall of the objective that is worth another pass
_LEAST_GAIN = 1e-9
Bounds = tuple[float, float, float]
UNBOUNDED: Bounds = (0.0, np.inf, 0.0)


def improve(
    coarse: CoarseGraph,
    labels: np.ndarray,
    cost: ClusterCost,
    paid: np.ndarray | None = None,
    bounds: Bounds = UNBOUNDED,
) -> tuple[np.ndarray, float]:
    """Run passes of moves (Fiduccia and Mattheyses) until one no longer lowers the objective.

    In a pass each fragment moves at most once, the best move first even if it costs; then all
    moves after the minimum are undone. No cluster is emptied. ``paid`` is what every fragment adds
    to the objective in every cluster: clusters are first renamed so that this is least.
    ``bounds``: the least and the most of a size, which a pass may leave by the third on its way.
    """
    if paid is not None:
        labels, paid = match_prices(labels, paid), np.ascontiguousarray(paid, np.float64)
    if kernels.LIBRARY is not None:
        labels, objective = labels.copy(), np.empty(1)
        links, sizes, _ = coarse
        indptr, indices = (a.astype(np.int32, copy=False) for a in (links.indptr, links.indices))
        graph = len(labels), cost.n_clusters, indptr, indices, links.data, sizes
        limits = cost, kernels.address_of(paid), *bounds, _patience(labels), _LEAST_GAIN
        kernels.call("improve", *graph, *limits, labels, objective)
        return labels, float(objective[0])
    moves = _Moves(coarse, labels, cost, paid, bounds)
    lowest = moves.objective
    while True:
        moves.run_pass()
        if not moves.objective < lowest - _LEAST_GAIN * abs(lowest):
            return moves.labels, moves.objective
        lowest = moves.objective


def _patience(labels: np.ndarray) -> float:
    return min(_PATIENCE * len(labels), _MAX_PATIENCE)


class _Moves:
    """A partition with the price of every move, updated after each move."""

    def __init__(
        self,
        coarse: CoarseGraph,
        labels: np.ndarray,
        cost: ClusterCost,
        paid: np.ndarray | None = None,
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        self.coarse, self.cost, self.between = coarse, cost, coarse.links.toarray()
        self.paid = np.zeros((len(labels), cost.n_clusters)) if paid is None else paid
        (self.least, self.most, slack), self.rounding = bounds, 1e-9 * cost.n_samples
        # less than half a fragment is what rounding leaves of an empty cluster
        self.least_size = max(0.5 * coarse.sizes.min(), self.least - slack - self.rounding)
        self.most_size = self.most + slack + self.rounding
        self.degree = self.between.sum(1)
        self.labels = labels.copy()
        self._count()

    def _count(self) -> None:
        """Compute links, sizes, cuts and the objective from the labels."""
        links, sizes = self.between, self.coarse.sizes
        numbers, n_clusters = np.arange(len(sizes)), self.cost.n_clusters
        entries = np.ones(len(sizes)), (self.labels, numbers)
        member = csr_array(entries, shape=(n_clusters, len(sizes)))
        # clusters are rows here: a move reads and writes two of them
        self.links = member @ links
        self.sizes = member @ sizes
        outside = self.degree - self.links[self.labels, numbers]
        self.cuts = np.bincount(self.labels, outside, n_clusters)
        self.objective = self.cost.objective(self.cuts, self.sizes)
        self.objective += float(self.paid[numbers, self.labels].sum())

    def run_pass(self) -> None:
        n_fragments, n_clusters = len(self.labels), self.cost.n_clusters
        self.is_free = np.ones(n_fragments, dtype=bool)
        self.enter = np.full((n_fragments, n_clusters), np.inf)
        self.leave = np.empty(n_fragments)
        # the cheapest cluster for every fragment to enter
        self.target = np.zeros(n_fragments, dtype=np.int64)
        self.entry = np.full(n_fragments, np.inf)
        self._price(np.arange(n_clusters))
        made: list[tuple[int, int]] = []
        change = least = 0.0
        n_kept, outside = 0, self._outside()
        while len(made) - n_kept <= _patience(self.labels):
            price, target = self.entry + self.leave, self.target
            over = np.flatnonzero(self.sizes > self.most + self.rounding)
            under = np.flatnonzero(self.sizes < self.least - self.rounding)
            # a cluster that is too large gives next, or one too small takes, until all are within
            if len(over):
                price = np.where(self.labels == over[-1], price, np.inf)
            elif len(under):
                target = np.full_like(target, under[-1])
                price = self.enter[:, under[-1]] + self.leave
            fragment = int(price.argmin())
            if not np.isfinite(price[fragment]):
                break
            before, after = int(self.labels[fragment]), int(target[fragment])
            change += price[fragment]
            self._move(fragment, before, after)
            self.is_free[fragment] = False
            made.append((fragment, before))
            if change < least - 1e-15 and self._outside() <= outside + self.rounding:
                least, n_kept = change, len(made)
            self._price(np.array([before, after]))
        for fragment, before in reversed(made[n_kept:]):
            self.labels[fragment] = before
        self._count()

    def _outside(self) -> float:
        beyond = np.maximum(self.sizes - self.most, self.least - self.sizes)
        return float(np.maximum(beyond, 0).sum())

    def _move(self, fragment: int, before: int, after: int) -> None:
        links, sizes = self.between, self.coarse.sizes
        degree, own = self.degree[fragment], self.links[:, fragment]
        self.cuts[before] += 2 * own[before] - degree
        self.cuts[after] += degree - 2 * own[after]
        self.sizes[before] -= sizes[fragment]
        self.sizes[after] += sizes[fragment]
        self.links[before] -= links[fragment]
        self.links[after] += links[fragment]
        self.labels[fragment] = after

    def _price(self, clusters: np.ndarray) -> None:
        """Update the price of entering these clusters, and of leaving them for their fragments."""
        sizes = self.coarse.sizes
        cuts_after = self.cuts[clusters, None] + self.degree - 2 * self.links[clusters]
        sizes_after = self.sizes[clusters, None] + sizes
        costs = self.cost(self.cuts, self.sizes)
        entry = self.cost(cuts_after, sizes_after) - costs[clusters, None]
        entry[sizes_after > self.most_size] = np.inf

        is_touched = np.zeros(len(costs), dtype=bool)
        is_touched[clusters] = True
        inside = np.flatnonzero(is_touched[self.labels])
        own = self.labels[inside]
        sizes_left = self.sizes[own] - sizes[inside]
        cuts_left = self.cuts[own] - self.degree[inside] + 2 * self.links[own, inside]
        left = self.cost(cuts_left, sizes_left) - costs[own] - self.paid[inside, own]
        may_leave = self.is_free[inside] & (sizes_left > self.least_size)
        self.leave[inside] = np.where(may_leave, left, np.inf)

        self.enter[:, clusters] = entry.T + self.paid[:, clusters]
        self.enter[inside, own] = np.inf
        # prices of other clusters have not changed: only fragments that may still move, and whose
        # cheapest cluster was one of these, compare all clusters again
        stale = np.flatnonzero(is_touched[self.target] & self.is_free)
        self.target[stale] = self.enter[stale].argmin(1)
        self.entry[stale] = self.enter[stale, self.target[stale]]
        for cluster in clusters:
            price = self.enter[:, cluster]
            cheaper = np.flatnonzero(price < self.entry)
            self.target[cheaper] = cluster
            self.entry[cheaper] = price[cheaper]


# labels of the fragments, and their objective
_Optimum = tuple[np.ndarray, float]
_objective = itemgetter(1)


def find_optimum(
    coarse: CoarseGraph,
    cost: ClusterCost,
    rng: np.random.Generator,
    n_starts: int,
    n_shuffles: int,
    n_jobs: int = 1,
    paid: np.ndarray | None = None,
) -> _Optimum:
    """Search for the partition of the fragments with the lowest objective.

    Starts come from merging, from eigenvectors, and from random labels until several of these have
    reached the lowest objective. If they do not, two or three clusters of the partition are
    shuffled again and again, and a change is kept if it lowers the objective. ``paid``: see
    :func:`improve`.
    """
    n_clusters = cost.n_clusters
    improved = partial(improve, coarse, cost=cost, paid=paid)
    # eigenvectors first: they take as long as all merging together
    finders = [partial(_spectral, coarse, n_clusters, rng), *_mergers(coarse, cost)]
    found = map_threads(lambda find: find(), finders, n_jobs)
    lowest = min(map_threads(improved, [*chain(*found)], n_jobs), key=_objective)
    drawn = [_random_labels(coarse, n_clusters, rng) for _ in range(n_starts)]
    n_confirmed = 0
    for optimum in map_threads(improved, drawn, n_jobs):
        if optimum[1] < lowest[1] * (1 - _LEAST_GAIN):
            lowest, n_confirmed = optimum, 0
        n_confirmed += optimum[1] <= lowest[1] * (1 + _LEAST_GAIN)
        if n_confirmed == _N_CONFIRMATIONS:
            return lowest
    for _ in range(0 if n_clusters == 2 else n_shuffles // _SHUFFLED_AT_ONCE):
        drawn = [_shuffle_clusters(lowest[0], n_clusters, rng) for _ in range(_SHUFFLED_AT_ONCE)]
        lowest = min(lowest, *map_threads(improved, drawn, n_jobs), key=_objective)
    return lowest


def _shuffle_clusters(labels: np.ndarray, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Redistribute the fragments of two or three random clusters evenly among these."""
    chosen = rng.choice(n_clusters, rng.integers(2, 4), replace=False)
    inside = np.flatnonzero(np.isin(labels, chosen))
    labels = labels.copy()
    labels[inside] = rng.permutation(chosen[np.arange(len(inside)) % len(chosen)])
    return labels


def find_optima(
    coarse: CoarseGraph,
    cost: ClusterCost,
    rng: np.random.Generator,
    n_starts: int,
    n_jobs: int = 1,
    paid: np.ndarray | None = None,
) -> list[_Optimum]:
    """Find partitions that no pass of moves improves, with their objectives, lowest first.

    Starts come from merging, those that differ, and from ``n_starts`` random labels.
    """
    found = chain(*map_threads(lambda find: find(), _mergers(coarse, cost), n_jobs))
    merged = list({labels.tobytes(): labels for labels in found}.values())
    drawn = [_random_labels(coarse, cost.n_clusters, rng) for _ in range(n_starts)]
    starts = [*merged, *drawn]
    improved = partial(improve, coarse, cost=cost, paid=paid)
    return sorted(map_threads(improved, starts, n_jobs), key=_objective)


def _mergers(coarse: CoarseGraph, cost: ClusterCost) -> list[partial[list[np.ndarray]]]:
    """Return functions that merge with different fractions of the balance term."""

    def merged(fraction: float) -> list[np.ndarray]:
        tree = merge(coarse, cost._replace(factor=fraction * cost.factor))
        return [tree.labels(min(cost.n_clusters, len(coarse.sizes)))]

    fractions: Sequence[float] = _BALANCE_FRACTIONS if cost.factor else (1.0,)
    if cost.n_clusters > _MANY_CLUSTERS:
        fractions = fractions[-2:]
    return [partial(merged, fraction) for fraction in fractions]


def _spectral(coarse: CoarseGraph, n_clusters: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Cluster the eigenvectors that relax the ratio cut: finds very different cluster sizes."""
    links, sizes, _ = coarse
    if not 1 < n_clusters < len(sizes) <= _MAX_SPECTRAL_FRAGMENTS:
        return []
    dense, root = links.toarray(), 1 / np.sqrt(sizes)
    laplacian = (np.diag(dense.sum(1)) - dense) * root[:, None] * root
    _, vectors = eigh(laplacian, subset_by_index=[0, n_clusters - 1])
    points = np.ascontiguousarray(vectors * root[:, None])
    centres = (_spread_points(points, sizes, n_clusters, rng) for _ in range(_N_SPECTRAL))
    starts = [kmeans(points, sizes, first, rng) for first in centres]
    return [labels for labels in starts if len(np.unique(labels)) == n_clusters]


def _spread_points(
    points: np.ndarray, sizes: np.ndarray, n_points: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw points far from those drawn before (k-means++)."""
    chosen: list[int] = []
    price, distance = sizes, np.full(len(points), np.inf)
    for _ in range(n_points):
        total = price.sum()
        chosen.append(int(rng.choice(len(points), p=price / total if total > 0 else None)))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(1))
        price = distance * sizes
    return points[chosen]


def _random_labels(coarse: CoarseGraph, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Draw labels of equal frequency: each occurs at least once."""
    return rng.permutation(np.arange(len(coarse.sizes)) % n_clusters)
