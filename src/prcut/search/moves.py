"""Moves of fragments between clusters, also uphill: optima that greedy moves of rows cannot reach.

On a few hundred fragments a partition is improved in a fraction of a second, so many starts can be
tried and the one with the lowest objective kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter

import numpy as np

from prcut.numerics.objective import ClusterCost
from prcut.runtime.engine import map_threads
from prcut.search import kernels
from prcut.search.fragments import CoarseGraph
from prcut.search.merge import merge_linked
from prcut.search.prices import match_prices
from prcut.search.sweep import cluster_sums, sweep

# a pass stops after this many moves without a new minimum: a fraction of the fragments, at most 300
_PATIENCE, _MAX_PATIENCE = 0.25, 300
# fractions of the balance that merges count; the one that works best differs from graph to graph
_FRACTIONS = 1.0, 0.3, 0.1, 0.0
# random labellings that are improved where partitions are combined, and the most of them times
# clusters: with many clusters nothing random comes near the result of merging
_N_RANDOM = 16
_MAX_RANDOM_CLUSTERS = 240
# shuffles of a combined partition, and the most of them times clusters, since they are expensive
_N_SHUFFLES = 30
_MAX_SHUFFLED_CLUSTERS = 1000
# shuffles of one partition that threads share, before the next are of what these found
_SHUFFLED_AT_ONCE = 2
# random starts that must reach the lowest objective before it is taken for the optimum
_N_CONFIRMATIONS = 3
# relative fall of the objective that is worth another pass
_LEAST_FALL = 1e-5
# relative difference of objectives that is rounding
_LEAST_GAIN = 1e-9
MOST_IMPROVED = 2**13
"""Nodes that are also moved uphill, at most; of more, single moves downhill take less time."""
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
    elif len(labels) > MOST_IMPROVED and bounds == UNBOUNDED:
        labels = sweep(coarse, labels, cost, cluster_sums(coarse, labels, cost.n_clusters))
        sums = cluster_sums(coarse, labels, cost.n_clusters)
        return labels, cost.objective(*sums)
    labels, objective = labels.copy(), np.empty(1)
    patience = min(_PATIENCE * len(labels), _MAX_PATIENCE)
    limits = cost, paid, *bounds, patience, _LEAST_FALL
    kernels.call("improve", *coarse[:2], cost.n_clusters, *limits, labels, objective)
    return labels, float(objective[0])


# labels of the fragments, and their objective
_Optimum = tuple[np.ndarray, float]
_objective = itemgetter(1)


def find_optimum(
    coarse: CoarseGraph,
    cost: ClusterCost,
    rng: np.random.Generator,
    *,
    n_starts: int | None = None,
    n_shuffles: int | None = None,
    n_jobs: int = 1,
    paid: np.ndarray | None = None,
    given: Sequence[np.ndarray] = (),
) -> _Optimum:
    """Search for the partition of the fragments with the lowest objective.

    Starts are ``given``, or come from merging, and from random labels until several of these have
    reached the lowest objective. If they do not, two or three clusters of the partition are
    shuffled again and again, and a change is kept if it lowers the objective. ``paid``: see
    :func:`improve`.
    """
    n_clusters = cost.n_clusters
    if n_starts is None:
        n_starts = min(_N_RANDOM, _MAX_RANDOM_CLUSTERS // n_clusters)
    if n_shuffles is None:
        n_shuffles = min(_N_SHUFFLES, _MAX_SHUFFLED_CLUSTERS // n_clusters)
    improved = partial(improve, coarse, cost=cost, paid=paid)
    merged = map_threads(partial(_merge, coarse, cost), _FRACTIONS, n_jobs)
    lowest = min(map_threads(improved, [*given, *merged], n_jobs), key=_objective)
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


def _merge(coarse: CoarseGraph, cost: ClusterCost, fraction: float) -> np.ndarray:
    """Merge along edges, with a fraction of the balance."""
    return merge_linked(coarse, cost._replace(factor=fraction * cost.factor))


def _random_labels(coarse: CoarseGraph, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Draw labels of equal frequency: each occurs at least once."""
    return rng.permutation(np.arange(len(coarse.sizes)) % n_clusters)
