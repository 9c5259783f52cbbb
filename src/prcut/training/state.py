"""Training's configuration, its records, and its state besides the assigner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from prcut.errors import InvalidInputError
from prcut.numerics.objective import balance_factor
from prcut.numerics.validation import check_positive_int
from prcut.training.adam import OPTIMIZERS, Adam
from prcut.training.assigner.network import Assigner, take_heads
from prcut.training.loss import RunningClusterMass
from prcut.training.schedules import cosine, count_heads, relax_balance
from prcut.training.settings import TrainSettings

# steps between two records of the history; a record holds their mean
RECORD_EVERY = 10
# the newest records, all of which are kept; there are never more than twice as many
_NEWEST = 5000
# fields of a record that a distillation does not have
OF_GRAPH = ("cut", "imbalance")


@dataclass(frozen=True)
class TrainConfig(TrainSettings):
    """How an assigner is trained.

    Parameters
    ----------
    max_steps : int
    batch_size : int
        Pairs per step, or rows while distilling.
    learning_rate : float
    schedule : {"cosine", "constant"}
        ``"cosine"`` warms up over the first steps and falls to 0 at ``max_steps``.
    descent : {"gradient", "proximal"}
        ``"proximal"`` pulls rows out of a wrong cluster they are sure of, which the gradient does
        not: see :func:`prcut.numerics.proximal.proximal_softmax`.
    optimizer : {"adam", "rmsprop"}
    weight_decay : float
        The optimizer's L2 term.
    balance_weight : float
        Price of an empty cluster, in units of what a cluster that ignores the graph adds to the
        cut: see :func:`prcut.numerics.objective.balance_factor`.
    first_balance : float
        The weight of the first step, where it is more: the balance falls to ``balance_weight``.
    n_heads : int
        Heads that an assigner made for this training has on one body. Those with the highest
        objective of hard labels, on a held sample, are dropped as training goes, all but one.
    mass_update_rate : float
        Weight of the newest batch in the running cluster mass.
    patience : int, optional
        Stop when the objective (the cross-entropy, while distilling) averaged over this many steps
        is no lower than over the same number before them; None never stops early.
    precision : {"float32", "bfloat16"}
        Precision of the assigner's matrix products; softmax and loss are float32.
    n_streams : int
        Logical streams a batch is drawn from; they divide it equally.
    checkpoint_every : int
        Steps between checkpoints, a multiple of 10.
    seed : int
    """

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "n_streams", "checkpoint_every", "n_heads"):
            check_positive_int(name, getattr(self, name))
        if self.patience is not None:
            check_positive_int("patience", self.patience)
        if not self.learning_rate > 0:
            raise InvalidInputError(f"learning_rate={self.learning_rate} must be > 0.")
        for name in ("weight_decay", "balance_weight", "first_balance"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidInputError(f"{name}={getattr(self, name)} must be >= 0.")
        for name, known in (
            ("schedule", ("cosine", "constant")),
            ("descent", ("gradient", "proximal")),
            ("optimizer", tuple(OPTIMIZERS)),
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
    def paper(
        cls, n_clusters: int, optimizer: Literal["adam", "rmsprop"], seed: int = 0
    ) -> TrainConfig:
        """Return the settings of the paper's experiments, whose pairs are ``UniformPairs``.

        The paper's entropy weight of 100 is added to a sum without the definition's ½: 50 here.
        """
        return cls(
            optimizer=optimizer,
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
        """Return the learning rate of a step, counted from 0."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * cosine(step, self.max_steps)

    def n_heads_at(self, step: int) -> int:
        """Return the heads that are left at a step, counted from 0."""
        # they change with a record, which is a mean over the same heads
        return count_heads((step - step % RECORD_EVERY) / self.max_steps, self.n_heads)

    def balance_weight_at(self, step: int) -> float:
        """Return the balance weight of a step, counted from 0."""
        return relax_balance(step / self.max_steps, self.balance_weight, self.first_balance)


class Record(NamedTuple):
    """Summary of the last ten steps.

    Attributes
    ----------
    step : int
        Steps taken so far.
    objective : float
        Mean over the ten steps: ``cut + balance_factor * imbalance``, or while distilling the
        cross-entropy. Of several heads, this and what follows are those of the lowest.
    cut, imbalance : float or None
        Means over the ten steps; None while distilling, which knows no graph.
    confidence : float
        Mean of the largest probability of a row, in the last batch.
    cluster_sizes : float32 array, shape (n_clusters,)
        Fraction of the rows whose largest probability is the cluster's, in the last batch.
    head_objectives : float64 array, shape (n_heads,), or None
        Objective of every head that training began with, the last one of a head that was dropped;
        None where there was only one.
    """

    step: int
    objective: float
    cut: float | None
    imbalance: float | None
    confidence: float
    cluster_sizes: np.ndarray
    head_objectives: np.ndarray | None = None

    @property
    def used_clusters(self) -> int:
        """Number of clusters that the last batch has rows of."""
        return int((self.cluster_sizes > 0).sum())


@dataclass
class TrainState:
    """State of a training run besides the assigner; a checkpoint holds both."""

    cluster_mass: RunningClusterMass
    optimizer: Adam
    step: int
    records: list[Record]
    heads: Tensor  # the heads that are left, of those that training began with

    @classmethod
    def start(cls, assigner: nn.Module, config: TrainConfig, step: int = 0) -> TrainState:
        """Return the state before the first step, or after ``step`` of them that left no state."""
        n_clusters = int(assigner.n_clusters)  # type: ignore[arg-type]
        parameters = list(assigner.parameters())
        n_heads = int(getattr(assigner, "n_heads", 1))
        mass = RunningClusterMass(n_clusters, config.mass_update_rate, n_heads)
        mass.to(parameters[0].device)
        optimizer = OPTIMIZERS[config.optimizer](parameters, config.weight_decay)
        return cls(mass, optimizer, step, [], torch.arange(n_heads))

    def join_heads(self, objectives: np.ndarray) -> np.ndarray | None:
        """Return the objective of every head, given those of the heads that are left."""
        before = self.records[-1].head_objectives if self.records else None
        if before is None:
            return objectives.copy() if len(objectives) > 1 else None
        joined: np.ndarray = before.copy()
        joined[self.heads.numpy()] = objectives
        return joined

    def keep_heads(self, assigner: nn.Module, heads: Tensor) -> None:
        """Drop all heads but these from the assigner and from all that is known of them."""
        assert isinstance(assigner, Assigner)  # noqa: S101  # no other module has heads
        kept = torch.isin(self.heads, heads).nonzero().flatten()
        in_head = {id(parameter) for parameter in assigner.head.parameters()}
        for number, parameter in enumerate(self.optimizer.parameters):
            slot = self.optimizer.state.get(number, {})
            for name in slot.keys() - {"step"} if id(parameter) in in_head else ():
                slot[name] = take_heads(slot[name], self.n_clusters, kept)
        assigner.keep_heads(kept)
        self.optimizer.parameters = list(assigner.parameters())
        running = self.cluster_mass.running
        running = running[:, kept.to(running.device)]
        self.cluster_mass.running = running.flatten() if len(kept) == 1 else running
        self.heads = self.heads[kept]

    def add(self, record: Record) -> None:
        """Keep a record; of a very long run, fewer of the old ones the older they are."""
        self.records.append(record)
        if len(self.records) >= 2 * _NEWEST:
            self.records = self.records[:-_NEWEST:2] + self.records[-_NEWEST:]

    @property
    def n_clusters(self) -> int:
        """Number of clusters of the assigner."""
        return len(self.cluster_mass.running)

    @property
    def distils(self) -> bool:
        """Whether the records are those of a distillation."""
        return bool(self.records) and self.records[-1].cut is None

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Arrays of the fields that the records have, with one entry per record."""
        last = self.records[-1] if self.records else Record(0, 0.0, 0.0, 0.0, 0.0, np.empty(0))
        names = [name for name in Record._fields if getattr(last, name) is not None]
        return {name: np.array([getattr(r, name) for r in self.records]) for name in names}
