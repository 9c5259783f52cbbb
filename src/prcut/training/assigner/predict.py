"""Apply an assigner to all rows, a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prcut.errors import InvalidInputError
from prcut.graph.rows import as_features, gather_rows
from prcut.training.assigner.network import Assigner

# numbers in a chunk's features and logits together, 8 MB, which fit the cache: 64 MB took 1.5 times
# as long at 128 features and 1,000 clusters
_CHUNK_NUMBERS = 2**21
# confidence in the cluster of a row where all restarts disagreed
_LEAST_SHARE = 0.6


class RankedRows(NamedTuple):
    """The two likeliest clusters of every row, and the probability of the first.

    The runner-up is -1 with one cluster.
    """

    labels: np.ndarray
    confidence: np.ndarray
    runner_up: np.ndarray


@torch.inference_mode()
def assign_labels(assigner: Assigner, features: Any) -> np.ndarray:
    """Return the cluster of every row, int64, shape (n_samples,)."""
    labels = np.empty(features.shape[0], np.int64)
    for rows, chunk in row_chunks(assigner, features):
        largest, cluster = assigner(chunk).max(1)
        check_numbers(largest, rows.start)
        labels[rows] = cluster.cpu().numpy()
    return labels


def assign_probs(assigner: Assigner, features: Any) -> np.ndarray:
    """Return cluster probabilities of every row, float32, shape (n_samples, n_clusters)."""
    return _apply(assigner, features, assigner.probs, assigner.n_clusters)


def represent_rows(assigner: Assigner, features: Any) -> np.ndarray:
    """Return the bottleneck's activations, or the logits where there is no bottleneck, float32."""
    if assigner.bottleneck is None:
        return _apply(assigner, features, assigner, assigner.n_clusters)
    return _apply(assigner, features, assigner.represent, assigner.bottleneck)


@torch.inference_mode()
def _apply(
    assigner: Assigner, features: Any, function: Callable[[Tensor], Tensor], width: int
) -> np.ndarray:
    out = np.empty((features.shape[0], width), np.float32)
    for rows, chunk in row_chunks(assigner, features):
        values = function(chunk)
        check_numbers(values.sum(1), rows.start)  # one NaN makes the sum NaN
        out[rows] = values.cpu().numpy()
    return out


@torch.inference_mode()
def rank_clusters(assigner: Assigner, features: Any) -> RankedRows:
    """Return the cluster of every row, its probability, and the second likeliest cluster."""
    n_samples = features.shape[0]
    labels, runner_up = np.empty(n_samples, np.int64), np.full(n_samples, -1, np.int64)
    confidence = np.empty(n_samples, np.float32)
    for rows, chunk in row_chunks(assigner, features):
        values, order = assigner.probs(chunk).topk(min(2, assigner.n_clusters))
        check_numbers(values[:, 0], rows.start)
        labels[rows], confidence[rows] = order[:, 0].cpu().numpy(), values[:, 0].cpu().numpy()
        if order.shape[1] > 1:
            runner_up[rows] = order[:, 1].cpu().numpy()
    return RankedRows(labels, confidence, runner_up)


@torch.inference_mode()
def hidden_rows(assigner: Assigner, features: Any) -> np.ndarray:
    """Return the last layer's input of every row, float32; the features in a linear model."""
    chunks = []
    for _, chunk in row_chunks(assigner, features):
        hidden = assigner.represent(chunk)
        chunks.append(hidden.to_dense() if hidden.layout == torch.sparse_csr else hidden)
    return torch.cat(chunks).float().cpu().numpy() if chunks else np.empty((0, 0), np.float32)


def check_numbers(values: Tensor, start: int) -> None:
    """Reject rows, counted from ``start``, for which the assigner gives NaN or infinity."""
    finite = values.isfinite()
    if not bool(finite.all()):
        row = start + int(finite.int().argmin())
        raise InvalidInputError(
            f"row {row} is so large that its logits leave float32; scale the features as in fit."
        )


def row_chunks(assigner: Assigner, features: Any) -> Iterator[tuple[slice, Tensor]]:
    """Yield ranges of rows and their features on the assigner's device."""
    device = next(assigner.parameters()).device
    features = as_features(features)
    n_features = features.shape[1] if isinstance(features, Tensor) else 0  # sparse rows are short
    step = max(1, _CHUNK_NUMBERS // (n_features + assigner.width))
    # far from 0, float64 rows stay float64 until the assigner has subtracted their origin
    is_far = assigner.far_origin is not None and isinstance(features, Tensor)
    for start in range(0, features.shape[0], step):
        rows = slice(start, min(start + step, features.shape[0]))
        yield rows, (features[rows] if is_far else gather_rows(features, rows)).to(device)


def keep_labels(probs: np.ndarray, clusters: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Make the known cluster of every row the likeliest.

    Where the assigner prefers another cluster, the known one gets its confidence as probability, or
    the least confidence for outliers, whose confidence is 0.

    >>> keep_labels(np.array([[0.75, 0.25]]), np.array([1]), np.array([0.8])).round(2).tolist()
    [[0.2, 0.8]]
    """
    rows = np.flatnonzero(probs.argmax(1) != clusters)
    own = clusters[rows]
    share = np.maximum(confidence[rows], _LEAST_SHARE).astype(probs.dtype)
    others = probs[rows]
    others[np.arange(len(rows)), own] = 0
    probs[rows] = others * ((1 - share) / others.sum(1))[:, None]
    probs[rows, own] = share
    return probs
