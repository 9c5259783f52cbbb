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
from prcut.graph.neighbors import Neighbors
from prcut.graph.rows import (
    as_features,
    divide_columns,
    far_origin,
    gather_rows,
    subtract_origin,
)
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.pipeline.choose import ChosenGraph, choose_graph, examine
from prcut.pipeline.config import FitConfig
from prcut.pipeline.constrained import fraction_limits, price_clusters, search_known
from prcut.pipeline.known import Known
from prcut.pipeline.score import Score, score_labels
from prcut.pipeline.settings import Solver
from prcut.pipeline.starts import LazyStart, OnRecord, Start, Trainer
from prcut.runtime.folder import Folder
from prcut.runtime.progress import Step, StepLog
from prcut.search.limits import Limits
from prcut.search.merge import MergeTree
from prcut.search.partition import refine_labels
from prcut.search.problem import Partition
from prcut.search.votes import Votes
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels, rank_clusters
from prcut.training.batches import GatheredPairs, LabelledRows
from prcut.training.pairs import PairSampler, UniformPairs, WalkPairs
from prcut.training.schedules import halve_walk
from prcut.training.state import TrainState

# fewer rows are searched in a fraction of the time that training takes
_MIN_TRAINED_ROWS = 20_000
# similarities that depend on distances alone
_OF_DISTANCES = ("mean", "binary", "self_tuning")


class Fit(NamedTuple):
    """What a fit ends with.

    Attributes
    ----------
    start : LazyStart
        Makes ``assigner`` and ``state`` when they are first asked for.
    labels : int64 array, shape (n_samples,), or None
        The partition; None where the rows are on disk.
    objective, ratio_cut : float
        Of the partition on the graph.
    cluster_sizes : int64 array, shape (n_clusters,)
        Of the partition.
    merge_tree : MergeTree or None
        How the clusters merge further, and what each merge adds to the objective; None where a
        cluster is empty, or where there are more than 4,096.
    balance_weight : float
        The weight that was given, or chosen.
    solver : {"search", "train"}
        The one whose partition was kept.
    n_neighbors : int or None
        None where the graph was given, or is on disk.
    steps : tuple of Step
        What the search did, with the seconds and the objective of each step.
    probabilities : float32 array, shape (n_samples,), or None
        How sure the cluster of every row is; None where the rows are on disk.
    scales, origin : arrays, shape (n_features,), or None
        What columns were divided by; what was subtracted of rows far from 0 before.
    stability : float64 array, shape (n_clusters,), or None
        How well independent starts found every cluster; None where none were compared.
    graph : SimilarityGraph or None
        None where it is on disk.
    """

    start: LazyStart
    labels: np.ndarray | None
    objective: float
    ratio_cut: float
    cluster_sizes: np.ndarray
    merge_tree: MergeTree | None
    balance_weight: float
    solver: Solver
    n_neighbors: int | None = None
    steps: tuple[Step, ...] = ()
    probabilities: np.ndarray | None = None
    scales: np.ndarray | None = None
    stability: np.ndarray | None = None
    graph: SimilarityGraph | None = None
    origin: np.ndarray | None = None

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
    chosen = known.weigh(ChosenGraph.of(graph or choose_graph(rows, config, log, neighbors)))
    _check_edges(chosen.graph, config)
    features = as_features(divide_columns(rows, chosen.scales))
    options = config, device, checkpoint, on_record
    if config.solver == "search":
        partition = _search(chosen, features, config, device, log, known)
        labels, balance_weight = partition.labels, partition.balance_weight
        votes = Votes.of(chosen.graph, labels, partition.starts, config.n_clusters)
        probabilities, stability = votes.shares(), votes.stability(config.n_clusters)
        how = chosen.scales, lazy, fraction_limits(config, rows.shape[0]), origin
        start = distil_votes(features, votes, balance_weight, options, *how)
    else:
        balance_weight = config.training_balance
        trainer = Trainer.of(features, *options)
        start = LazyStart.of(_descend(chosen.graph, features, balance_weight, trainer))
        labels = _label(start().assigner, features, chosen.graph, config)
        probabilities, stability = rank_clusters(start().assigner, features).confidence, None
        start().assigner.divide_columns(chosen.scales)
        start().assigner.move_origin(origin)
    cost = config.n_clusters, balance_weight, config.layer_sizes
    score = score_labels(chosen.graph, labels, *cost, known.weights)
    kept = balance_weight, config.solver, chosen.n_neighbors, tuple(log)
    fit = Fit(start, labels, *score, *kept, probabilities, chosen.scales, stability, chosen.graph)
    return fit._replace(origin=origin)


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
    return search_known(chosen, config, known, trained, log)


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
    features: Any,
    votes: Votes,
    balance_weight: float,
    options: tuple[Any, ...],
    scales: np.ndarray | None,
    lazy: bool,
    fractions: Limits | None = None,
    origin: np.ndarray | None = None,
) -> LazyStart:
    """Return what learns the votes of all rows, now or when it is first asked for."""
    lesson = _draw_lesson(features, votes, options[0], copy=lazy)
    start = LazyStart(partial(distil, lesson, balance_weight, options, scales, fractions, origin))
    if not lazy:
        start()
    return start


def distil(
    lesson: LabelledRows,
    balance_weight: float,
    options: tuple[Any, ...],
    scales: np.ndarray | None,
    fractions: Limits | None = None,
    origin: np.ndarray | None = None,
) -> Start:
    """Train an assigner to give every row the clusters that it has votes for, by cross-entropy.

    The columns of the lesson were divided by ``scales``, and ``origin`` subtracted before, if any;
    later rows come as they are.
    Clusters keep to ``fractions`` of all rows.
    """
    trainer = Trainer.of(lesson.features, *options)
    # its checkpoint names the weight, although nothing is balanced here
    config = replace(trainer.config.distil, balance_weight=balance_weight)
    start = trainer.train(lesson, config)
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
