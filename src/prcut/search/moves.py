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
    labels, objective = labels.copy(), np.empty(1)
    patience = min(_PATIENCE * len(labels), _MAX_PATIENCE)
    limits = cost, paid, *bounds, patience, _LEAST_GAIN
    kernels.call("improve", *coarse[:2], cost.n_clusters, *limits, labels, objective)
    return labels, float(objective[0])


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
    for _ in range(0 if n_clusters <= 2 else n_shuffles // _SHUFFLED_AT_ONCE):
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
    links, sizes = coarse.links, coarse.sizes
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
