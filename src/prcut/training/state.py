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

# the newest records, all of which are kept; there are never more than twice as many
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
