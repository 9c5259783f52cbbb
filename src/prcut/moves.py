"""Moving fragments between clusters, also uphill: what greedy moves of single rows cannot find.

On a few hundred fragments a partition is improved in a fraction of a second, so that many starts
can be tried and the one with the lowest objective kept.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from prcut.cluster_cost import ClusterCost
from prcut.coarse_graph import CoarseGraph
from prcut.merging import merge

__all__ = ["find_optima", "improve", "search"]

# a pass ends after so many moves without a new best, as a share of the fragments, and at most
_PATIENCE, _MOST_PATIENCE = 0.25, 300
# merging that minds balance from the first joins small fragments that share no edge; which share
# of it is best differs from graph to graph
_SHARES_OF_BALANCE = 1.0, 0.3, 0.1, 0.0
# starts from eigenvectors, and the fragments up to which these cost next to nothing
_N_SPECTRAL, _MOST_EIGENVECTORS = 4, 1500
# random starts that must find the best before it is taken for the optimum
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
        self.enter = np.full((n_fragments, n_clusters), np.inf)
        self.leave = np.empty(n_fragments)
        # the cheapest cluster to enter, of every fragment
        self.target = np.zeros(n_fragments, dtype=np.int64)
        self.entry = np.full(n_fragments, np.inf)
        self._price(np.arange(n_clusters))
        made: list[tuple[int, int]] = []
        change = least = 0.0
        n_best = 0
        patience = min(_PATIENCE * n_fragments, _MOST_PATIENCE)
        while len(made) - n_best <= patience:
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

        self.enter[:, clusters] = entry.T
        self.enter[inside, own] = np.inf
        # of the other clusters nothing has changed: only fragments whose cheapest was one of these,
        # and that may still move, look at all
        stale = np.flatnonzero(is_touched[self.target] & self.is_free)
        self.target[stale] = self.enter[stale].argmin(1)
        self.entry[stale] = self.enter[stale, self.target[stale]]
        for cluster in clusters:
            price = self.enter[:, cluster]
            cheaper = np.flatnonzero(price < self.entry)
            self.target[cheaper] = cluster
            self.entry[cheaper] = price[cheaper]


_Optimum = tuple[np.ndarray, float]


def search(
    coarse: CoarseGraph, cost: ClusterCost, rng: np.random.Generator, n_starts: int, n_shakes: int
) -> _Optimum:
    """The best partition of the fragments that was found, by its objective.

    Starts are what merging and eigenvectors give, and random labels, until several of these have
    found the best. Where they have not, two or three of its clusters are mixed up again and again,
    and a change is kept when it pays.

    Returns
    -------
    labels : int64 array, shape (n_fragments,)
    objective : float
    """
    n_clusters = cost.n_clusters
    starts = (*_merged(coarse, cost), *_spectral(coarse, n_clusters, rng))
    best, objective = _best([improve(coarse, labels, cost) for labels in starts])
    n_finds = 0
    for _ in range(n_starts):
        labels, found = improve(coarse, _by_chance(coarse, n_clusters, rng), cost)
        if found < objective * (1 - _LEAST_GAIN):
            best, objective, n_finds = labels, found, 0
        n_finds += found <= objective * (1 + _LEAST_GAIN)
        if n_finds == _OFTEN:
            return best, objective
    for _ in range(0 if n_clusters == 2 else n_shakes):
        chosen = rng.choice(n_clusters, rng.integers(2, 4), replace=False)
        mixed = np.flatnonzero(np.isin(best, chosen))
        labels = best.copy()
        labels[mixed] = rng.permutation(chosen[np.arange(len(mixed)) % len(chosen)])
        best, objective = _best([(best, objective), improve(coarse, labels, cost)])
    return best, objective


def find_optima(
    coarse: CoarseGraph, cost: ClusterCost, rng: np.random.Generator, n_starts: int
) -> list[_Optimum]:
    """Partitions that no pass of moves improves, with their objectives, the best first.

    Starts are what merging gives and ``n_starts`` random labels.
    """
    starts = _merged(coarse, cost)
    starts += [_by_chance(coarse, cost.n_clusters, rng) for _ in range(n_starts)]
    return sorted((improve(coarse, labels, cost) for labels in starts), key=_objective)


def _merged(coarse: CoarseGraph, cost: ClusterCost) -> list[np.ndarray]:
    """What merging gives with more and with less care for balance."""
    shares = _SHARES_OF_BALANCE if cost.factor else _SHARES_OF_BALANCE[:1]
    trees = (merge(coarse, cost._replace(factor=share * cost.factor)) for share in shares)
    return [tree.labels(cost.n_clusters) for tree in trees]


def _spectral(coarse: CoarseGraph, n_clusters: int, rng: np.random.Generator) -> list[np.ndarray]:
    """k-means of the eigenvectors that relax the ratio cut: clusters of very different sizes."""
    links, sizes = coarse
    if not 1 < n_clusters < len(sizes) <= _MOST_EIGENVECTORS:
        return []
    from sklearn.cluster import KMeans

    root = 1 / np.sqrt(sizes)
    laplacian = (np.diag(links.sum(1)) - links) * root[:, None] * root
    _, vectors = eigh(laplacian, subset_by_index=[0, n_clusters - 1])
    kmeans = KMeans(n_clusters, n_init=1)
    found = []
    for seed in rng.integers(2**31, size=_N_SPECTRAL):
        kmeans.set_params(random_state=int(seed)).fit(vectors * root[:, None], sample_weight=sizes)
        labels = kmeans.labels_.astype(np.int64)
        if len(np.unique(labels)) == n_clusters:
            found.append(labels)
    return found


def _by_chance(coarse: CoarseGraph, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Random labels, each at least once."""
    return rng.permutation(np.arange(len(coarse.sizes)) % n_clusters)


def _best(optima: list[_Optimum]) -> _Optimum:
    return min(optima, key=_objective)


def _objective(optimum: _Optimum) -> float:
    return optimum[1]
