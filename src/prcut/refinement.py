"""Refining a partition row by row on the graph itself, linear in its edges."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from prcut.cluster_cost import ClusterCost

__all__ = ["partition_cuts", "refine"]

_MAX_ROUNDS = 200
# what a move must gain: less is rounding
_LEAST_GAIN = 1e-12


def refine(
    weight: csr_array, labels: np.ndarray, cost: ClusterCost, *, max_rounds: int = _MAX_ROUNDS
) -> np.ndarray:
    """Move rows to the cluster of some neighbour as long as the objective falls.

    In a round the best moves are made together; when together they do not pay, fewer are. Rows
    are looked at again when a neighbour has moved, and all of them before it ends.

    Parameters
    ----------
    weight : SciPy CSR array, shape (n_samples, n_samples)
    labels : int64 array, shape (n_samples,)
    cost : ClusterCost
    max_rounds : int

    Examples
    --------
    >>> path = csr_array(np.eye(6, k=1) + np.eye(6, k=-1))
    >>> cost = ClusterCost.of(6, 10.0, 2, balance_weight=1.0)
    >>> refine(path, np.array([0, 1, 0, 1, 1, 1]), cost).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    n_samples = len(labels)
    labels = labels.copy()
    degree = np.asarray(weight.sum(1), dtype=np.float64).reshape(-1)
    sizes = np.bincount(labels, minlength=cost.n_clusters).astype(np.float64)
    cuts = partition_cuts(weight, labels, cost.n_clusters)
    everything = np.arange(n_samples)
    active, share = everything, 1.0
    for _ in range(max_rounds):
        rows, after, gain = _best_moves(weight, labels, degree, cuts, sizes, active, cost)
        if len(rows) == 0:
            if len(active) == n_samples:
                break
            active = everything
            continue
        order = np.argsort(gain, kind="stable")
        while True:
            chosen = order[: max(1, int(share * len(order)))]
            moved, moved_to = rows[chosen], after[chosen]
            new_cuts = cuts + _change_of_cuts(weight, labels, moved, moved_to, cost.n_clusters)
            new_sizes = sizes + np.bincount(moved_to, minlength=cost.n_clusters)
            new_sizes -= np.bincount(labels[moved], minlength=cost.n_clusters)
            # one that was empty before does not hold up the others
            pays = bool(new_sizes[sizes > 0].all()) and (
                cost.objective(new_cuts, new_sizes) < cost.objective(cuts, sizes)
            )
            if pays or len(chosen) == 1:
                break
            share /= 3
        if not pays:  # the best gain is rounding
            if len(active) == n_samples:
                break
            active = everything
            continue
        labels[moved] = moved_to
        cuts, sizes, share = new_cuts, new_sizes, min(1.0, 1.5 * share)
        active = np.union1d(rows, weight[moved].indices)
    return labels


def _best_moves(
    weight: csr_array,
    labels: np.ndarray,
    degree: np.ndarray,
    cuts: np.ndarray,
    sizes: np.ndarray,
    active: np.ndarray,
    cost: ClusterCost,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of ``active`` that gain by a move, where to, and the change of the objective."""
    n_samples = len(labels)
    member = csr_array(
        (np.ones(n_samples, dtype=np.float32), labels, np.arange(n_samples + 1)),
        shape=(n_samples, cost.n_clusters),
    )
    part = weight if len(active) == n_samples else weight[active]
    links = part @ member
    row = np.repeat(np.arange(len(active)), np.diff(links.indptr))
    cluster, link = links.indices, links.data.astype(np.float64)
    own, own_degree = labels[active], degree[active]
    is_own = cluster == own[row]
    own_link = np.zeros(len(active))
    own_link[row[is_own]] = link[is_own]
    costs = cost(cuts, sizes)

    leave = cost(cuts[own] - own_degree + 2 * own_link, sizes[own] - 1) - costs[own]
    leave[sizes[own] < 2] = np.inf
    elsewhere = ~is_own
    row, cluster, link = row[elsewhere], cluster[elsewhere], link[elsewhere]
    enter = cost(cuts[cluster] + own_degree[row] - 2 * link, sizes[cluster] + 1) - costs[cluster]
    gain = leave[row] + enter
    pays = np.flatnonzero(gain < -_LEAST_GAIN)
    # the best move of each row: sorted by row, then gain, the first of its row
    pays = pays[np.lexsort((gain[pays], row[pays]))]
    first = pays[np.append(True, row[pays][1:] != row[pays][:-1])] if len(pays) else pays
    return active[row[first]], cluster[first].astype(np.int64), gain[first]


def partition_cuts(weight: csr_array, labels: np.ndarray, n_clusters: int) -> np.ndarray:
    """Weight that leaves every cluster, float64, shape (n_clusters,)."""
    source = np.repeat(labels, np.diff(weight.indptr))
    crosses = source != labels[weight.indices]
    cuts = np.bincount(source[crosses], weight.data[crosses], n_clusters)
    return cuts.astype(np.float64, copy=False)  # NumPy counts in integers where nothing crosses


def _change_of_cuts(
    weight: csr_array, labels: np.ndarray, moved: np.ndarray, moved_to: np.ndarray, n_clusters: int
) -> np.ndarray:
    """What moving rows adds to the cut of every cluster, from the edges of the moved rows only."""
    part = weight[moved]
    counts = np.diff(part.indptr)
    after = labels.copy()
    after[moved] = moved_to
    # an edge between two moved rows is stored with both of them
    is_moved = np.zeros(len(labels), dtype=bool)
    is_moved[moved] = True
    value = np.where(is_moved[part.indices], 0.5, 1.0) * part.data
    change = np.zeros(n_clusters)
    for now, sign in ((labels, -1.0), (after, 1.0)):
        source, target = np.repeat(now[moved], counts), now[part.indices]
        crosses = source != target
        for end in (source, target):
            change += sign * np.bincount(end[crosses], value[crosses], n_clusters)
    return change
