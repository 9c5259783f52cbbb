"""Why a row is in its cluster: its neighbours, and what its next best cluster would cost."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.errors import InvalidInputError
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.objective import ClusterCost
from prcut.search.fragments import CoarseGraph, as_coarse, take_rows
from prcut.search.problem import cluster_cost
from prcut.search.sweep import cluster_sums


class Reasons(NamedTuple):
    """Why rows are in their clusters; every array has shape (n_rows,).

    Attributes
    ----------
    cluster : int64 array
    runner_up : int64 array
        Of the clusters of a row's neighbours the one, besides its own, to which moving would cost
        least; −1 where there is no other.
    n_neighbors, n_inside, n_in_runner_up : int64 arrays
        How many neighbours a row has, in all, in its own cluster and in the runner-up.
    change : float64 array
        What would be added to the objective J if the row alone moved there; NaN without runner-up.
    """

    cluster: np.ndarray
    runner_up: np.ndarray
    n_neighbors: np.ndarray
    n_inside: np.ndarray
    n_in_runner_up: np.ndarray
    change: np.ndarray

    def take(self, rows: Any) -> Reasons:
        """Return those of some rows."""
        return Reasons(*(values[rows] for values in self))

    def named(self, ids: np.ndarray) -> Reasons:
        """Return the same with the ids of the clusters in place of their numbers."""
        runner_up = np.where(self.runner_up >= 0, ids[self.runner_up], -1)
        return self._replace(cluster=ids[self.cluster], runner_up=runner_up)

    def explain(self) -> list[str]:
        """Return a sentence for every row."""
        return [_say(*values) for values in zip(*(one.tolist() for one in self), strict=True)]


def check_rows(rows: Any, n_samples: int) -> np.ndarray:
    """Return numbers of rows as a vector, checked to be among those of the fit."""
    rows = np.array(rows, ndmin=1)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or (rows.size and rows.min() < 0):
        raise InvalidInputError("rows must be numbers of rows, counted from 0.")
    if rows.size and rows.max() >= n_samples:
        raise InvalidInputError(f"rows has {rows.max()}, the fit had {n_samples=} rows.")
    return np.asarray(rows)


def find_reasons(
    graph: SimilarityGraph | CoarseGraph,
    labels: np.ndarray,
    n_clusters: int,
    balance_weight: float,
    rows: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> Reasons:
    r"""Find why the rows of a graph, or some of them, are in their clusters.

    ``weights`` of all rows are what clusters' sizes add up, 1 by default.

    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [4], [5], [4]])
    >>> found = find_reasons(path, np.array([0, 0, 0, 1, 1, 1]), 2, 0.0, np.array([0, 2]))
    >>> print("\n".join(found.explain()))
    all 1 neighbours are in cluster 0, and none in another
    1 of 2 neighbours are in cluster 0; the runner-up is 1 with 1; moving would raise J by 0.05
    """
    coarse = as_coarse(graph)
    if weights is not None:
        coarse = coarse._replace(sizes=weights)
    cost = cluster_cost(coarse, n_clusters, balance_weight)
    cuts, sizes = cluster_sums(coarse, labels, n_clusters)
    links = coarse.links if rows is None else take_rows(coarse.links, np.asarray(rows))
    own = labels if rows is None else labels[rows]
    weight = coarse.sizes if rows is None else coarse.sizes[rows]
    return compare_clusters(links, own, labels, cost, cuts, sizes, weight)


def compare_clusters(
    links: csr_array,
    own: np.ndarray,
    labels: np.ndarray,
    cost: ClusterCost,
    cuts: np.ndarray,
    sizes: np.ndarray,
    weight: np.ndarray | float = 1.0,
) -> Reasons:
    r"""Compare the clusters of some rows with those of their neighbours.

    A row of weight a (1) and degree d, with links w to its own cluster A and v to another B,
    changes J by

    .. math:: f(cut_A − d + 2w, |A| − a) − f(cut_A, |A|)
              + f(cut_B + d − 2v, |B| + a) − f(cut_B, |B|)

    where f is :class:`prcut.numerics.objective.ClusterCost`.

    Parameters
    ----------
    links : CSR array, shape (n_rows, n_nodes)
        Weights between the rows and all nodes of the graph.
    own, labels : int64 arrays, shape (n_rows,) and (n_nodes,)
        Clusters of the rows, and of the nodes.
    cost : ClusterCost
    cuts, sizes : float64 arrays, shape (n_clusters,)
    weight : float64 array, shape (n_rows,), or float
    """
    n_rows, n_clusters = len(own), len(sizes)
    entries = np.ones(len(labels)), labels, np.arange(len(labels) + 1)
    member = csr_array(entries, shape=(len(labels), n_clusters))
    near = links @ member
    is_linked = csr_array((np.ones(links.nnz), links.indices, links.indptr), shape=links.shape)
    counts = (is_linked @ member).data.astype(np.int64)
    row, cluster = np.repeat(np.arange(n_rows), np.diff(near.indptr)), near.indices.astype(np.int64)
    degree = np.bincount(row, near.data, n_rows)
    is_own = cluster == own[row]
    inside = np.bincount(row[is_own], near.data[is_own], n_rows)

    costs, weight = cost(cuts, sizes), np.broadcast_to(weight, n_rows)
    left = np.maximum(sizes[own] - weight, 0)  # rounding of weights may leave less than nothing
    # what is left of the cut of an emptied cluster is rounding
    cut_left = np.where(left > 0, cuts[own] - degree + 2 * inside, 0.0)
    leave = cost(cut_left, left) - costs[own]
    other, to, link = row[~is_own], cluster[~is_own], near.data[~is_own]
    enter = cost(cuts[to] + degree[other] - 2 * link, sizes[to] + weight[other]) - costs[to]
    change = leave[other] + enter
    # sorted by row, then change: the first of each row is its runner-up
    order = np.lexsort((change, other))
    has_other, first = np.unique(other[order], return_index=True)
    best = order[first]
    runner_up, least = np.full(n_rows, -1), np.full(n_rows, np.nan)
    runner_up[has_other], least[has_other] = to[best], change[best]
    n_in_runner_up = np.zeros(n_rows, np.int64)
    n_in_runner_up[has_other] = counts[~is_own][best]
    n_neighbors, n_inside = np.zeros((2, n_rows), np.int64)
    np.add.at(n_neighbors, row, counts)
    n_inside[row[is_own]] = counts[is_own]
    return Reasons(own, runner_up, n_neighbors, n_inside, n_in_runner_up, least)


def _say(
    cluster: int,
    runner_up: int,
    n_neighbors: int,
    n_inside: int,
    n_in_runner_up: int,
    change: float,
) -> str:
    if n_neighbors == 0:
        return f"no neighbour says anything of cluster {cluster}"
    if runner_up < 0:
        return f"all {n_neighbors} neighbours are in cluster {cluster}, and none in another"
    raises = "raise" if change >= 0 else "lower"
    return (
        f"{n_inside} of {n_neighbors} neighbours are in cluster {cluster}; the runner-up is "
        f"{runner_up} with {n_in_runner_up}; moving would {raises} J by {abs(change):.3g}"
    )
