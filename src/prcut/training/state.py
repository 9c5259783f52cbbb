"""Training's records, and its state besides the assigner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from prcut.training.adam import OPTIMIZERS, Adam
from prcut.training.assigner.network import Assigner, take_heads
from prcut.training.loss import RunningClusterMass
from prcut.training.settings import TrainConfig

# newest records that are all kept; in total there are fewer than twice as many
_NEWEST = 5000
# fields of a record that a distillation does not have
OF_GRAPH = ("cut", "imbalance")


class Record(NamedTuple):
    """Summary of the last ten steps.

    Attributes
    ----------
    step : int
        Steps taken so far.
    objective : float
        Mean over the ten steps: ``cut + balance_factor * imbalance``, or the cross-entropy of a
        distillation. With several heads, all fields are those of the head with the lowest.
    cut, imbalance : float or None
        Means over the ten steps; None for a distillation, which uses no graph.
    confidence : float
        Mean of the largest probability of a row, in the last batch.
    cluster_sizes : float32 array, shape (n_clusters,)
        Fraction of the rows of the last batch that every cluster has.
    head_objectives : float64 array, shape (n_heads,), or None
        Objective of every initial head, the last known one for a dropped head; None where there
        was only one.
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
        """Number of clusters that have rows in the last batch."""
        return int((self.cluster_sizes > 0).sum())


@dataclass
class TrainState:
    """State of a training run besides the assigner; a checkpoint holds both."""

    cluster_mass: RunningClusterMass
    optimizer: Adam
    step: int
    records: list[Record]
    heads: Tensor  # numbers of the heads that are left

    @classmethod
    def start(cls, assigner: nn.Module, config: TrainConfig, step: int = 0) -> TrainState:
        """Return the state before the first step, or after ``step`` steps of unknown state."""
        n_clusters = int(assigner.n_clusters)  # type: ignore[arg-type]
        parameters = list(assigner.parameters())
        n_heads = int(getattr(assigner, "n_heads", 1))
        mass = RunningClusterMass(n_clusters, config.mass_update_rate, n_heads)
        mass.to(parameters[0].device)
        optimizer = OPTIMIZERS[config.optimizer](parameters, config.weight_decay)
        return cls(mass, optimizer, step, [], torch.arange(n_heads))

    def join_heads(self, objectives: np.ndarray) -> np.ndarray | None:
        """Return the objectives of all initial heads, given those of the heads that are left."""
        before = self.records[-1].head_objectives if self.records else None
        if before is None:
            return objectives.copy() if len(objectives) > 1 else None
        joined: np.ndarray = before.copy()
        joined[self.heads.numpy()] = objectives
        return joined

    def keep_heads(self, assigner: nn.Module, heads: Tensor) -> None:
        """Drop all other heads from the assigner and from this state."""
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
        """Add a record; in very long runs, older records are thinned out."""
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
