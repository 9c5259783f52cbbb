"""What training is told, what it remembers and what it knows besides the assigner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from prcut.errors import InvalidInputError
from prcut.objective import balance_factor
from prcut.running_mass import RunningClusterMass
from prcut.validation import check_positive_int

__all__ = ["RECORD_EVERY", "Record", "TrainConfig", "TrainState"]

# steps between two records of the history; a record holds their mean
RECORD_EVERY = 10
# records that are all kept; twice as many are the most that there are
_NEWEST = 5000
# share of the steps in which the learning rate rises from 0
_WARM_UP = 0.05


@dataclass(frozen=True)
class TrainConfig:
    """How an assigner is trained.

    Parameters
    ----------
    max_steps : int
    batch_size : int
        Pairs per step, over all processes.
    learning_rate : float
    schedule : {"cosine", "constant"}
        ``"cosine"`` warms up over the first steps and falls to 0 at ``max_steps``.
    descent : {"gradient", "proximal"}
        ``"proximal"`` pulls rows out of a wrong cluster they are sure of, which the gradient does
        not: see :func:`prcut.objective.proximal_softmax`.
    weight_decay : float
        Of Adam, as an L2 term.
    balance_weight : float
        What an empty cluster costs, in units of what a cluster that ignores the graph adds to the
        cut: see :func:`prcut.objective.balance_factor`.
    mass_update_rate : float
        Weight of the newest batch in the running cluster mass.
    patience : int, optional
        Stop when the smoothed objective has not fallen for so many steps; None never stops early.
    precision : {"float32", "bfloat16"}
        Of the assigner's products; softmax and loss are float32.
    n_streams : int
        Logical streams a batch is drawn from; the number of processes must divide it.
    checkpoint_every : int
        Steps, a multiple of 10.
    seed : int
    """

    max_steps: int = 600
    batch_size: int = 2048
    learning_rate: float = 3e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    descent: Literal["gradient", "proximal"] = "gradient"
    weight_decay: float = 0.0
    balance_weight: float = 2.0
    mass_update_rate: float = 0.8
    patience: int | None = 200
    precision: Literal["float32", "bfloat16"] = "float32"
    n_streams: int = 8
    checkpoint_every: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "n_streams", "checkpoint_every"):
            check_positive_int(name, getattr(self, name))
        if self.patience is not None:
            check_positive_int("patience", self.patience)
        if not self.learning_rate > 0:
            raise InvalidInputError(f"learning_rate={self.learning_rate} must be > 0.")
        for name in ("weight_decay", "balance_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidInputError(f"{name}={getattr(self, name)} must be >= 0.")
        for name, known in (
            ("schedule", ("cosine", "constant")),
            ("descent", ("gradient", "proximal")),
            ("precision", ("float32", "bfloat16")),
        ):
            if getattr(self, name) not in known:
                raise InvalidInputError(
                    f"{name}={getattr(self, name)!r} must be {known[0]!r} or {known[1]!r}."
                )
        if self.checkpoint_every % RECORD_EVERY:
            raise InvalidInputError(
                f"checkpoint_every={self.checkpoint_every} must be a multiple of {RECORD_EVERY}."
            )

    @classmethod
    def paper(cls, n_clusters: int, seed: int = 0) -> TrainConfig:
        """What the paper's experiments used; pairs are to come from ``UniformPairs``.

        Its entropy weight of 100 stands beside a sum without the definition's ½: 50 here.
        """
        return cls(
            max_steps=25_000,
            batch_size=2048,
            learning_rate=1e-4,
            schedule="constant",
            weight_decay=1e-7,
            balance_weight=50 / balance_factor(1.0, n_clusters) if n_clusters > 1 else 0.0,
            patience=None,
            n_streams=1,
            seed=seed,
        )

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if self.schedule == "constant":
            return self.learning_rate
        warm = min(1.0, (step + 1) / (_WARM_UP * self.max_steps))
        return self.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / self.max_steps))


class Record(NamedTuple):
    """The last ten steps, over all processes.

    Attributes
    ----------
    step : int
        Steps made.
    objective, cut, imbalance : float
        Means over the ten steps; ``objective = cut + balance_factor * imbalance``.
    confidence : float
        Mean of the largest probability of a row, in the last batch.
    cluster_sizes : float32 array, shape (n_clusters,)
        Share of the rows whose largest probability is the cluster's, in the last batch.
    """

    step: int
    objective: float
    cut: float
    imbalance: float
    confidence: float
    cluster_sizes: np.ndarray

    @property
    def used_clusters(self) -> int:
        """Clusters that the last batch has rows of."""
        return int((self.cluster_sizes > 0).sum())


@dataclass
class TrainState:
    """What training knows besides the assigner; a checkpoint holds both."""

    cluster_mass: RunningClusterMass
    optimizer: torch.optim.Optimizer
    step: int
    records: list[Record]

    @classmethod
    def start(cls, assigner: nn.Module, config: TrainConfig, step: int = 0) -> TrainState:
        """The state before the first step, or after ``step`` of them that left no state."""
        n_clusters = int(assigner.n_clusters)  # type: ignore[arg-type]
        parameters = list(assigner.parameters())
        mass = RunningClusterMass(n_clusters, config.mass_update_rate).to(parameters[0].device)
        # fused: one pass over all weights, a third of the time at 768 × 1000
        optimizer = torch.optim.Adam(parameters, weight_decay=config.weight_decay, fused=True)
        return cls(mass, optimizer, step, [])

    def add(self, record: Record) -> None:
        """Keep a record; of a very long run, fewer of the old ones the older they are."""
        self.records.append(record)
        if len(self.records) >= 2 * _NEWEST:
            self.records = self.records[:-_NEWEST:2] + self.records[-_NEWEST:]

    @property
    def n_clusters(self) -> int:
        """Of the assigner."""
        return len(self.cluster_mass.running)

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Every field of the records as an array with one entry per record."""
        return {name: np.array([getattr(r, name) for r in self.records]) for name in Record._fields}
