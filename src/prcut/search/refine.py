"""Refinement of a partition row by row on the graph itself, in time linear in its edges."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from prcut.numerics.objective import ClusterCost
from prcut.search import kernels

_MAX_ROUNDS = 200
# a smaller gain of a move is rounding
_LEAST_GAIN = 1e-12


def refine(
    weight: csr_array, labels: np.ndarray, cost: ClusterCost, *, max_rounds: int = _MAX_ROUNDS
) -> np.ndarray:
    """Move rows to the cluster of some neighbour as long as the objective falls.

    In a round the best moves are made together; if together they do not lower the objective, fewer
    are made. Rows are considered again when a neighbour has moved, and all of them before the end.
    """
    state = _Refinement(weight, labels, cost)
    all_rows = active = np.arange(len(labels))
    for _ in range(max_rounds):
        moved = state.run_round(active)
        if moved is not None:
            active = moved
        elif len(active) == len(labels):
            break
        else:
            active = all_rows
    return state.labels


class _Refinement:
    """A partition with the cuts and sizes of its clusters."""

    def __init__(self, weight: csr_array, labels: np.ndarray, cost: ClusterCost) -> None:
        # sums in single precision would not match those of the moves
        weight = weight.astype(np.float64, copy=False)
        self.graph, self.cost = kernels.as_graph(weight), cost
        self.labels: np.ndarray = labels.copy()
        self.degree = np.asarray(weight.sum(1)).reshape(-1)
        self.sizes = np.bincount(labels, minlength=cost.n_clusters).astype(np.float64)
        self.cuts = partition_cuts(self.graph, labels, cost.n_clusters)
        self.fraction = 1.0  # of the moves on offer that are made together

    def run_round(self, active: np.ndarray) -> np.ndarray | None:
        """Move some ``active`` rows; return the rows to consider next, or None if none moved."""
        n_clusters = self.cost.n_clusters
        rows, after, gain = self._best_moves(active)
        order = np.argsort(gain, kind="stable")
        while len(order):
            order = order[: max(1, int(self.fraction * len(rows)))]
            moved, moved_to = rows[order], after[order]
            change = _change_of_cuts(self.graph, self.labels, moved, moved_to, n_clusters)
            cuts = self.cuts + change
            sizes = self.sizes + np.bincount(moved_to, minlength=n_clusters)
            sizes -= np.bincount(self.labels[moved], minlength=n_clusters)
            if self._is_better(cuts, sizes):
                self.labels[moved] = moved_to
                self.cuts, self.sizes = cuts, sizes
                self.fraction = min(1.0, 1.5 * self.fraction)
                return self._touched(rows, moved)
            if len(order) == 1:  # the best gain is rounding
                break
            self.fraction /= 3
        return None

    def _touched(self, rows: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """Return the rows and the neighbours of those that moved, sorted."""
        is_touched = np.zeros(len(self.labels), dtype=bool)
        is_touched[rows] = True
        kernels.call("mark_neighbors", self.graph, len(moved), moved, is_touched)
        return np.flatnonzero(is_touched)

    def _is_better(self, cuts: np.ndarray, sizes: np.ndarray) -> bool:
        """Check that these lower the objective and empty no cluster (one may be empty already)."""
        return bool(sizes[self.sizes > 0].all()) and (
            self.cost.objective(cuts, sizes) < self.cost.objective(self.cuts, self.sizes)
        )

    def _best_moves(self, active: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the rows of ``active`` that gain by a move, their clusters, and the gains."""
        rows, after = np.empty((2, len(active)), dtype=np.int64)
        gain = np.empty(len(active))
        state = self.labels, self.cost.n_clusters, self.cuts, self.sizes, self.degree
        found = self.cost, _LEAST_GAIN, rows, after, gain
        n_found = kernels.call("best_moves", self.graph, len(active), active, *state, *found)
        return rows[:n_found], after[:n_found], gain[:n_found]


def partition_cuts(
    weight: csr_array | kernels.Graph, labels: np.ndarray, n_clusters: int
) -> np.ndarray:
    """Sum the weights of the edges that leave each cluster, float64, shape (n_clusters,)."""
    # the sums of prcut.numerics.cuts.cluster_cuts, which takes three times as long on a CPU
    cuts = np.zeros(n_clusters)
    kernels.call("partition_cuts", weight, labels, cuts)
    return cuts


def _change_of_cuts(
    weight: csr_array | kernels.Graph,
    labels: np.ndarray,
    moved: np.ndarray,
    moved_to: np.ndarray,
    n_clusters: int,
) -> np.ndarray:
    """Return the change of every cut when rows move, from the edges of the moved rows only."""
    change = np.zeros(n_clusters)
    scratch = np.zeros(len(labels), dtype=bool), np.empty(len(labels), dtype=np.int64)
    arguments = len(moved), moved, moved_to, labels, *scratch, change
    kernels.call("change_of_cuts", weight, *arguments)
    return change
