r"""HyCut (Ghriss, AISTATS 2026; the package pgcuts), its algorithm written anew for the CPU.

pgcuts computes its bound by kernels that need a GPU. The bound: where the other rows join cluster l
independently, a row of degree q there pays :math:`E[1 / (q + \sum_j d_j X_j)]`, and with the
degrees rounded down to β the sum is a binomial S of the mean chance α,

.. math:: E\Big[\frac{q}{q + \beta S}\Big]
    = \sum_s \binom{m}{s} \alpha^s (1 - \alpha)^{m - s} \frac{q}{q + \beta s}
    = {}_2F_1(-m, 1; q / \beta + 1; \alpha),

a finite sum of positive terms. Rows are put into bins of similar degree, whose bounds Hölder's
inequality multiplies, each to the power of the bin's fraction.

The numbers are those of its estimator (objective ``hyp_ncut``). Two things differ: it is given the
task's graph instead of making one, and the last state is taken, as the estimator does, not the one
its benchmark picks by labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from benchmarks.harness.turtle import draw_linear
from torch import Tensor
from torch.nn import functional

from prcut.graph.similarity_graph import SimilarityGraph

__all__ = ["DegreeBins", "degree_bins", "envelope", "hycut"]

_N_TRIALS = 512  # m: fewer trials than rows keep it a bound
_N_BINS = 16
_BATCH_EDGES = 8192
_LEARNING_RATE, _LAST_LEARNING_RATE, _WEIGHT_DECAY = 1e-3, 1e-5, 0.1
_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 10.0, 1.0
_KEEP = 0.9  # of the running mean chance, at every step
_LEAST_DEGREE = 1e-6


class DegreeBins(NamedTuple):
    """Rows grouped by degree; one entry per bin but for ``of_row``."""

    of_row: Tensor
    """Bin of every row."""
    mean: Tensor
    """Mean degree: q."""
    least: Tensor
    """Least degree: β."""
    fraction: Tensor
    """Fraction of the rows; sums to 1."""


def hycut(
    rows: np.ndarray, graph: SimilarityGraph, n_clusters: int, seed: int, *, n_steps: int = 1500
) -> np.ndarray:
    """Return the labels, int64 (n_samples,), of a linear layer after ``n_steps`` steps."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.from_numpy(np.ascontiguousarray(rows, np.float32))
    source, target, weight = graph.edges
    degree = graph.degree.clamp(min=_LEAST_DEGREE)
    bins = degree_bins(degree, seed)
    parameters = draw_linear(features.shape[1], n_clusters, generator)
    optimizer = torch.optim.AdamW(parameters, lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps, _LAST_LEARNING_RATE)
    chance = torch.full((n_clusters,), 1 / n_clusters, dtype=torch.float64)
    for step in range(1, n_steps + 1):
        edge = torch.randint(len(weight), (_BATCH_EDGES,), generator=generator)
        ends = torch.stack([source[edge], target[edge]])
        nodes, position = ends.unique(return_inverse=True)
        done = step / n_steps
        temperature = (1 - done) * _FIRST_TEMPERATURE + done * _LAST_TEMPERATURE
        logits = functional.linear(features[nodes], *parameters) / temperature
        log_probs = logits.log_softmax(1)
        probs = log_probs.exp()
        mean_probs = probs.mean(0)
        live_chance = _KEEP * chance + (1 - _KEEP) * mean_probs
        price = envelope(bins, live_chance).to(probs.dtype)[bins.of_row[ends[0]]]
        price = price / degree[ends[0], None].to(probs.dtype)
        # cross-entropy instead of p (1 − p'), as the estimator has it
        split = -probs[position[0]] * log_probs[position[1]]
        cut = (weight[edge, None] * split * price).sum() / weight[edge].sum()
        imbalance = -torch.special.entr(mean_probs).sum()
        _mix_gradients(parameters, cut, imbalance)
        optimizer.step()
        schedule.step()
        chance = live_chance.detach()
    with torch.no_grad():
        return functional.linear(features, *parameters).argmax(1).numpy()


def degree_bins(degree: Tensor, seed: int = 0) -> DegreeBins:
    """At most 16 bins, by k-means of the logarithms of the degrees."""
    from sklearn.cluster import KMeans

    log_degree = degree.log().numpy()[:, None]
    n_bins = min(_N_BINS, len(np.unique(log_degree)))
    found = KMeans(n_bins, n_init=10, random_state=seed).fit_predict(log_degree)
    of_row = torch.from_numpy(found).long()
    count = torch.bincount(of_row, minlength=n_bins)
    total = torch.zeros(n_bins, dtype=degree.dtype).index_add(0, of_row, degree)
    least = torch.full((n_bins,), torch.inf, dtype=degree.dtype)
    least = least.scatter_reduce(0, of_row, degree, "amin")
    return DegreeBins(of_row, total / count, least, count / count.sum())


def envelope(bins: DegreeBins, chance: Tensor, n_trials: int = _N_TRIALS) -> Tensor:
    """Return what a row of each bin pays per cluster, times its degree: (n_bins, n_clusters)."""
    chance = chance.double().clamp(1e-7, 1 - 1e-7)
    successes = torch.arange(n_trials + 1, dtype=torch.float64)
    ways = (
        torch.lgamma(torch.tensor(n_trials + 1.0, dtype=torch.float64))
        - torch.lgamma(successes + 1)
        - torch.lgamma(n_trials - successes + 1)
    )
    log_binomial = (
        ways + chance.log()[:, None] * successes + (-chance).log1p()[:, None] * successes.flip(0)
    )
    ratio = (bins.mean[:, None] / bins.least)[..., None]  # of the bin that pays to any other
    bound = (ratio / (ratio + successes)) @ log_binomial.exp().T
    return torch.einsum("qbk,b->qk", bound.log(), bins.fraction.double()).exp()


def _mix_gradients(parameters: tuple[Tensor, Tensor], *losses: Tensor) -> None:
    """Give every parameter the sum of the losses' gradients, each of norm 1."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for loss in losses:
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad += gradient / (gradient.norm() + 1e-12)
