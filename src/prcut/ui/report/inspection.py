"""What is known about a clustering: the figures that plots and reports show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from prcut.numerics.certificate import SpectralBound
from prcut.numerics.objective import ClusterCost
from prcut.runtime.sources import Source
from prcut.search.fragments import CoarseGraph
from prcut.search.merge import MergeTree, merge

InspectionPart = Literal["map", "cut"]


class Inspectable(Protocol):
    """A fitted estimator that reports and displays can show, such as :class:`prcut.PRCut`."""

    def inspect(self, X: Any, **options: Any) -> Inspection:  # noqa: N803
        """Measure how the rows of X are clustered."""


class RowExamples(NamedTuple):
    """Row numbers that show what a cluster is about: near its mean, or with a low probability.

    ``runner_up`` and ``confidence`` are those of the ambiguous rows; -1 is an unknown runner-up.
    """

    typical: np.ndarray
    ambiguous: np.ndarray
    runner_up: np.ndarray
    confidence: np.ndarray


@dataclass(frozen=True)
class Inspection:
    """What was measured on a clustering of the rows of a source.

    Attributes
    ----------
    name : str
        Name of the run, or class of the estimator.
    source : Source
    about : dict
        What was clustered and how: the plan and the result of a run.
    rows : int64 array, shape (n_seen,)
        Numbers of the rows that were inspected, ascending: all, unless there are too many.
    labels, runner_up : int32 arrays, shape (n_seen,)
    confidence : float32 array, shape (n_seen,)
    coords : float32 array, shape (n_seen, 2)
        Coordinates on the map.
    distances : float32 array, shape (n_seen,)
        Distance to the mean of the row's cluster, in the input of the last layer.
    n_clusters : int
    links : float64 array, shape (n_clusters, n_clusters), or None
        Weight between clusters and (diagonal, both directions) inside them.
    n_components : int or None
        Connected components of the graph, where it is in memory.
    bound : SpectralBound or None
    history : dict of arrays
    partition : array, shape (n_seen,), or None
        The searched partition that was distilled into the assigner, where it is known.
    agreement : float64 array, shape (n_tried, 2), or None
        Numbers of clusters that were tried, and how well searches agreed on each.
    stability : float64 array, shape (n_clusters,), or None
        How well independent starts found every cluster again.
    layers : tuple of int64 arrays, shape (n_clusters,)
        What every cluster is called in the coarser layers, the finest of them first.
    inside : float32 array, shape (n_seen,), or None
        Fraction of a row's weight in the graph that stays in its cluster; NaN without edges.
    seconds : float
        Duration of the inspection.
    """

    name: str
    source: Source
    about: Mapping[str, Any]
    rows: np.ndarray
    labels: np.ndarray
    runner_up: np.ndarray
    confidence: np.ndarray
    coords: np.ndarray
    distances: np.ndarray
    n_clusters: int
    links: np.ndarray | None = None
    n_components: int | None = None
    bound: SpectralBound | None = None
    history: Mapping[str, np.ndarray] = field(default_factory=dict)
    partition: np.ndarray | None = None
    agreement: np.ndarray | None = None
    stability: np.ndarray | None = None
    seconds: float = 0.0
    layers: tuple[np.ndarray, ...] = ()
    inside: np.ndarray | None = None

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of rows in every cluster, int64."""
        return np.bincount(self.labels, minlength=self.n_clusters)

    @property
    def n_used(self) -> int:
        """Number of clusters that have rows."""
        return int((self.sizes > 0).sum())

    @cached_property
    def mean_confidence(self) -> Any:
        """Mean confidence of the rows of every cluster; NaN for an empty one."""
        total = np.bincount(self.labels, self.confidence, self.n_clusters)
        mean = np.full(self.n_clusters, np.nan)
        return np.divide(total, self.sizes, out=mean, where=self.sizes > 0)

    @cached_property
    def link_fractions(self) -> Any:
        """Fraction of a cluster's weight that goes to each cluster: rows sum to 1."""
        if self.links is None:
            return None
        volume = self.links.sum(1, keepdims=True)
        return np.divide(self.links, volume, out=np.zeros_like(self.links), where=volume > 0)

    @property
    def better_than_chance(self) -> float | None:
        """``PRCut.score``: 1 for a perfect cut, 0 for that of random labels."""
        objective = self.about.get("objective")
        if objective is None or self.n_clusters < 2:
            return None
        return float(1 - objective / (self.n_clusters - 1))

    @property
    def bound_ratio(self) -> float | None:
        """Ratio cut of the run over its lower bound: at most this many times the optimum."""
        cut = self.about.get("ratio_cut")
        return None if self.bound is None or cut is None else self.bound.ratio(float(cut))

    @cached_property
    def merges(self) -> MergeTree | None:
        """The order in which clusters would merge to lower the cut; None if one is empty."""
        if self.links is None or not self.sizes.all() or self.n_clusters < 2:
            return None
        between = self.links.copy()
        np.fill_diagonal(between, 0.0)
        # by the cut alone: with the balance the two smallest would merge, alike or not
        total = int(self.sizes.sum()), float(self.links.sum())
        cost = ClusterCost.of(*total, self.n_clusters, balance_weight=0.0)
        return merge(CoarseGraph(csr_array(between), self.sizes.astype(np.float64)), cost)

    def examples(self, n_rows: int) -> list[RowExamples]:
        """Choose typical and ambiguous rows of every cluster, at most ``n_rows`` of each."""
        stops = np.cumsum(self.sizes)
        starts = stops - self.sizes
        near = np.lexsort((self.distances, self.labels))
        unsure = np.lexsort((self.confidence, self.labels))
        examples = []
        for start, stop in zip(starts, np.minimum(starts + n_rows, stops), strict=True):
            typical, ambiguous = self.rows[near[start:stop]], unsure[start:stop]
            doubts = self.runner_up[ambiguous], self.confidence[ambiguous]
            examples.append(RowExamples(typical, self.rows[ambiguous], *doubts))
        return examples
