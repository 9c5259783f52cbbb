"""A partition of a graph in a straight line: draft → fragments → merge, move → refine → once more.

No label takes part: of all that is found, what has the lowest objective is kept.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.cluster_cost import ClusterCost
from prcut.coarse_graph import contract, overlay
from prcut.fragments import choose_n_fragments, find_fragments
from prcut.graph import SimilarityGraph
from prcut.merging import MergeTree, merge
from prcut.moves import find_optima, improve, search
from prcut.refinement import partition_cuts, refine

__all__ = [
    "Draft",
    "Partition",
    "choose_balance",
    "draft_partition",
    "find_partition",
    "refine_labels",
    "tree_of_clusters",
]

_LOG = logging.getLogger(__name__)

# random starts on the fragments of a draft, and of a search; shakes of the best. With many clusters
# they are fewer: starts because none by chance comes near what merging gives, shakes because they
# are dear; these are the numbers of clusters that they share
_N_LOOKS, _N_STARTS, _N_SHAKES = 12, 16, 30
_STARTED, _SHAKEN = 240, 3000
# pieces that a partition is improved over at most
_MOST_PIECES = 2**13
# nothing is left to gain below this part of what knowing nothing costs
_NOTHING_LEFT = 1e-4
# an empty cluster costs so many times what a cluster of the graph at hand does, but not more than
# one that ignores the graph; nor nothing, where nothing is cut
_DEARER_THAN_CUT, _LEAST_BALANCE, _MOST_BALANCE = 10.0, 0.1, 1.0


class Partition(NamedTuple):
    """Clusters that were found.

    Attributes
    ----------
    labels : int64 array, shape (n_samples,)
    objective : float
        :func:`prcut.objective.hard_objective` of them.
    agreement : float
        Mean adjusted Rand index between the best and other starts of a draft: near 1 where the
        graph decides what is found, and not the start.
    balance_weight : float
        That it was sought with.
    """

    labels: np.ndarray
    objective: float
    agreement: float = 1.0
    balance_weight: float = 0.0


class Draft(NamedTuple):
    """A quick look at a graph.

    Attributes
    ----------
    partition : Partition
        The best that was found.
    fragments : int64 array, shape (n_samples,)
        That it was found on.
    """

    partition: Partition
    fragments: np.ndarray


def find_partition(
    graph: SimilarityGraph,
    n_clusters: int,
    *,
    balance_weight: float | None = None,
    n_init: int = 2,
    seed: int = 0,
    draft: Draft | None = None,
) -> Partition:
    """The partition of the rows with the lowest objective that was found.

    A draft tells how much balance the graph needs. Each start cuts the graph into fragments, finds
    the best clusters of whole fragments, and moves single rows. Then the best partition is improved
    over the fragments of every start: pieces that both agree on move as one, which single rows
    never would.

    Parameters
    ----------
    graph : SimilarityGraph
    n_clusters : int
    balance_weight : float, optional
        See :func:`prcut.objective.balance_factor`; by default :func:`choose_balance`.
    n_init : int
        Starts.
    seed : int
    draft : Draft, optional
        What :func:`draft_partition` found before.

    Examples
    --------
    >>> graph = SimilarityGraph.from_neighbors([[1], [2], [1], [4], [5], [4]])  # two paths
    >>> find_partition(graph, 2).labels.tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    True
    """
    weight = _as_scipy(graph)
    if draft is None:
        draft = draft_partition(graph, n_clusters, balance_weight=balance_weight, seed=seed)
    if balance_weight is None:
        balance_weight = choose_balance(weight, draft.partition.labels, n_clusters)
    cost = _cost(weight, n_clusters, balance_weight)
    n_starts = min(_N_STARTS, _STARTED // n_clusters)
    n_shakes = min(_N_SHAKES, _SHAKEN // n_clusters)
    best = _refined(weight, draft.partition.labels, cost)
    rng = np.random.default_rng([seed, 1])
    all_fragments: list[np.ndarray] = []
    for start in range(n_init):
        if best.objective <= _NOTHING_LEFT * (n_clusters - 1):
            break
        fragments = _fragments(graph, n_clusters, rng) if start else draft.fragments
        coarse = contract(weight, fragments)
        labels, _ = search(coarse, cost, rng, n_starts, n_shakes)
        found = _refined(weight, labels[fragments], cost)
        _LOG.info("start %d/%d: objective %.4f", start + 1, n_init, found.objective)
        best = min(best, found, key=_objective)
        all_fragments.append(fragments)
    for fragments in all_fragments:
        best = min(best, _improved(weight, fragments, best, cost), key=_objective)
    _LOG.info("improved over all fragments: objective %.4f", best.objective)
    agreement = draft.partition.agreement
    return best._replace(agreement=agreement, balance_weight=float(balance_weight))


def draft_partition(
    graph: SimilarityGraph,
    n_clusters: int,
    *,
    balance_weight: float | None = None,
    seed: int = 0,
) -> Draft:
    """A quick look, which tells whether the graph decides what is found.

    Parameters are those of :func:`find_partition`.
    """
    from sklearn.metrics import adjusted_rand_score

    weight = _as_scipy(graph)
    if balance_weight is None:
        balance_weight = _MOST_BALANCE
    cost = _cost(weight, n_clusters, balance_weight)
    rng = np.random.default_rng(seed)
    fragments = _fragments(graph, n_clusters, rng)
    coarse = contract(weight, fragments)
    optima = find_optima(coarse, cost, rng, min(_N_LOOKS, _STARTED // n_clusters))
    best, *others = (labels[fragments] for labels, _ in optima)
    agreement = float(np.mean([adjusted_rand_score(best, other) for other in others] or [1.0]))
    found = _refined(weight, best, cost)
    return Draft(found._replace(agreement=agreement, balance_weight=balance_weight), fragments)


def choose_balance(weight: csr_array, labels: np.ndarray, n_clusters: int) -> float:
    """Balance weight for a graph, from what its clusters add to the cut.

    Where they are hardly connected, as the digits of MNIST, a small weight keeps them all, and more
    would move rows for the sake of equal sizes; where they blur, as in Fashion-MNIST, the cut alone
    would let some go. So an empty cluster costs ten times what those of a draft do, at least .1 and
    at most 1.

    Parameters
    ----------
    weight : SciPy CSR array, shape (n_samples, n_samples)
    labels : int64 array, shape (n_samples,)
        Of the draft.
    n_clusters : int
    """
    if n_clusters == 1:
        return 0.0
    sizes = np.bincount(labels, minlength=n_clusters).astype(np.float64)
    cost = _cost(weight, n_clusters, 0.0)
    cut = cost.objective(partition_cuts(weight, labels, n_clusters), sizes)
    wanted = _DEARER_THAN_CUT * cut / (n_clusters - 1)
    return min(_MOST_BALANCE, max(_LEAST_BALANCE, wanted))


def refine_labels(
    graph: SimilarityGraph, labels: np.ndarray, n_clusters: int, *, balance_weight: float = 1.0
) -> np.ndarray:
    """Any labelling, moved row by row as long as its objective falls.

    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [4], [5], [4]])
    >>> refine_labels(path, np.array([0, 1, 0, 1, 1, 1]), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    weight = _as_scipy(graph)
    return refine(weight, labels, _cost(weight, n_clusters, balance_weight))


def tree_of_clusters(
    graph: SimilarityGraph, labels: np.ndarray, *, balance_weight: float = 1.0
) -> MergeTree:
    """How the clusters, none of them empty, merge further, the cheapest pair first."""
    weight = _as_scipy(graph)
    return merge(contract(weight, labels), _cost(weight, int(labels.max()) + 1, balance_weight))


def _cost(weight: csr_array, n_clusters: int, balance_weight: float) -> ClusterCost:
    total = float(weight.data.sum(dtype=np.float64))
    return ClusterCost.of(weight.shape[0], total, n_clusters, balance_weight=balance_weight)


def _fragments(graph: SimilarityGraph, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    n_fragments = choose_n_fragments(graph.n_samples, n_clusters)
    fragments = find_fragments(graph, n_fragments, seed=int(rng.integers(2**31)))
    n_parts = 1
    while fragments.max() + 1 < n_clusters:  # rows that noise does not tell apart
        n_parts *= 2
        fragments = overlay(fragments, np.arange(graph.n_samples) % n_parts)
    return fragments


def _objective(partition: Partition) -> float:
    return partition.objective


def _improved(
    weight: csr_array, fragments: np.ndarray, best: Partition, cost: ClusterCost
) -> Partition:
    pieces = _largest(overlay(fragments, best.labels), best.labels)
    labels = np.zeros(int(pieces.max()) + 1, dtype=np.int64)
    labels[pieces] = best.labels
    labels, _ = improve(contract(weight, pieces), labels, cost)
    return _refined(weight, labels[pieces], cost)


def _largest(pieces: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The largest pieces; what is left of every cluster is one more.

    Single rows and small groups are moved by refining, and a dense matrix of all pieces of a
    thousand clusters would not fit in memory.
    """
    sizes = np.bincount(pieces)
    if len(sizes) <= _MOST_PIECES:
        return pieces
    is_large = np.zeros(len(sizes), dtype=bool)
    is_large[np.argsort(-sizes, kind="stable")[:_MOST_PIECES]] = True
    joined = np.where(is_large[pieces], pieces, len(sizes) + labels)
    return np.unique(joined, return_inverse=True)[1].reshape(-1)


def _refined(weight: csr_array, labels: np.ndarray, cost: ClusterCost) -> Partition:
    labels = refine(weight, labels, cost)
    sizes = np.bincount(labels, minlength=cost.n_clusters).astype(np.float64)
    objective = cost.objective(partition_cuts(weight, labels, cost.n_clusters), sizes)
    return Partition(labels, objective)


def _as_scipy(graph: SimilarityGraph) -> csr_array:
    """With 32-bit indices where they suffice: SciPy's products are quicker with them."""
    weight = graph.to_scipy()
    if len(weight.data) > np.iinfo(np.int32).max:
        return weight
    parts = weight.data, weight.indices.astype(np.int32), weight.indptr.astype(np.int32)
    return csr_array(parts, shape=weight.shape)
