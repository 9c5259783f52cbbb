"""A partition of a graph in a straight line: fragments → merge and move → refine → once more.

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
from prcut.moves import improve, search
from prcut.refinement import partition_cuts, refine

__all__ = ["Partition", "find_partition", "tree_of_clusters"]

_LOG = logging.getLogger(__name__)

# random starts on the fragments, and shakes of the best: fewer where many clusters make them dear
_N_STARTS, _N_SHAKES, _CHEAP = 8, 10, 1000
# nothing is left to gain below this part of what knowing nothing costs
_NOTHING_LEFT = 1e-4


class Partition(NamedTuple):
    """Clusters that were found.

    Attributes
    ----------
    labels : int64 array, shape (n_samples,)
    objective : float
        :func:`prcut.objective.hard_objective` of them.
    agreement : float
        Least adjusted Rand index between the best start and another: near 1 where the graph
        decides what is found, and not the start.
    """

    labels: np.ndarray
    objective: float
    agreement: float = 1.0


def find_partition(
    graph: SimilarityGraph,
    n_clusters: int,
    *,
    balance_weight: float = 1.0,
    n_init: int = 2,
    seed: int = 0,
) -> Partition:
    """The partition of the rows with the lowest objective that was found.

    Each start cuts the graph into fragments, finds the best clusters of whole fragments, and moves
    single rows. Then the best partition is improved over the fragments of every start: pieces that
    both agree on move as one, which single rows never would.

    Parameters
    ----------
    graph : SimilarityGraph
    n_clusters : int
    balance_weight : float
        See :func:`prcut.objective.balance_factor`.
    n_init : int
        Starts.
    seed : int

    Examples
    --------
    >>> graph = SimilarityGraph.from_neighbors([[1], [2], [1], [4], [5], [4]])  # two paths
    >>> find_partition(graph, 2).labels.tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    True
    """
    from sklearn.metrics import adjusted_rand_score

    weight = _as_scipy(graph)
    cost = _cost(weight, n_clusters, balance_weight)
    rng = np.random.default_rng(seed)
    n_fragments = choose_n_fragments(graph.n_samples, n_clusters)
    n_starts, n_shakes = (min(n, max(1, _CHEAP // n_clusters)) for n in (_N_STARTS, _N_SHAKES))
    all_fragments, found = [], []
    for start in range(n_init):
        fragments = find_fragments(graph, n_fragments, seed=int(rng.integers(2**31)))
        n_parts = 1
        while fragments.max() + 1 < n_clusters:  # rows that noise does not tell apart
            n_parts *= 2
            fragments = overlay(fragments, np.arange(graph.n_samples) % n_parts)
        coarse = contract(weight, fragments)
        labels, _ = search(coarse, cost, rng, n_starts, n_shakes)
        found.append(_refined(weight, labels[fragments], cost))
        all_fragments.append(fragments)
        _LOG.info("start %d/%d: objective %.4f", start + 1, n_init, found[-1].objective)
        if found[-1].objective <= _NOTHING_LEFT * (n_clusters - 1):
            break
    best = min(found, key=lambda partition: partition.objective)
    agreement = min(adjusted_rand_score(best.labels, other.labels) for other in found)
    for fragments in all_fragments:
        best = min(best, _improved(weight, fragments, best, cost), key=lambda one: one.objective)
    _LOG.info("improved over all fragments: objective %.4f", best.objective)
    return best._replace(agreement=float(agreement))


def tree_of_clusters(
    graph: SimilarityGraph, labels: np.ndarray, *, balance_weight: float = 1.0
) -> MergeTree:
    """How the clusters, none of them empty, merge further, the cheapest pair first."""
    weight = _as_scipy(graph)
    return merge(contract(weight, labels), _cost(weight, int(labels.max()) + 1, balance_weight))


def _cost(weight: csr_array, n_clusters: int, balance_weight: float) -> ClusterCost:
    total = float(weight.data.sum(dtype=np.float64))
    return ClusterCost.of(weight.shape[0], total, n_clusters, balance_weight=balance_weight)


def _improved(
    weight: csr_array, fragments: np.ndarray, best: Partition, cost: ClusterCost
) -> Partition:
    pieces = overlay(fragments, best.labels)
    labels = np.zeros(int(pieces.max()) + 1, dtype=np.int64)
    labels[pieces] = best.labels
    labels, _ = improve(contract(weight, pieces), labels, cost)
    return _refined(weight, labels[pieces], cost)


def _refined(weight: csr_array, labels: np.ndarray, cost: ClusterCost) -> Partition:
    labels = refine(weight, labels, cost)
    sizes = np.bincount(labels, minlength=cost.n_clusters).astype(np.float64)
    return Partition(labels, cost.objective(partition_cuts(weight, labels, cost.n_clusters), sizes))


def _as_scipy(graph: SimilarityGraph) -> csr_array:
    """With 32-bit indices where they suffice: SciPy's products are quicker with them."""
    weight = graph.to_scipy()
    if len(weight.data) > np.iinfo(np.int32).max:
        return weight
    parts = weight.data, weight.indices.astype(np.int32), weight.indptr.astype(np.int32)
    return csr_array(parts, shape=weight.shape)
