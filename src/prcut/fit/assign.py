"""Assigners of a fit: distilled from a partition, trained on pairs, or trained further."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Generator

from prcut.fit.clusters import Score, score_labels
from prcut.fit.config import FitConfig
from prcut.fit.known import price_clusters
from prcut.graph.rows import divide_columns, gather_rows, measure_features
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runtime.folder import Folder
from prcut.search.limits import Limits
from prcut.search.partition import refine_labels
from prcut.search.votes import Votes
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels
from prcut.training.batches import GatheredPairs, LabelledRows
from prcut.training.loop import train
from prcut.training.pairs import PairSampler, UniformPairs, WalkPairs
from prcut.training.projection import Projection
from prcut.training.settings import TrainConfig, halve_walk
from prcut.training.state import Record, TrainState

if TYPE_CHECKING:
    from typing_extensions import Self

_LOG = logging.getLogger(__name__)
# no restart follows one whose objective is below this fraction of the objective of random labels
_NOTHING_LEFT = 1e-4
# partial_fit: pairs drawn per row of a call, and the fewest steps of a call
_PAIRS_PER_ROW = 10
_MIN_STEPS = 10

Device = torch.device | str
# called with the number of a restart and its newest training record
OnRecord = Callable[[int, Record], None]
Made = TypeVar("Made")


class Start(NamedTuple):
    """A trained assigner, with the score of its labels where that was measured."""

    assigner: Assigner
    state: TrainState
    score: Score | None = None


class Lazy(Generic[Made]):
    """A value that is made by the first call, in whichever thread; a pickle holds the value."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make: Callable[[], Made] | None = make
        self._made: Made | None = None
        self._lock = Lock()

    @classmethod
    def of(cls, made: Made) -> Self:
        """Return a value that is already made."""
        lazy = cls(lambda: made)
        lazy()
        return lazy

    @property
    def is_made(self) -> bool:
        """Whether the value has been made."""
        return self._make is None

    def __call__(self) -> Made:
        """Return the value, and release what it was made from."""
        with self._lock:
            if self._make is not None:
                self._made, self._make = self._make(), None
        assert self._made is not None  # noqa: S101
        return self._made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self(),)


def distil_votes(
    features: Any,
    votes: Votes,
    config: FitConfig,
    balance_weight: float,
    *,
    lazy: bool,
    **options: Any,
) -> Lazy[Start]:
    """Distil the votes of all rows, at once or when the assigner is first used.

    The lesson is drawn here: all rows, or as many as distillation looks at. The other options are
    those of :func:`distil`.
    """
    n_samples = len(votes.labels)
    n_seen = config.distil.max_steps * config.distil.batch_size
    rng = np.random.default_rng(config.seed)
    rows = np.arange(n_samples)
    if n_samples > n_seen:
        rows = np.sort(rng.choice(n_samples, n_seen, replace=False))
        features = gather_rows(features, torch.from_numpy(rows))
    elif lazy:  # the caller may change the rows before they are distilled
        features = features.clone() if isinstance(features, torch.Tensor) else features.copy()
    drawn = torch.from_numpy(votes.draw(rows, rng))

    def make() -> Start:
        return distil(LabelledRows(features, drawn), config, balance_weight, **options)

    return Lazy(make) if lazy else Lazy.of(make())


def distil(
    lesson: LabelledRows,
    config: FitConfig,
    balance_weight: float,
    *,
    device: Device = "cpu",
    checkpoint: Folder | None = None,
    on_record: OnRecord | None = None,
    scales: np.ndarray | None = None,
    origin: np.ndarray | None = None,
    fractions: Limits | None = None,
) -> Start:
    """Train an assigner to give every row the clusters that it has votes for, by cross-entropy.

    Before this, ``origin`` was subtracted from the rows of the lesson and their columns divided by
    ``scales``, if given; the assigner reads later rows as they come. The sizes of its clusters stay
    within ``fractions`` of all rows.
    """
    # the checkpoint names the weight, although nothing is balanced here
    distil_config = replace(config.distil, balance_weight=balance_weight)
    assigner = _new_assigner(lesson.features, config, distil_config, device)
    state = _train(lesson, assigner, distil_config, 0, checkpoint, on_record)
    if fractions is not None:
        price_clusters(assigner, lesson.features, fractions)
    assigner.divide_columns(scales)
    assigner.move_origin(origin)
    return Start(assigner, state)


def train_starts(
    graph: SimilarityGraph,
    features: Any,
    config: FitConfig,
    *,
    device: Device = "cpu",
    checkpoint: Folder | None = None,
    on_record: OnRecord | None = None,
) -> tuple[Start, np.ndarray]:
    """Train assigners on the expected ratio cut, as the paper does.

    Return the restart with the lowest objective, and its partition.
    """
    balance_weight = config.training_balance
    train_config = replace(config.train, balance_weight=balance_weight)
    sampler: PairSampler | Callable[[int], PairSampler]
    if config.pairs == "uniform":
        batch_size = min(train_config.batch_size, graph.n_samples)
        train_config = replace(train_config, batch_size=batch_size)
        sampler = UniformPairs(graph)
    else:
        walks = cache(WalkPairs(graph, n_steps=config.walk_length).of_length)

        def sampler(step: int) -> PairSampler:
            return walks(halve_walk(step / train_config.max_steps, config.walk_length))

    seen, projection = features, None
    if config.n_components is not None:
        projection = Projection.of(features, config.n_components, config.seed)
        seen = projection(features)
    batches = GatheredPairs(sampler, seen)
    best, best_labels, lowest = None, np.empty(0, np.int64), np.inf
    for number in range(config.n_starts):
        # hashed: the second restart of seed 0 differs from the first of seed 1
        (seed,) = np.random.SeedSequence([config.seed, number]).generate_state(1)
        own_config = replace(train_config, seed=int(seed))
        assigner = _new_assigner(seen, config, own_config, device, projection)
        state = _train(batches, assigner, own_config, number, checkpoint, on_record)
        if projection is not None:
            assigner = projection.fold(assigner, state)
        labels = assign_labels(assigner, features)
        if config.refine:
            n_clusters = config.n_clusters
            labels = refine_labels(graph, labels, n_clusters, balance_weight=balance_weight)
        score = score_labels(graph, labels, config.n_clusters, balance_weight)
        _LOG.info("restart %d: objective %.4f, %d steps", number + 1, score.objective, state.step)
        if score.objective < lowest:
            best, best_labels = Start(assigner, state, score), labels
            lowest = score.objective
        if lowest <= _NOTHING_LEFT * (config.n_clusters - 1):
            break
    assert best is not None  # noqa: S101
    return best, best_labels


def train_further(
    rows: Any,
    graph: SimilarityGraph,
    config: FitConfig,
    before: Start | None = None,
    device: Device = "cpu",
    scales: np.ndarray | None = None,
) -> Start:
    """Train an assigner in place, or a new one, on the graph of one part of a stream.

    ``before`` is the state in which training stopped. After a distillation, whose records are of
    another kind, only the assigner and the number of steps are kept. A new assigner divides the
    columns by ``scales``.
    """
    if before is None:
        # linear: a call makes too few steps for hidden layers; heads compete during the first call
        config = replace(config, n_components=None)
        features = divide_columns(rows, scales)
        assigner = _new_assigner(features, config, config.train, device)
        assigner.divide_columns(scales)
        state = TrainState.start(assigner, config.train)
    else:
        assigner, state, _ = before
        if state.distils:
            state = TrainState.start(assigner, config.train, state.step)
    more = max(_MIN_STEPS, _PAIRS_PER_ROW * rows.shape[0] // config.train.batch_size)
    further = replace(
        config.train,
        balance_weight=config.training_balance,
        max_steps=state.step + more,
        schedule="constant",
        patience=None,
        first_balance=config.train.first_balance if before is None else 0.0,
    )
    pairs = GatheredPairs(WalkPairs(graph, n_steps=config.walk_length), rows)
    return Start(assigner, train(pairs, assigner, further, state=state))


def _new_assigner(
    features: Any,
    config: FitConfig,
    train_config: TrainConfig,
    device: Device,
    projection: Projection | None = None,
) -> Assigner:
    """Make an untrained assigner of these features, which a projection may have conditioned."""
    assigner = Assigner(
        features.shape[1],
        config.n_clusters,
        config.layers,
        config.bottleneck,
        n_heads=train_config.n_heads,
        weight_norm=projection is None,
        generator=Generator().manual_seed(train_config.seed),
    )
    if projection is None and config.standardize:
        assigner.standardize(*measure_features(features, config.seed))
    return assigner.to(device)


def _train(
    batches: GatheredPairs | LabelledRows,
    assigner: Assigner,
    config: TrainConfig,
    number: int,
    checkpoint: Folder | None,
    on_record: OnRecord | None,
) -> TrainState:
    """Train one restart, which is saved in ``checkpoint`` as it goes."""
    folder = None if checkpoint is None else checkpoint / f"start-{number}"
    note = None if on_record is None else partial(on_record, number)
    return train(batches, assigner, config, checkpoint=folder, on_record=note)
