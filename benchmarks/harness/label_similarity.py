"""Table 1: with the perfect similarity (the same label or not), PRCut against a classifier.

Labels are the input of both, so this is no clustering result: it shows what the loss loses, if
anything, when the similarity says all. Both see the same rows in the same order through the same
loop; one minimises the ratio cut over all pairs of equal labels between two batches (the paper's
Algorithm 1), the other the cross-entropy of the labels. Both are fitted on the training split and
scored on the test split, by the Hungarian match.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from benchmarks.harness.datasets import Dataset
from torch import Generator, Tensor

from prcut.graph.rows import measure_features
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels
from prcut.training.batches import GatheredPairs, LabelledRows
from prcut.training.loop import train
from prcut.training.pairs import PairBatch, PairSampler
from prcut.training.settings import TrainConfig

__all__ = ["LABEL_METHODS", "learn_labels"]

_HIDDEN = (512, 512, 512)
_N_STEPS = 1000


class _AllPairs(PairSampler):
    """Return all pairs of equal labels between two batches: some fifty partners a row, not one.

    A partner is a noisy target while half of the rows are still in the wrong cluster: with one
    each, CIFAR-10 was not learned (.43 against .57 by cross-entropy).
    """

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels
        self._chance = float((labels.bincount() / len(labels)).square().sum())

    def draw(self, batch_size: int, generator: Generator) -> PairBatch:
        """Twice ``batch_size`` rows, each pair of equal labels weighing the same."""
        rows = torch.randint(len(self.labels), (2 * batch_size,), generator=generator)
        label = self.labels[rows]
        source, target = (label[:batch_size, None] == label[None, batch_size:]).nonzero().T
        weight = torch.full((len(source),), 1 / (self._chance * batch_size**2))
        return PairBatch(rows, source, target + batch_size, weight, torch.ones(len(rows)))


class _ProximalStep(torch.autograd.Function):
    """Leave logits as they are, and give them the gradient of a proximal step of each row.

    With g the slopes of the loss at the probabilities p of a row, times the number of rows, the
    target is argmin_t g·t + KL(t ‖ p), which is proportional to p·exp(−g); the gradient is that of
    the cross-entropy with it. By the plain gradient a row that is sure of a wrong cluster stays
    there: CIFAR-10 is half learned, .47 instead of .57.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        return logits.view_as(logits)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        logits: Tensor = ctx.saved_tensors[0]
        probs = logits.softmax(1).clamp_min(4e-18)  # as those of the loss are
        # a softmax gives p(g − ⟨p, g⟩): what is subtracted changes no target
        target = (logits - len(grad) * grad / probs).softmax(1)
        return (probs - target) / len(grad)


class _ProximalAssigner(Assigner):
    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = _ProximalStep.apply(  # type: ignore[no-untyped-call]
            super().forward(features)
        )
        return logits


def _learn(split: Dataset, seed: int, *, is_classifier: bool) -> Assigner:
    """Fit the paper's network, 3 layers of 512, to one split."""
    rows, labels = split.pixels(), torch.from_numpy(split.labels)
    generator = Generator().manual_seed(seed)
    kind = Assigner if is_classifier else _ProximalAssigner
    assigner = kind(rows.shape[1], int(labels.max()) + 1, _HIDDEN, generator=generator)
    assigner.standardize(*measure_features(rows, seed))
    config = TrainConfig(
        max_steps=_N_STEPS,
        batch_size=512,
        learning_rate=1e-3,
        balance_weight=0.5,
        mass_update_rate=1.0,
        patience=None,
        seed=seed,
    )
    if is_classifier:  # of as many rows as both ends of the pairs are
        train(LabelledRows(rows, labels), assigner, replace(config, batch_size=1024))
    else:
        train(GatheredPairs(_AllPairs(labels), rows), assigner, config)
    return assigner


LABEL_METHODS = {
    "cross_entropy": "Cross-entropy",
    "prcut_labels": "PRCut, pairs of equal labels",
}


def learn_labels(method: str, fitted: Dataset, scored: Dataset, seed: int) -> np.ndarray:
    """Clusters of the rows of one split by what was learned from the other."""
    assigner = _learn(fitted, seed, is_classifier=method == "cross_entropy")
    return assign_labels(assigner, scored.pixels())
