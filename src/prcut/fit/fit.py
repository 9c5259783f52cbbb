"""One fit from end to end: rows → neighbours → graph → partition → assigner → labels.

No label takes part but those that the caller knows: of all partitions and starts, the one with the
lowest objective is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from prcut.errors import InvalidInputError
from prcut.fit.choose import ChosenGraph, choose_graph, examine
from prcut.fit.config import FitConfig
from prcut.fit.known import (
    Known,
    fraction_limits,
    price_clusters,
    search_known,
    warn_of_sizes,
)
from prcut.fit.starts import LazyStart, OnRecord, Score, Start, Trainer, score_labels
from prcut.graph.neighbors import Neighbors
from prcut.graph.rows import (
    as_features,
    divide_columns,
    far_origin,
    gather_rows,
    subtract_origin,
)
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runtime.folder import Folder
from prcut.runtime.progress import Step, StepLog
from prcut.search.limits import Limits
from prcut.search.partition import refine_labels
from prcut.search.problem import Partition
from prcut.search.votes import Votes
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels, rank_clusters
from prcut.training.batches import GatheredPairs, LabelledRows
from prcut.training.pairs import PairSampler, UniformPairs, WalkPairs
from prcut.training.settings import halve_walk
from prcut.training.state import TrainState

# fewer rows are searched in a fraction of the time that training takes
_MIN_TRAINED_ROWS = 20_000
# similarities that depend on distances alone
_OF_DISTANCES = ("mean", "binary", "self_tuning")


class Fit(NamedTuple):
    """What a fit of rows in memory ends with.

    Attributes
    ----------
    start : LazyStart
        Makes ``assigner`` and ``state`` when they are first asked for.
    labels : int64 array, shape (n_samples,)
        The partition.
    score : Score
        What the partition costs on the graph, its cluster sizes, and how the clusters merge.
    balance_weight : float
        The weight that was given, or chosen.
    graph : SimilarityGraph
    probabilities : float32 array, shape (n_samples,)
        How sure the cluster of every row is.
    n_neighbors : int or None
        None where the graph was given.
    steps : tuple of Step
        What the search did, with the seconds and the objective of each step.
    scales, origin : arrays, shape (n_features,), or None
        What columns were divided by; what was subtracted of rows far from 0 before.
    stability : float64 array, shape (n_clusters,), or None
        How well independent starts found every cluster; None where none were compared.
    """

    start: LazyStart
    labels: np.ndarray
    score: Score
    balance_weight: float
    graph: SimilarityGraph
    probabilities: np.ndarray
    n_neighbors: int | None = None
    steps: tuple[Step, ...] = ()
    scales: np.ndarray | None = None
    origin: np.ndarray | None = None
    stability: np.ndarray | None = None

    @property
    def assigner(self) -> Assigner:
        """The assigner, trained or distilled from the partition."""
        return self.start().assigner

    @property
    def state(self) -> TrainState:
        """Where training stopped."""
        return self.start().state


def fit_rows(
    rows: Any,
    config: FitConfig,
    graph: SimilarityGraph | ChosenGraph | None = None,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Folder | None = None,
    on_record: OnRecord | None = None,
    on_step: Callable[[Step], None] | None = None,
    lazy: bool = False,
    neighbors: Neighbors | None = None,
    known: Known | None = None,
) -> Fit:
    """Cluster rows that fit in memory.

    Parameters
    ----------
    rows : array, memory map, tensor or SciPy sparse matrix, shape (n_samples, n_features)
    config : FitConfig
    graph : SimilarityGraph or ChosenGraph, optional
        Used in place of the neighbours of the rows.
    device : device or str
        Where the assigner is trained; the graph stays where it is.
    checkpoint : Folder, optional
        Training is saved here as it goes, and resumed from here.
    on_record, on_step : callables, optional
        Called with the number of a start and its newest training record, and with every step of
        the search as it ends.
    lazy : bool
        Distil a searched partition only when the assigner is asked for, from a copy of the rows.
    neighbors, known : Neighbors, Known, optional
        Neighbours of the rows, where they were found already; classes, links and weights of rows.
    """
    known, log = known or Known(), StepLog(on_step)
    known.check(config, rows.shape[0])
    rows, origin = _center(rows, config)
    chosen = ChosenGraph.of(graph or choose_graph(rows, config, log, neighbors))
    if known.weights is not None:  # the resamples are of rows of equal weight
        chosen = chosen._replace(graph=known.weigh(chosen.graph), resampled=None)
    _check_edges(chosen.graph, config)
    features = as_features(divide_columns(rows, chosen.scales))
    stability = None
    if config.solver == "search":
        partition = _search(chosen, features, config, device, log, known)
        labels, balance_weight = partition.labels, partition.balance_weight
        votes = Votes.of(chosen.graph, labels, partition.starts, config.n_clusters)
        probabilities, stability = votes.shares(), votes.stability(config.n_clusters)
        start = distil_votes(
            features,
            votes,
            config,
            balance_weight,
            lazy=lazy,
            device=device,
            checkpoint=checkpoint,
            on_record=on_record,
            scales=chosen.scales,
            origin=origin,
            fractions=fraction_limits(config, rows.shape[0]),
        )
    else:
        balance_weight = config.training_balance
        trainer = Trainer.of(features, config, device, checkpoint, on_record)
        start = LazyStart.of(_descend(chosen.graph, features, balance_weight, trainer))
        labels = _label(start().assigner, features, chosen.graph, config)
        probabilities = rank_clusters(start().assigner, features).confidence
        start().assigner.divide_columns(chosen.scales)
        start().assigner.move_origin(origin)
    cost = config.n_clusters, balance_weight, config.layer_sizes
    return Fit(
        start,
        labels,
        score_labels(chosen.graph, labels, *cost, known.weights),
        balance_weight,
        chosen.graph,
        probabilities,
        n_neighbors=chosen.n_neighbors,
        steps=tuple(log),
        scales=chosen.scales,
        origin=origin,
        stability=stability,
    )


def _center(rows: Any, config: FitConfig) -> tuple[Any, np.ndarray | None]:
    """Subtract a row from those that lie far from 0, unless it would change similarities."""
    is_plain = config.metric == "euclidean" and config.similarity in _OF_DISTANCES
    origin = far_origin(rows, config.seed) if is_plain else None
    return subtract_origin(rows, origin), origin


def _check_edges(graph: SimilarityGraph, config: FitConfig) -> None:
    if config.solver == "search" and not graph.degree.any():
        raise InvalidInputError(
            f"the graph of n_samples={graph.n_samples} rows has no edges, so there is nothing to "
            "cut; raise n_neighbors or check the similarities."
        )


def _train_start(
    graph: SimilarityGraph, features: Any, config: FitConfig, device: torch.device | str
) -> np.ndarray:
    """Return the partition of an assigner that is trained on the search's graph and balance."""
    config = replace(config, solver="train", n_init=1, refine=False)
    trainer = Trainer.of(features, config, device)
    start = _descend(graph, features, config.training_balance, trainer)
    return assign_labels(start.assigner, features)


def _search(
    chosen: ChosenGraph,
    features: Any,
    config: FitConfig,
    device: torch.device | str,
    log: StepLog,
    known: Known,
) -> Partition:
    """Search the partition, from a trained start as well where that is asked for."""
    trained = []
    if config.effort == "best" and features.shape[0] >= _MIN_TRAINED_ROWS:
        chosen, config = examine(chosen, config)
        trained.append(_train_start(chosen.graph, features, config, device))
        log("trained start")
    partition = search_known(
        chosen.graph, config, known, resampled=chosen.resampled, starts=trained, log=log
    )
    sizes = np.bincount(partition.labels, known.weights, config.n_clusters)
    warn_of_sizes(sizes, known.limits(config, len(partition.labels)))
    return partition


def _draw_lesson(features: Any, votes: Votes, config: FitConfig, copy: bool) -> LabelledRows:
    """Return what is distilled: all rows, or at random as many as distillation looks at."""
    n_samples, n_seen = len(votes.labels), config.distil.max_steps * config.distil.batch_size
    rng, rows = np.random.default_rng(config.seed), np.arange(n_samples)
    if n_samples > n_seen:
        rows = np.sort(rng.choice(n_samples, n_seen, replace=False))
        features = gather_rows(features, torch.from_numpy(rows))
    elif copy:  # the caller may change the rows before they are distilled
        features = features.clone() if isinstance(features, torch.Tensor) else features.copy()
    return LabelledRows(features, torch.from_numpy(votes.draw(rows, rng)))


def distil_votes(
    features: Any, votes: Votes, config: FitConfig, balance_weight: float, *, lazy: bool, **how: Any
) -> LazyStart:
    """Return what learns the votes of all rows, now or when it is first asked for.

    The other arguments are those of :func:`distil`.
    """
    lesson = _draw_lesson(features, votes, config, copy=lazy)
    start = LazyStart(partial(distil, lesson, config, balance_weight, **how))
    if not lazy:
        start()
    return start


def distil(
    lesson: LabelledRows,
    config: FitConfig,
    balance_weight: float,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Folder | None = None,
    on_record: OnRecord | None = None,
    scales: np.ndarray | None = None,
    origin: np.ndarray | None = None,
    fractions: Limits | None = None,
) -> Start:
    """Train an assigner to give every row the clusters that it has votes for, by cross-entropy.

    The columns of the lesson were divided by ``scales``, and ``origin`` subtracted before, if any;
    later rows come as they are. Clusters keep to ``fractions`` of all rows.
    """
    trainer = Trainer.of(lesson.features, config, device, checkpoint, on_record)
    # its checkpoint names the weight, although nothing is balanced here
    start = trainer.train(lesson, replace(config.distil, balance_weight=balance_weight))
    if fractions is not None:
        price_clusters(start.assigner, lesson.features, fractions)
    start.assigner.divide_columns(scales)
    start.assigner.move_origin(origin)
    return start


def _descend(
    graph: SimilarityGraph, features: Any, balance_weight: float, trainer: Trainer
) -> Start:
    """Train assigners on the expected ratio cut, as the paper does; return the best start."""
    config = trainer.config
    descent = replace(config.train, balance_weight=balance_weight)
    sampler: PairSampler | Callable[[int], PairSampler]
    if config.pairs == "uniform":
        descent = replace(descent, batch_size=min(descent.batch_size, graph.n_samples))
        sampler = UniformPairs(graph)
    else:
        walks = cache(WalkPairs(graph, n_steps=config.walk_length).of_length)

        def sampler(step: int) -> PairSampler:
            return walks(halve_walk(step / descent.max_steps, config.walk_length))

    seen = features if trainer.projection is None else trainer.projection(features)

    def score(assigner: Assigner) -> Score:
        labels = _label(assigner, features, graph, config)
        return score_labels(graph, labels, config.n_clusters, balance_weight)

    return trainer.train_starts(GatheredPairs(sampler, seen), descent, score)


def _label(
    assigner: Assigner, features: Any, graph: SimilarityGraph, config: FitConfig
) -> np.ndarray:
    """Return the partition that an assigner gives, with single rows moved where that is wanted."""
    labels = assign_labels(assigner, features)
    if not config.refine:
        return labels
    weight = config.training_balance
    return refine_labels(graph, labels, config.n_clusters, balance_weight=weight)
