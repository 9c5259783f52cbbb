"""TURTLE (Gadetsky, Jiang & Brbić, ICML 2024), written anew for one space.

It looks for the labelling that a linear classifier learns best: an outer linear layer labels the
rows, an inner one is trained on those labels from scratch, and the labels move towards what the
inner one says. The numbers are those of the paper and of the authors' public script; rows are used
as they come, as there.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["draw_linear", "label_loss", "turtle"]

_LEARNING_RATE = 1e-3  # of both levels
_ENTROPY_WEIGHT = 10.0  # γ
_BATCH_ROWS = 10_000
_N_INNER_STEPS = 10  # M


def turtle(rows: np.ndarray, n_clusters: int, seed: int, *, n_steps: int = 6000) -> np.ndarray:
    """Return the labels, int64 (n_samples,), after ``n_steps`` (T) steps of the outer layer."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.from_numpy(np.ascontiguousarray(rows, np.float32))
    n_samples, n_features = features.shape
    direction, bias = draw_linear(n_features, n_clusters, generator)
    length = direction.detach().norm(dim=1, keepdim=True).requires_grad_()
    optimizer = torch.optim.Adam([direction, length, bias], lr=_LEARNING_RATE)

    def labelled(batch: Tensor) -> Tensor:
        # weights have a length of their own: without it, the authors say, it works badly
        weight = length * functional.normalize(direction, dim=1)
        return functional.linear(batch, weight, bias).softmax(1)

    batch = features
    for _ in range(n_steps):
        if n_samples > _BATCH_ROWS:
            batch = features[torch.randperm(n_samples, generator=generator)[:_BATCH_ROWS]]
        labels = labelled(batch)
        log_predicted = _learn(batch, labels.detach(), generator)
        optimizer.zero_grad()
        label_loss(labels, log_predicted).backward()
        optimizer.step()
    with torch.no_grad():
        return labelled(features).argmax(1).numpy()


def label_loss(labels: Tensor, log_predicted: Tensor) -> Tensor:
    """Eq. 12: cross-entropy of labels and predictions, less γ times the entropy of mean labels.

    >>> even = torch.full((4, 2), 0.5)
    >>> float(label_loss(even, even.log())) / float(even[0, 0].log())
    9.0
    """
    cross_entropy = -(labels * log_predicted).sum(1).mean()
    entropy: Tensor = torch.special.entr(labels.mean(0)).sum()
    return cross_entropy - _ENTROPY_WEIGHT * entropy


def _learn(batch: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """Log-probabilities of a classifier after a few steps from a new start (a cold one).

    The gradient does not pass through these steps: it is the paper's first-order one.
    """
    parameters = draw_linear(batch.shape[1], labels.shape[1], generator)
    optimizer = torch.optim.Adam(parameters, lr=_LEARNING_RATE)
    for _ in range(_N_INNER_STEPS):
        optimizer.zero_grad()
        functional.cross_entropy(functional.linear(batch, *parameters), labels).backward()
        optimizer.step()
    with torch.no_grad():
        return functional.linear(batch, *parameters).log_softmax(1)


def draw_linear(
    n_features: int, n_clusters: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Weight and bias as torch's linear layer draws them, from one's own generator."""
    bound = n_features**-0.5
    weight = torch.empty(n_clusters, n_features).uniform_(-bound, bound, generator=generator)
    bias = torch.empty(n_clusters).uniform_(-bound, bound, generator=generator)
    return weight.requires_grad_(), bias.requires_grad_()
