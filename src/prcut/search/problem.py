"""What is searched: a graph, what its clusters cost, and the prices of its rows, if any."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prcut.numerics.objective import ClusterCost
from prcut.search.fragments import CoarseGraph, contract, overlay
from prcut.search.moves import MOST_IMPROVED, UNBOUNDED, Bounds, find_optimum, improve
from prcut.search.prices import Prices
from prcut.search.sweep import MAX_SWEEPS, cluster_sums, sweep


class Partition(NamedTuple):
    """Hard labels of all rows, with their objective.

    Attributes
    ----------
    labels : int64 array, shape (n_samples,)
    objective : float
        :func:`prcut.numerics.objective.hard_objective` of the labels, and their prices.
    agreement : float
        Mean adjusted Rand index between partitions of resampled graphs: near 1 where the graph
        determines the clusters.
    balance_weight : float
        Balance weight of the objective.
    starts : tuple of int64 arrays, shape (n_samples,)
        Partitions that were found independently, where one did not suffice.
    """

    labels: np.ndarray
    objective: float
    agreement: float = 1.0
    balance_weight: float = 0.0
    starts: tuple[np.ndarray, ...] = ()


class Problem(NamedTuple):
    """A graph, what its clusters cost, and the prices of its rows."""

    graph: CoarseGraph
    cost: ClusterCost
    prices: Prices | None = None

    @classmethod
    def of(
        cls,
        graph: CoarseGraph,
        n_clusters: int,
        balance_weight: float,
        prices: Prices | None = None,
    ) -> Problem:
        """Return the problem with a balance weight."""
        return cls(graph, cluster_cost(graph, n_clusters, balance_weight), prices)

    def search(
        self,
        fragments: np.ndarray,
        rng: np.random.Generator,
        labels: np.ndarray | None = None,
        n_jobs: int = 1,
    ) -> Partition:
        """Find the best clusters of whole fragments, then move single rows.

        None of the fragments lies in two clusters of ``labels``, which join the starts.
        """
        given = []
        if labels is not None:
            given.append(np.zeros(int(fragments.max()) + 1, dtype=np.int64))
            given[0][fragments] = labels
        coarse, paid = self.contract(fragments), self._paid(fragments)
        found, _ = find_optimum(coarse, self.cost, rng, n_jobs=n_jobs, paid=paid, given=given)
        return self.refine(found[fragments])

    def improve_groups(
        self, fragments: np.ndarray, labels: np.ndarray, bounds: Bounds = UNBOUNDED
    ) -> Partition:
        """Move fragments, none of which lies in two clusters, and then single rows."""
        of_fragments = np.zeros(int(fragments.max()) + 1, dtype=np.int64)
        of_fragments[fragments] = labels
        between = self.contract(fragments)
        improved, _ = improve(between, of_fragments, self.cost, self._paid(fragments), bounds)
        return self.refine(improved[fragments])

    def improve(self, labels: np.ndarray) -> Partition:
        """Move single nodes, also uphill where they are few enough for many passes."""
        if len(labels) > MOST_IMPROVED:
            return self.refine(labels)
        nodes = np.arange(len(labels))
        improved, _ = improve(self.graph, labels, self.cost, self._paid(nodes))
        return self.refine(improved)

    def refine(self, labels: np.ndarray, n_sweeps: int = MAX_SWEEPS) -> Partition:
        """Move single rows as long as the objective falls."""
        graph, cost, prices = self
        if prices is not None:
            labels = prices.fix(labels)
        sums = cluster_sums(graph, labels, cost.n_clusters)
        return self.score(sweep(graph, labels, cost, sums, n_sweeps, prices))

    def score(self, labels: np.ndarray) -> Partition:
        """Return the labels with their objective and prices."""
        cuts, sizes = cluster_sums(self.graph, labels, self.cost.n_clusters)
        paid = 0.0 if self.prices is None else self.prices.total(labels)
        return Partition(labels, self.cost.objective(cuts, sizes) + paid)

    def separate_fixed(self, fragments: np.ndarray) -> np.ndarray:
        """Split fragments so that a fixed row shares its own with rows of its cluster only."""
        prices = self.prices or Prices()
        if prices.preferred is None or prices.is_fixed is None or not prices.is_fixed.any():
            return fragments
        return overlay(fragments, np.where(prices.is_fixed, prices.preferred + 1, 0))

    def contract(self, fragments: np.ndarray) -> CoarseGraph:
        """Return the graph between fragments."""
        return contract(self.graph.links, fragments, sizes=self.graph.sizes)

    def _paid(self, fragments: np.ndarray) -> np.ndarray | None:
        if self.prices is None:
            return None
        return self.prices.of_fragments(fragments, self.cost.n_clusters)


def cluster_cost(graph: CoarseGraph, n_clusters: int, balance_weight: float) -> ClusterCost:
    """Return what the clusters of a graph cost; sizes that are no integers make no table of it."""
    total = float(graph.links.data.sum(dtype=np.float64)) + graph.inner
    n_samples: float = float(graph.sizes.sum())
    if (graph.sizes == np.rint(graph.sizes)).all():
        n_samples = int(n_samples)
    return ClusterCost.of(n_samples, total, n_clusters, balance_weight=balance_weight)
