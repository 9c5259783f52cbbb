"""A partition of a graph: fragments → merge and move → refine → combine → move groups.

More than 512 clusters are searched along the edges instead: see :mod:`prcut.search.many`.

No labels are used: of all partitions that are found, the one with the lowest objective is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.matching import adjusted_rand
from prcut.numerics.objective import ClusterCost
from prcut.runtime.engine import map_threads
from prcut.runtime.progress import StepLog
from prcut.search.fragments import (
    GROUP_SIZE,
    CoarseGraph,
    choose_n_fragments,
    find_fragments,
    find_groups,
    overlay,
)
from prcut.search.hierarchy import merge_further
from prcut.search.many import MANY_CLUSTERS, combine_many, group_many, move_groups, start_many
from prcut.search.merge import MergeTree
from prcut.search.prices import Prices
from prcut.search.problem import Partition, Problem, cluster_cost

_objective = attrgetter("objective")

# random labellings of a quick search; random labellings and shuffles where starts are combined.
# With many clusters there are fewer: nothing random comes near what merging gives, and shuffles
# are expensive. The limits are numbers of them times clusters; the last bounds the starts as well
_N_QUICK_STARTS, _N_STARTS, _N_SHUFFLES = 12, 16, 30
_MAX_STARTED_CLUSTERS, _MAX_SHUFFLED_CLUSTERS = 240, 1000
# starts of a quick search for many clusters: they show whether starts agree
_N_DRAFTS = 2
# rounds in which groups of rows move, and the number of rows of which most groups are considered
_N_CYCLES, _MAX_GROUPED_ROWS = 2, 2**18
# fragments that a partition is improved over at most: each has a price for every cluster
_MAX_FRAGMENTS = 2**13
# below this fraction of the objective of random labels there is nothing left to gain
_NOTHING_LEFT = 1e-4
# agreement of starts from which no unequal clusters are looked for. What these must gain if they
# are searched with little balance; more, and with some, where one is below so many mean sizes
_UNDISPUTED, _GAIN, _GAIN_OF_SMALL, _SMALL, _SOME_BALANCE = 0.95, 0.03, 0.1, 0.6, 0.3
# at most what a random cluster costs, and not nothing, where nothing is cut
_BALANCE_PER_CUT, _MIN_BALANCE, _MAX_BALANCE = 10.0, 0.1, 1.0
# next to none, for clusters of any size that cut so many times less than equal ones, where these
# cut so much of what random ones do; and all that are tried, in their order
_LITTLE_BALANCE, _LESS_CUT, _LEAST_CUT = 0.01, 5.0, 0.05
_BALANCES = (_MAX_BALANCE, _MIN_BALANCE, _LITTLE_BALANCE)


class QuickPartition(NamedTuple):
    """The result of a quick search, the fragment of every row, and labels that were set aside.

    Of many clusters these are all drafts, which split no fragment.
    """

    partition: Partition
    fragments: np.ndarray
    others: tuple[np.ndarray, ...] = ()


def find_partition(
    graph: SimilarityGraph | CoarseGraph,
    n_clusters: int,
    *,
    balance_weight: float | None = None,
    n_init: int = 4,
    seed: int = 0,
    quick: QuickPartition | None = None,
    starts: Sequence[np.ndarray] = (),
    n_jobs: int = 1,
    log: StepLog | None = None,
    prices: Prices | None = None,
) -> Partition:
    """Search for the partition of the rows with the lowest objective.

    A quick search shows how much balance the graph needs. Each start splits the graph into
    fragments, finds the best clusters of whole fragments, and moves single rows. Rows that all
    starts keep together are fragments once more: the best clusters of these take from every start
    what it found best. Last, small groups of linked rows move, which single rows never would.

    Parameters
    ----------
    graph : SimilarityGraph or CoarseGraph
    n_clusters : int
    balance_weight : float, optional
        See :func:`prcut.numerics.objective.balance_factor`; by default :func:`choose_balance`.
    n_init : int
        Number of starts, fewer of more than 250 clusters; with 0 and without ``starts``, only the
        best that the quick search found is improved.
    seed : int
    quick : QuickPartition, optional
        Result of :func:`quick_partition` for the same graph, which is then not repeated.
    starts : sequence of int64 arrays, shape (n_samples,)
        Labels found elsewhere, which are refined and join the starts.
    n_jobs : int
        Threads that share the starts; the partition does not depend on it.
    log : StepLog, optional
        Told what was done, and the objective reached.
    prices : Prices, optional
        Of the rows: they join the objective, and fixed rows keep their clusters. Limits of size
        hold only where the starts keep them: see :func:`prcut.search.limits.limit_sizes`.

    Examples
    --------
    >>> graph = SimilarityGraph.from_neighbors([[1], [2], [1], [4], [5], [4]])  # two paths
    >>> find_partition(graph, 2).labels.tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    True
    """
    log = StepLog() if log is None else log
    coarse = as_coarse(graph)
    if n_clusters > MANY_CLUSTERS and prices is None:
        if quick is None:
            quick = quick_partition(coarse, n_clusters, balance_weight=balance_weight, seed=seed)
        how = n_init, seed, n_jobs
        partition = _find_many(coarse, n_clusters, balance_weight, quick, starts, how)
        log("combined starts", partition.objective)
        return partition
    n_init = min(n_init, max(1, _MAX_SHUFFLED_CLUSTERS // n_clusters))
    *rngs, rng = (np.random.default_rng([seed, 1, number]) for number in range(n_init + 1))
    # the quick search and the fragments of the starts at once, though one thread stops after the
    # first; a single start has fragments of its own, to find something else than the quick search
    own = rngs[1:] if n_init > 1 else rngs
    tasks: list[Callable[[], Any]] = [partial(_fragments, coarse, n_clusters, one) for one in own]
    if quick is None:
        search = partial(quick_partition, at_random=n_init > 0, seed=seed, prices=prices)
        tasks.insert(0, partial(search, coarse, n_clusters, balance_weight=balance_weight))
    with closing(map_threads(lambda task: task(), tasks, n_jobs)) as results:
        quick = next(results) if quick is None else quick
        if balance_weight is None:
            balance_weight = quick.partition.balance_weight
        problem = Problem.of(coarse, n_clusters, balance_weight, prices)
        partition = problem.refine(quick.partition.labels)
        log("quick search", partition.objective)
        partitions: list[Partition] = []
        if partition.objective > _NOTHING_LEFT * (n_clusters - 1):
            partitions = [partition, *map(problem.refine, quick.others)]
            n_given = len(partitions) + len(starts)
            for labels in starts:
                partitions.append(problem.refine(labels))
                log("given start", partitions[-1].objective)
            known = [quick.fragments] if n_init > 1 else []
            own_starts = zip([*known, *results], rngs, strict=True)
            for start in map_threads(partial(_start, problem), own_starts, n_jobs):
                partitions.append(start)
                log(f"start {len(partitions) - n_given}/{n_init}", start.objective)
            partition = min(partitions, key=_objective)
            if n_init or starts:
                partition = _combined(problem, partitions, rng, n_jobs)
                log("combined starts", partition.objective)
            n_cycles = 0 if len(coarse.sizes) > _MAX_GROUPED_ROWS else _N_CYCLES if n_init else 1
            find = partial(find_groups, coarse.links, GROUP_SIZE)
            for groups in map_threads(find, rng.spawn(n_cycles), n_jobs):
                other = _improved(problem, groups, partition)
                partition = min(partition, other, key=_objective)
            log("moved groups", partition.objective)
    return partition._replace(
        agreement=quick.partition.agreement,
        balance_weight=float(balance_weight),
        starts=tuple(one.labels for one in partitions),
    )


def quick_partition(
    graph: SimilarityGraph | CoarseGraph,
    n_clusters: int,
    *,
    balance_weight: float | None = None,
    at_random: bool = True,
    seed: int = 0,
    n_jobs: int = 1,
    prices: Prices | None = None,
) -> QuickPartition:
    """Search quickly, and measure whether the graph, not the start, determines the clusters.

    Without a weight, clusters of equal sizes are looked for first and, where starts disagree on
    them, clusters of any size; those that starts agree on more are kept. If these are unequal and
    starts agree on them clearly more, balance stays little; else :func:`choose_balance` chooses it.
    Where they dispute both, and nearly without balance a fraction is cut, that is kept. Starts come
    from merging and, unless they are not to be, ``at_random``.
    """
    coarse, rng = as_coarse(graph), np.random.default_rng(seed)
    is_many = n_clusters > MANY_CLUSTERS and prices is None
    fragments = (group_many if is_many else _fragments)(coarse, n_clusters, rng)
    n_starts = min(_N_QUICK_STARTS, _MAX_STARTED_CLUSTERS // n_clusters) if at_random else 0
    found: list[Partition] = []
    started: list[np.ndarray] = []
    for weight in _BALANCES if balance_weight is None else (balance_weight,):
        problem = Problem.of(coarse, n_clusters, weight, prices)
        if is_many:
            start = partial(start_many, problem.between(fragments))
            tried = sorted(map_threads(start, rng.spawn(_N_DRAFTS), n_jobs), key=_objective)
            drafts = [one.labels[fragments] for one in tried]
        else:
            pieces = problem.separate_fixed(fragments)
            drafts = problem.find_optima(pieces, rng, n_starts, n_jobs)
        started += drafts
        agreement = float(np.mean([adjusted_rand(drafts[0], one) for one in drafts[1:]] or [1.0]))
        partition = problem.refine(drafts[0])
        found.append(partition._replace(agreement=agreement, balance_weight=weight))
        if agreement >= _UNDISPUTED:
            break
    best = _settle(coarse, found, n_clusters) if balance_weight is None else found[0]
    others = started if is_many else [one.labels for one in found if one.labels is not best.labels]
    return QuickPartition(best, fragments, tuple(others))


def _find_many(
    coarse: CoarseGraph,
    n_clusters: int,
    balance_weight: float | None,
    quick: QuickPartition,
    starts: Sequence[np.ndarray],
    how: tuple[int, int, int],
) -> Partition:
    """Combine the drafts with more starts, all on groups of rows, then move single rows."""
    draft, (n_init, seed, n_jobs) = quick.partition, how
    weight = draft.balance_weight if balance_weight is None else balance_weight
    problem, groups = Problem.of(coarse, n_clusters, weight), quick.fragments
    between, first = problem.between(groups), np.unique(groups, return_index=True)[1]
    found = [between.refine(labels[first]) for labels in quick.others]
    n_more = max(0, n_init - len(found))
    *rngs, rng = (np.random.default_rng([seed, 1, number]) for number in range(n_more + 1))
    found += map_threads(partial(start_many, between), rngs, n_jobs)
    partition = combine_many(between, found, n_jobs)
    partition = move_groups(problem, problem.refine(partition.labels[groups]).labels, rng)
    if starts:
        partition = combine_many(problem, [partition, *map(problem.refine, starts)], n_jobs)
    return partition._replace(
        agreement=draft.agreement,
        balance_weight=float(weight),
        starts=tuple(one.labels[groups] for one in found),
    )


def _settle(coarse: CoarseGraph, found: list[Partition], n_clusters: int) -> Partition:
    """Return the draft that starts agree on most, with the balance that it needs."""
    if len(found) == len(_BALANCES):
        equal, *_, little = found
        score = Problem.of(coarse, n_clusters, 0.0).score
        cut, least = score(equal.labels).objective, _LEAST_CUT * (n_clusters - 1)
        if cut >= max(least, _LESS_CUT * score(little.labels).objective):
            # whatever starts say: nearly all of them split a large cluster
            return little._replace(agreement=1.0)
        found = found[:-1]
    draft, *rest = sorted(found, key=attrgetter("agreement"), reverse=True)
    gain = draft.agreement - rest[0].agreement if rest else 0.0
    return draft._replace(balance_weight=_settle_balance(coarse, draft, gain, n_clusters))


def _settle_balance(coarse: CoarseGraph, draft: Partition, gain: float, n_clusters: int) -> float:
    """Keep to little balance where starts agree on unequal clusters more, by so much."""
    if draft.balance_weight == _MIN_BALANCE:
        sizes = np.bincount(draft.labels, coarse.sizes, n_clusters)
        if gain >= _GAIN and sizes.min() >= _SMALL * sizes.mean():
            return _MIN_BALANCE
        if gain >= _GAIN_OF_SMALL:
            # never more than the cut calls for: where it is nothing, large clusters would be split
            return min(_SOME_BALANCE, choose_balance(coarse, draft.labels, n_clusters))
    return choose_balance(coarse, draft.labels, n_clusters)


def choose_balance(
    graph: SimilarityGraph | CoarseGraph, labels: np.ndarray, n_clusters: int
) -> float:
    """Choose the balance weight for a graph from what its clusters add to the cut.

    Where clusters are hardly connected, as the digits of MNIST, a small weight keeps them all, and
    a larger one would move rows for the sake of equal sizes. Where they blur, as in Fashion-MNIST,
    the cut alone would empty some. So an empty cluster costs ten times what a cluster of the given
    partition does, at least .1 and at most 1.
    """
    if n_clusters == 1:
        return 0.0
    coarse = as_coarse(graph)
    return weigh_balance(coarse, labels, cluster_cost(coarse, n_clusters, 0.0))


def weigh_balance(graph: CoarseGraph, labels: np.ndarray, cut: ClusterCost) -> float:
    """Return the balance weight that clusters need, by a cost without balance."""
    wanted = _BALANCE_PER_CUT * Problem(graph, cut).score(labels).objective / (cut.n_clusters - 1)
    return min(_MAX_BALANCE, max(_MIN_BALANCE, wanted))


def refine_labels(
    graph: SimilarityGraph | CoarseGraph,
    labels: np.ndarray,
    n_clusters: int,
    *,
    balance_weight: float = 1.0,
    prices: Prices | None = None,
) -> np.ndarray:
    """Move single rows of any labelling as long as its objective, with the prices, falls.

    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [4], [5], [4]])
    >>> refine_labels(path, np.array([0, 1, 0, 1, 1, 1]), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    >>> prices = Prices(np.array([-1, 1, -1, -1, -1, -1]), np.full(6, np.inf))  # the second is 1
    >>> refine_labels(path, np.array([0, 1, 0, 1, 1, 1]), 2, prices=prices).tolist()
    [0, 1, 1, 1, 1, 1]
    """
    return Problem.of(as_coarse(graph), n_clusters, balance_weight, prices).refine(labels).labels


def merge_clusters(
    graph: SimilarityGraph, labels: np.ndarray, *, balance_weight: float = 1.0
) -> MergeTree:
    """Merge the clusters, none of which may be empty, down to one, by what the cut falls most."""
    problem = Problem.of(as_coarse(graph), int(labels.max()) + 1, balance_weight)
    return merge_further(problem.contract(labels), problem.cost)


def _fragments(graph: CoarseGraph, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    n_samples = len(graph.sizes)
    fragments = find_fragments(graph.links, choose_n_fragments(n_samples, n_clusters), rng)
    n_splits = 1
    while fragments.max() + 1 < n_clusters:  # smoothed noise does not distinguish enough rows
        n_splits *= 2
        fragments = overlay(fragments, np.arange(n_samples) % n_splits)
    return fragments


def _start(problem: Problem, start: tuple[np.ndarray, np.random.Generator]) -> Partition:
    fragments, rng = start
    return problem.search(problem.separate_fixed(fragments), rng)


def _combined(
    problem: Problem, partitions: list[Partition], rng: np.random.Generator, n_jobs: int
) -> Partition:
    """Search over the rows that all partitions keep together, then that the best and each keep.

    What comes of the best and each is combined once more.
    """
    first, last, *each = rng.spawn(len(partitions) + 2)
    best = min(partitions, key=_objective)
    best = _combined_once(problem, best, partitions, first, n_jobs)
    if len(partitions) <= 2:
        return best

    def with_best(one: tuple[Partition, np.random.Generator]) -> Partition:
        return _combined_once(problem, best, one[:1], one[1])

    found = [*map_threads(with_best, zip(partitions, each, strict=True), n_jobs)]
    best = min(found, key=_objective)
    return _combined_once(problem, best, found, last, n_jobs)


def _combined_once(
    problem: Problem,
    best: Partition,
    partitions: Sequence[Partition],
    rng: np.random.Generator,
    n_jobs: int = 1,
) -> Partition:
    """Search over the rows that the best and all other partitions keep together."""
    n_clusters = problem.cost.n_clusters
    fragments = overlay(best.labels, *(other.labels for other in partitions))
    if fragments.max() < n_clusters:
        return best
    # where partitions agree in nothing, what they keep together is next to nothing
    n_fragments = choose_n_fragments(len(fragments), n_clusters)
    fragments = _keep_largest(fragments, best.labels, n_fragments)
    n_starts = min(_N_STARTS, _MAX_STARTED_CLUSTERS // n_clusters)
    n_shuffles = min(_N_SHUFFLES, _MAX_SHUFFLED_CLUSTERS // n_clusters)
    pieces = problem.separate_fixed(fragments)
    other = problem.search(pieces, rng, n_starts, n_shuffles, n_jobs)
    return min(best, other, key=_objective)


def _improved(problem: Problem, fragments: np.ndarray, partition: Partition) -> Partition:
    """Move intersections of fragments and clusters, then single rows."""
    fragments = _keep_largest(overlay(fragments, partition.labels), partition.labels)
    return problem.improve(problem.separate_fixed(fragments), partition.labels)


def _keep_largest(
    fragments: np.ndarray, labels: np.ndarray, most: int = _MAX_FRAGMENTS
) -> np.ndarray:
    """Keep the largest fragments, ``most`` of them, and join the rest of every cluster."""
    sizes = np.bincount(fragments)
    if len(sizes) <= most:
        return fragments
    is_large = np.zeros(len(sizes), dtype=bool)
    is_large[np.argsort(-sizes, kind="stable")[:most]] = True
    joined = np.where(is_large[fragments], fragments, len(sizes) + labels)
    return np.unique(joined, return_inverse=True)[1].reshape(-1)


def as_coarse(graph: SimilarityGraph | CoarseGraph) -> CoarseGraph:
    """Return the weights in units of the largest, in float64; rows have size 1."""
    if isinstance(graph, CoarseGraph):
        return graph
    weight = graph.to_scipy()
    dtype = np.int32 if weight.nnz <= np.iinfo(np.int32).max else np.int64
    data = weight.data.astype(np.float64) / (weight.data.max(initial=0) or 1)
    arrays = data, weight.indices.astype(dtype), weight.indptr.astype(dtype)
    links = csr_array(arrays, shape=weight.shape, dtype=np.float64)
    return CoarseGraph(links, np.ones(weight.shape[0]))
