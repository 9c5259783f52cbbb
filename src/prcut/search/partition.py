"""A partition of a graph: resample → search every resample → combine → move groups of rows.

No labels are used: of all partitions that are found, the one with the lowest objective is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

import numpy as np

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runtime.engine import map_threads
from prcut.runtime.progress import StepLog
from prcut.search.balance import (
    N_RESAMPLES,
    Resampled,
    choose_balance,
    search_resampled,
)
from prcut.search.fragments import (
    GROUP_SIZE,
    CoarseGraph,
    as_coarse,
    choose_n_fragments,
    find_groups,
    overlay,
)
from prcut.search.hierarchy import merge_further
from prcut.search.levels import Levels, contract_levels
from prcut.search.merge import MergeTree
from prcut.search.prices import Prices
from prcut.search.problem import Partition, Problem

_objective = attrgetter("objective")

# fewest resamples: the agreement of a single partition says nothing
_MIN_RESAMPLES = 2
# rounds in which groups of rows move, and the number of rows of which most groups are considered
_N_CYCLES = 2
_MAX_GROUPED_ROWS = 2**18
# fragments that a partition is improved over, at most: a pass of moves looks at all of them
_MAX_FRAGMENTS = 2**13
# below this fraction of the objective of random labels there is nothing left to gain
_NOTHING_LEFT = 1e-4


def find_partition(
    graph: SimilarityGraph | CoarseGraph,
    n_clusters: int,
    *,
    balance_weight: float | None = None,
    n_init: int = N_RESAMPLES,
    seed: int = 0,
    resampled: Resampled | None = None,
    starts: Sequence[np.ndarray] = (),
    n_jobs: int = 1,
    log: StepLog | None = None,
    prices: Prices | None = None,
    levels: Levels | None = None,
    keep_starts: bool = True,
) -> Partition:
    """Search for the partition of the rows with the lowest objective.

    A graph of more than 262,144 rows is contracted first, and groups of rows are searched. The
    edges are resampled four times. Searches of every resample with strong and with weak balance
    show which of them the graph supports: see :func:`prcut.search.balance.choose_balance`. The
    partitions found with it are refined on the graph itself. Rows that all of them keep together
    are fragments: the best clusters of these take from every start what it found best. Last, small
    groups of linked rows move, which single rows never would.

    Parameters
    ----------
    graph : SimilarityGraph or CoarseGraph
    n_clusters : int
    balance_weight : float, optional
        See :func:`prcut.numerics.objective.balance_factor`; by default the one that the graph
        supports.
    n_init : int
        Number of starts, at least two; beyond four, more resamples are searched with the weight
        that was chosen.
    seed : int
    resampled : Resampled, optional
        Result of :func:`choose_balance` for the coarsest of the levels, which is then not repeated.
    starts : sequence of int64 arrays, shape (n_samples,)
        Labels found elsewhere, which are refined and join the starts.
    n_jobs : int
        Threads that share the starts; the partition does not depend on it.
    log : StepLog, optional
        Told what was done, and the objective reached.
    prices : Prices, optional
        Of the rows: they join the objective, and fixed rows keep their clusters. Limits of size
        hold only where the starts keep them: see :func:`prcut.search.limits.limit_sizes`.
    levels : Levels, optional
        Result of :func:`contract_levels`, which is then not repeated.
    keep_starts : bool
        Whether the result has the starts: for 100 million rows they take three gigabytes.

    Examples
    --------
    >>> graph = SimilarityGraph.from_neighbors([[1], [2], [1], [4], [5], [4]])  # two paths
    >>> find_partition(graph, 2).labels.tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    True
    """
    log = StepLog() if log is None else log
    if levels is None:
        levels = contract_levels(as_coarse(graph), n_clusters, seed=seed, prices=prices)
    if levels.groups:
        log(f"contracted to {len(levels.graphs[-1].sizes):,} groups")
    coarse, prices = levels.graphs[-1], levels.prices[-1]
    coarse = coarse._replace(links=coarse.links.astype(np.float64, copy=False))
    if resampled is None:
        resampled = choose_balance(
            coarse,
            n_clusters,
            balance_weight=balance_weight,
            prices=prices,
            n_resamples=max(_MIN_RESAMPLES, min(n_init, N_RESAMPLES)),
            seed=seed,
            n_jobs=n_jobs,
        )
    weight = resampled.balance_weight if balance_weight is None else balance_weight
    problem = Problem.of(coarse, n_clusters, weight, prices)
    partitions = [*map_threads(problem.refine, resampled.partitions, n_jobs)]
    for number, one in enumerate(partitions, 1):
        log(f"start {number}/{max(n_init, len(partitions))}", one.objective)
    partition = min(partitions, key=_objective)
    if partition.objective > _NOTHING_LEFT * (n_clusters - 1):
        for labels in starts:
            partitions.append(problem.refine(levels.of_groups(labels, n_clusters)))
            log("given start", partitions[-1].objective)
        *more, rng = np.random.default_rng([seed, 1]).spawn(max(0, n_init - N_RESAMPLES) + 1)
        search = partial(search_resampled, coarse, n_clusters, (weight,), prices)
        for number, (labels,) in enumerate(map_threads(search, more, n_jobs), N_RESAMPLES + 1):
            partitions.append(problem.refine(labels))
            log(f"start {number}/{n_init}", partitions[-1].objective)
        partition = min(partitions, key=_objective)
        partition = _combined(problem, partitions, rng, n_jobs)
        log("combined starts", partition.objective)
        n_cycles = 0 if len(coarse.sizes) > _MAX_GROUPED_ROWS else _N_CYCLES if n_init else 1
        find = partial(find_groups, coarse.links, GROUP_SIZE)
        for groups in map_threads(find, rng.spawn(n_cycles), n_jobs):
            partition = min(partition, _improved(problem, groups, partition), key=_objective)
        log("moved groups", partition.objective)
    if levels.groups:
        partition = levels.refine(partition.labels, n_clusters, weight)
        log("moved rows", partition.objective)
    return partition._replace(
        agreement=resampled.agreement,
        balance_weight=float(weight),
        starts=tuple(levels.of_nodes(one.labels) for one in partitions if keep_starts),
    )


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
    n_rows = len(best.labels)
    n_fragments = choose_n_fragments(n_rows, n_clusters)
    if n_rows <= n_fragments:
        fragments = np.arange(n_rows)
    else:
        fragments = overlay(best.labels, *(other.labels for other in partitions))
        # where partitions agree in nothing, what they keep together is next to nothing
        fragments = _keep_largest(fragments, best.labels, n_fragments)
    pieces = overlay(problem.separate_fixed(fragments), best.labels)
    if pieces.max() < n_clusters:
        return best
    other = problem.search(pieces, rng, best.labels, n_jobs)
    return min(best, other, key=_objective)


def _improved(problem: Problem, fragments: np.ndarray, partition: Partition) -> Partition:
    """Move intersections of fragments and clusters, then single rows."""
    fragments = _keep_largest(overlay(fragments, partition.labels), partition.labels)
    return problem.improve_groups(problem.separate_fixed(fragments), partition.labels)


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
