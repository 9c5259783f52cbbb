"""How many clusters: the number at which independent searches find the same ones."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from scipy.special import entr

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.matching import adjusted_rand
from prcut.numerics.objective import ClusterCost
from prcut.runtime.engine import map_threads
from prcut.search.balance import resample_edges
from prcut.search.fragments import CoarseGraph, as_coarse, contract, find_fragments
from prcut.search.merge import MergeTree, merge
from prcut.search.moves import improve
from prcut.search.problem import Problem, cluster_cost
from prcut.search.sweep import cluster_sums, sweep

# independent searches, and the rows on which they are compared at most
_N_SEARCHES, _MAX_COMPARED = 5, 20_000
# sweeps in which rows move: enough to compare partitions
_MAX_SWEEPS = 4
# clusters that are tried first, before twice as many; fragments of a search for each of them
_FIRST, _PER_CLUSTER = 50, 8
# rows of a cluster at least, on average: smaller ones are found again in any cloud
_ROWS_PER_CLUSTER = 30
# one number of clusters is so many times the one before; numbers from the end that call for more;
# numbers around the best that are tried last, since of hundreds 3 % more or less are the same
_RATIO, _NEAR_END, _N_LAST = 1.15, 3, 9
# agreement with twice as many clusters over the agreement before, where there may be more
_RISING = 1.15
# agreement below which there are no clusters, and what is added to it over the rows of a cluster:
# clouds in two dimensions come near it; that of a layer; the fraction of the highest worth nothing
_NOTHING, _NOTHING_OF_ROW, _LAYER, _WORTHLESS = 0.5, 3.0, 0.6, 2 / 3
# of two trees, since either alone may join parts of clusters that are far apart
_TREE_BALANCES = 0.3, 0.1
# an empty cluster costs so many times what a cluster of the draft adds to the cut, within limits
_BALANCE_PER_CUT = 10.0
_MIN_BALANCE = 0.1
_MAX_BALANCE = 1.0


class ClusterCount(NamedTuple):
    """A number of clusters, and how it was found.

    Attributes
    ----------
    n_clusters : int
        1 where independent searches find nothing in common.
    tried : int64 array, shape (n_tried,)
        Numbers of clusters, ascending.
    agreement : float64 array, shape (n_tried,)
        Mean adjusted Rand index of independent searches for as many clusters.
    entropy : float64 array, shape (n_tried,)
        Mean entropy of their partitions, in nats.
    """

    n_clusters: int
    tried: np.ndarray
    agreement: np.ndarray
    entropy: np.ndarray

    def layers(self) -> list[int]:
        """Return the number of clusters and the coarser ones on which searches agree as well.

        Layers are the highest of the local maxima of the agreement, of any two of which one has
        twice as many clusters as the other at least.

        >>> agreement = np.array([.7, .95, .8, .7, .85, .9, .8])
        >>> ClusterCount(10, np.array([2, 3, 4, 5, 6, 10, 12]), agreement, agreement).layers()
        [10, 3]
        """
        before, after = np.pad(self.agreement, 1)[:-2], np.pad(self.agreement, 1)[2:]
        is_peak = (self.agreement > before) & (self.agreement >= after)
        peaks = np.flatnonzero(is_peak & (self.agreement >= _LAYER))
        found = [self.n_clusters]
        for number in self.tried[peaks[np.argsort(-self.agreement[peaks])]].tolist():
            if number < self.n_clusters and all(
                2 * min(number, other) <= max(number, other) for other in found
            ):
                found.append(number)
        return sorted(found, reverse=True)


def count_clusters(
    graph: SimilarityGraph,
    least: int = 1,
    most: int | None = None,
    *,
    seed: int = 0,
    n_jobs: int = 1,
) -> ClusterCount:
    """Find the number of clusters at which independent searches agree most.

    Each search weighs the edges anew, at random, cuts the graph into fragments of its own, merges
    them to trees, and moves fragments and rows between the clusters of every number. With too few
    clusters there are many ways to join what belongs apart, with too many to divide what belongs
    together. Two or three large groups are often found again as well: so the entropy of a partition
    counts, times what its agreement has above two thirds of the highest. Where searches have little
    in common, there is one cluster.

    Parameters
    ----------
    graph : SimilarityGraph
    least, most : int
        Numbers to choose from, by default from 1 to a cluster per 30 rows.
    seed : int
    n_jobs : int
        Threads that share the searches; the number does not depend on it.

    Examples
    --------
    >>> from prcut.graph.build import build_graph
    >>> rng = np.random.default_rng(0)
    >>> rows = np.repeat(20 * rng.normal(size=(5, 4)), 60, axis=0) + rng.normal(size=(300, 4))
    >>> count_clusters(build_graph(rows, 10, max_components=5)).n_clusters
    5
    """
    coarse, rng = as_coarse(graph), np.random.default_rng([seed, 2])
    most = graph.n_samples // _ROWS_PER_CLUSTER if most is None else most
    first = max(2, least)
    most, limit = max(first, most), max(_FIRST, 2 * first)
    compared = np.sort(rng.permutation(graph.n_samples)[:_MAX_COMPARED])
    trees = _grow_trees(coarse, min(limit, most), rng, n_jobs)
    found = _measure(trees, _spread(first, min(limit, most)), compared, n_jobs)
    # more clusters need more fragments and time
    while found[-1, 0] < most and _asks_for_more(found):
        limit *= 2
        trees = _grow_trees(coarse, min(limit, most), rng, n_jobs)
        more = _spread(int(found[-1, 0]) + 1, min(limit, most))
        found = np.vstack([found, _measure(trees, more, compared, n_jobs)])
    ends = found[max(0, _best(found) - 1) :][:3, 0]
    last = np.linspace(ends[0], ends[-1], _N_LAST).round().astype(np.int64)
    between = np.setdiff1d(last, found[:, 0])
    if len(between):
        found = np.vstack([found, _measure(trees, between, compared, n_jobs)])
        found = found[found[:, 0].argsort()]
    numbers, agreement, entropy = found.T
    by_chance = _NOTHING + _NOTHING_OF_ROW * numbers / graph.n_samples
    is_one = least == 1 and bool((agreement < by_chance).all())
    chosen = 1 if is_one else int(numbers[_best(found)])
    return ClusterCount(chosen, numbers.astype(np.int64), agreement, entropy)


def _spread(least: int, most: int) -> np.ndarray:
    numbers = [least]
    while numbers[-1] < most:
        numbers.append(min(most, max(numbers[-1] + 1, round(_RATIO * numbers[-1]))))
    return np.array(numbers)


def _asks_for_more(found: np.ndarray) -> bool:
    """Return whether the best number is among the last, and agreement still rises there."""
    numbers, agreement, _ = found.T
    half = agreement[numbers <= numbers[-1] / 2]
    is_rising = len(half) == 0 or agreement[-1] > _RISING * half[-1]
    return bool(is_rising) and _best(found) >= len(found) - _NEAR_END


def _best(found: np.ndarray) -> int:
    """Return the position of the best number."""
    _, agreement, entropy = found.T
    return int(np.argmax(entropy * (agreement - _WORTHLESS * agreement.max())))


class _Tree(NamedTuple):
    """A graph, fragments of its rows, the graph between them, and orders in which they merge."""

    graph: CoarseGraph
    fragments: np.ndarray
    between: CoarseGraph
    merges: list[MergeTree]


def _grow_trees(
    graph: CoarseGraph, most: int, rng: np.random.Generator, n_jobs: int
) -> list[_Tree]:
    """Return independent trees with fragments enough for ``most`` clusters."""
    n_fragments = max(most, min(_PER_CLUSTER * max(most, _FIRST), len(graph.sizes) // 4))

    def grow(rng: np.random.Generator) -> _Tree:
        own = resample_edges(graph, rng)
        fragments = find_fragments(own.links, n_fragments, rng)
        between = contract(own.links, fragments, sizes=own.sizes)
        merges = [merge(between, cluster_cost(own, 2, weight)) for weight in _TREE_BALANCES]
        return _Tree(own, fragments, between, merges)

    return list(map_threads(grow, rng.spawn(_N_SEARCHES), n_jobs))


def _measure(
    trees: list[_Tree], numbers: np.ndarray, compared: np.ndarray, n_jobs: int
) -> np.ndarray:
    """Return each number of clusters with agreement and entropy of independent searches for it."""
    search = partial(_search, numbers, compared)
    searches = zip(*map_threads(search, trees, n_jobs), strict=True)
    return np.column_stack([numbers, [_compare(partitions) for partitions in searches]])


def _search(numbers: np.ndarray, compared: np.ndarray, own: _Tree) -> list[np.ndarray]:
    """Return labels of the compared rows, for each number of clusters."""
    found, (graph, fragments, between, merges) = [], own
    for number in np.minimum(numbers, len(between.sizes)).tolist():
        drafts, free = [tree.labels(number) for tree in merges], cluster_cost(graph, number, 0.0)
        weight = min(_weigh_balance(between, draft, free) for draft in drafts)
        cost = cluster_cost(graph, number, weight)
        labels, _ = min((improve(between, draft, cost) for draft in drafts), key=itemgetter(1))
        sums = cluster_sums(graph, labels[fragments], number)
        labels = sweep(graph, labels[fragments], cost, sums, _MAX_SWEEPS)
        found.append(labels[compared])
    return found


def _weigh_balance(graph: CoarseGraph, labels: np.ndarray, cut: ClusterCost) -> float:
    """Return the balance weight for a draft, by a cost without balance.

    Of many numbers of clusters each needs its own, and searches with two weights would take twice
    as long.
    """
    wanted = _BALANCE_PER_CUT * Problem(graph, cut).score(labels).objective / (cut.n_clusters - 1)
    return min(_MAX_BALANCE, max(_MIN_BALANCE, wanted))


def _compare(partitions: tuple[np.ndarray, ...]) -> tuple[float, float]:
    """Return the mean adjusted Rand index of all pairs, and the mean entropy."""
    agreement = [adjusted_rand(*pair) for pair in combinations(partitions, 2)]
    entropy = [entr(np.bincount(labels) / len(labels)).sum() for labels in partitions]
    return float(np.mean(agreement)), float(np.mean(entropy))
