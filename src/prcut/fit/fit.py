"""One fit from end to end: rows → neighbours → graph → partition → assigner.

No labels are used but those that the caller gives: of all partitions and restarts, the one with the
lowest objective is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from prcut.errors import InvalidInputError
from prcut.fit.assign import Device, Lazy, OnRecord, Start, distil_votes, train_starts
from prcut.fit.choose import ChosenGraph, choose_graph, resample
from prcut.fit.clusters import Score, score_labels
from prcut.fit.config import FitConfig
from prcut.fit.known import Known, fraction_limits, search_known, warn_of_sizes
from prcut.graph.neighbors import Neighbors
from prcut.graph.rows import as_features, divide_columns, far_origin, subtract_origin
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runtime.folder import Folder
from prcut.runtime.progress import Step, StepLog
from prcut.search.votes import Votes
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import rank_clusters
from prcut.training.state import TrainState

# fewer rows are searched in a fraction of the time that training takes
_MIN_TRAINED_ROWS = 20_000
# rows of a fit that an update compares new rows with
_KEPT_ROWS = 10_000
# similarities that depend on distances alone
_OF_DISTANCES = ("mean", "binary", "self_tuning")


class Fit(NamedTuple):
    """The result of a fit of rows in memory.

    Attributes
    ----------
    start : Lazy of Start
        Makes ``assigner`` and ``state`` when they are first used.
    labels : int64 array, shape (n_samples,)
        The partition.
    score : Score
        What the partition costs on the graph, its cluster sizes, and how the clusters merge.
    balance_weight : float
        The weight that was given, or chosen.
    graph : SimilarityGraph
    probabilities : float32 array, shape (n_samples,)
        Confidence in the cluster of every row.
    n_neighbors : int or None
        None where the graph was given.
    steps : tuple of Step
        What the search did, with the seconds and the objective of each step.
    scales, origin : arrays, shape (n_features,), or None
        Divisors of the columns, and the row that was subtracted before from rows far from 0.
    stability : float64 array, shape (n_clusters,), or None
        How well independent restarts found every cluster; None where there was one restart.
    """

    start: Lazy[Start]
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
        """The state in which training stopped."""
        return self.start().state


def fit_rows(
    rows: Any,
    config: FitConfig,
    graph: SimilarityGraph | ChosenGraph | None = None,
    *,
    device: Device = "cpu",
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
        Called with the number of a restart and its newest training record, and with every step of
        the search as it ends.
    lazy : bool
        Distil a searched partition only when the assigner is used, from a copy of the rows.
    neighbors, known : Neighbors, Known, optional
        Neighbours of the rows, where they were found already; classes, links and weights of rows.
    """
    known, log, n_clusters = known or Known(), StepLog(on_step), config.n_clusters
    known.check(config, rows.shape[0])
    rows, origin = _center(rows, config)
    if not isinstance(graph, ChosenGraph):
        graph = choose_graph(rows, config, log, neighbors) if graph is None else ChosenGraph(graph)
    graph, n_neighbors, resampled, scales = graph
    if known.weights is not None:  # the resamples are of rows of equal weight
        graph, resampled = known.weigh(graph), None
    features = as_features(divide_columns(rows, scales))
    training: dict[str, Any] = {
        "device": device,
        "checkpoint": checkpoint,
        "on_record": on_record,
    }
    if config.solver == "train":
        start, labels = train_starts(graph, features, config, **training)
        probabilities = rank_clusters(start.assigner, features).confidence
        start.assigner.divide_columns(scales)
        start.assigner.move_origin(origin)
        lazy_start, stability = Lazy.of(start), None
        balance_weight = config.training_balance
    else:
        if not graph.degree.any():
            raise InvalidInputError(
                f"the graph of n_samples={graph.n_samples} rows has no edges, so there is nothing "
                "to cut; raise n_neighbors or check the similarities."
            )
        given = []
        if config.effort == "best" and rows.shape[0] >= _MIN_TRAINED_ROWS:
            resampled = resampled or resample(graph, config)
            config = replace(config, balance_weight=resampled.balance_weight)
            trained = replace(config, solver="train", n_init=1, refine=False)
            given = [train_starts(graph, features, trained, device=device)[1]]
            log("trained start")
        partition = search_known(graph, config, known, resampled=resampled, starts=given, log=log)
        labels, balance_weight = partition.labels, partition.balance_weight
        sizes = np.bincount(labels, known.weights, n_clusters)
        warn_of_sizes(sizes, known.limits(config, len(labels)))
        votes = Votes.of(graph, labels, partition.starts, n_clusters)
        probabilities, stability = votes.shares(), votes.stability(n_clusters)
        lazy_start = distil_votes(
            features,
            votes,
            config,
            balance_weight,
            lazy=lazy,
            scales=scales,
            origin=origin,
            fractions=fraction_limits(config, rows.shape[0]),
            **training,
        )
    score = score_labels(
        graph, labels, n_clusters, balance_weight, config.layer_sizes, known.weights
    )
    return Fit(
        start=lazy_start,
        labels=labels,
        score=score,
        balance_weight=balance_weight,
        graph=graph,
        probabilities=probabilities,
        n_neighbors=n_neighbors,
        steps=tuple(log),
        scales=scales,
        origin=origin,
        stability=stability,
    )


def keep_some(rows: Any, labels: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    """Return up to 10,000 rows of a fit, with their clusters, for a later update."""
    n_samples = rows.shape[0]
    drawn = np.arange(n_samples)
    if n_samples > _KEPT_ROWS:
        rng = np.random.default_rng([seed, 4])
        drawn = np.sort(rng.choice(n_samples, _KEPT_ROWS, replace=False))
    return rows[drawn], labels[drawn]


def _center(rows: Any, config: FitConfig) -> tuple[Any, np.ndarray | None]:
    """Subtract a row from rows that lie far from 0, unless it would change similarities."""
    is_plain = config.metric == "euclidean" and config.similarity in _OF_DISTANCES
    origin = far_origin(rows, config.seed) if is_plain else None
    return subtract_origin(rows, origin), origin
