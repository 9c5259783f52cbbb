"""Assigners from several starts, of which the one with the lowest objective is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from prcut.fit.config import FitConfig
from prcut.graph.rows import measure_features
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.objective import ClusterCost
from prcut.runtime.folder import Folder
from prcut.search.fragments import CoarseGraph, contract
from prcut.search.hierarchy import merge_further
from prcut.search.merge import MergeTree
from prcut.search.sweep import cluster_sums
from prcut.training.assigner.network import Assigner
from prcut.training.batches import BatchStream
from prcut.training.loop import train
from prcut.training.projection import Projection
from prcut.training.settings import TrainConfig
from prcut.training.state import Record, TrainState

MOST_LINKED = 4096
"""Clusters that are merged further; the links between these take 134 MB."""


class Score(NamedTuple):
    """What a partition costs: J (see :func:`prcut.numerics.hard_objective`) and its ratio cut.

    There is no merge tree where a cluster is empty, or where there are too many.
    """

    objective: float
    ratio_cut: float
    cluster_sizes: np.ndarray
    merge_tree: MergeTree | None


def score_labels(
    graph: SimilarityGraph | CoarseGraph,
    labels: np.ndarray,
    n_clusters: int,
    balance_weight: float,
    layer_sizes: Sequence[int] = (),
    weights: np.ndarray | None = None,
) -> Score:
    """Score the labels of all rows of one graph, which was weighed by their weights, if any.

    The merge tree passes through the layers: see :func:`prcut.search.hierarchy.merge_further`.
    """
    labels = labels.astype(np.int64, copy=False)
    links = graph.links if isinstance(graph, CoarseGraph) else graph.to_scipy()
    cuts, _ = cluster_sums(CoarseGraph.of_rows(links), labels, n_clusters)
    sizes = np.bincount(labels, weights, n_clusters).astype(np.float64)
    total = float(links.data.sum(dtype=np.float64))
    cost = ClusterCost.of(float(sizes.sum()), total, n_clusters, balance_weight=balance_weight)
    tree = None
    if n_clusters <= MOST_LINKED and sizes.all():
        between = contract(links, labels)._replace(sizes=sizes)
        tree = merge_further(between, cost, layer_sizes)
    ratio_cut = float(np.divide(0.5 * cuts, sizes, out=np.zeros(len(cuts)), where=cuts > 0).sum())
    is_whole = sizes.max() < 2**53 and np.array_equal(np.rint(sizes), sizes)
    counted = sizes.astype(np.int64) if is_whole else sizes
    return Score(cost.objective(cuts, sizes), ratio_cut, counted, tree)


if TYPE_CHECKING:
    from typing_extensions import Self

_LOG = logging.getLogger(__name__)
# no start is made after one whose objective is this small a fraction of what ignorance costs
_NOTHING_LEFT = 1e-4

OnRecord = Callable[[int, Record], None]
Made = TypeVar("Made")


class Start(NamedTuple):
    """A trained assigner, with the score of the labels it gives where that was measured."""

    assigner: Assigner
    state: TrainState
    score: Score | None = None


class Lazy(Generic[Made]):
    """A thing that is made when it is first called for, once, by whichever thread comes first.

    What it is made from is then released. A pickle holds the thing itself.
    """

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make: Callable[[], Made] | None = make
        self._made: Made | None = None
        self._lock = Lock()

    @classmethod
    def of(cls, made: Made) -> Self:
        """Return one that is made already."""
        lazy = cls(lambda: made)
        lazy()
        return lazy

    @property
    def is_made(self) -> bool:
        """Whether the thing need not be made any more."""
        return self._make is None

    def __call__(self) -> Made:
        """Return the thing."""
        with self._lock:
            if self._make is not None:
                self._made, self._make = self._make(), None
        assert self._made is not None  # noqa: S101
        return self._made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self(),)


class LazyStart(Lazy[Start]):
    """A start that is made when it is first called for."""


@dataclass(frozen=True)
class Trainer:
    """Makes and trains the assigners of one fit; a start is saved in ``checkpoint`` as it goes."""

    config: FitConfig
    origin: Tensor
    scale: float
    projection: Projection | None
    device: torch.device
    checkpoint: Folder | None = None
    on_record: OnRecord | None = None

    @classmethod
    def of(cls, features: Any, config: FitConfig, device: Any, *options: Any) -> Trainer:
        """Measure the features and return a trainer for them."""
        projection, n_components = None, config.n_components
        if config.solver == "train" and n_components is not None:
            projection = Projection.of(features, n_components, config.seed)
        measured = measure_features(features, config.seed)
        return cls(config, *measured, projection, torch.device(device), *options)

    def new_assigner(self, seed: int, n_heads: int = 1) -> Assigner:
        """Make an untrained assigner, of coordinates where the features are projected."""
        config, projection = self.config, self.projection
        assigner = Assigner(
            len(self.origin) if projection is None else projection.basis.shape[1],
            config.n_clusters,
            config.layers,
            config.bottleneck,
            n_heads=n_heads,
            weight_norm=projection is None,
            generator=Generator().manual_seed(seed),
        )
        if projection is None and config.standardize:
            assigner.standardize(self.origin, self.scale)
        return assigner.to(self.device)

    def train(self, batches: BatchStream, config: TrainConfig, number: int = 0) -> Start:
        """Train one start, on batches that are projected already."""
        assigner = self.new_assigner(config.seed, config.n_heads)
        state = train(
            batches,
            assigner,
            config,
            checkpoint=None if self.checkpoint is None else self.checkpoint / f"start-{number}",
            on_record=None if self.on_record is None else partial(self.on_record, number),
        )
        if self.projection is not None:
            assigner = self.projection.fold(assigner, state)
        return Start(assigner, state)

    def train_starts(
        self, batches: BatchStream, config: TrainConfig, score: Callable[[Assigner], Score]
    ) -> Start:
        """Train every start and return the one with the lowest objective."""
        kept: Start | None = None
        n_starts = self.config.n_starts
        for number in range(n_starts):
            # hashed: seed 0's second start is not seed 1's first
            (seed,) = np.random.SeedSequence([config.seed, number]).generate_state(1)
            start = self.train(batches, replace(config, seed=int(seed)), number)
            start = start._replace(score=score(start.assigner))
            _LOG.info(
                "start %d/%d: objective %.4f after %d steps",
                *(number + 1, n_starts, _objective(start), start.state.step),
            )
            if kept is None or _objective(start) < _objective(kept):
                kept = start
            if _objective(kept) <= _NOTHING_LEFT * (self.config.n_clusters - 1):
                break
        assert kept is not None  # noqa: S101
        return kept


def _objective(start: Start) -> float:
    assert start.score is not None  # noqa: S101
    return start.score.objective
