"""From rows to clusters: the assigner over all rows, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prcut.assigner import Assigner
from prcut.batches import as_features, gather_rows
from prcut.errors import InvalidInputError
from prcut.level_assigner import LevelAssigner

__all__ = [
    "RankedRows",
    "assign_labels",
    "assign_probs",
    "check_numbers",
    "hidden_rows",
    "rank_clusters",
    "represent_rows",
    "row_chunks",
]

# numbers in a chunk's features and logits together, 8 MB: they stay in the cache. 64 MB took half
# as long again at 128 features and 1,000 clusters
_CHUNK_NUMBERS = 2**21


class RankedRows(NamedTuple):
    """The two likeliest clusters of every row, and how likely the first is.

    Attributes
    ----------
    labels : int64 array, shape (n_samples,)
    confidence : float32 array, shape (n_samples,)
    runner_up : int64 array, shape (n_samples,)
        -1 where there is none: of one cluster, or of levels, which only follow the first.
    """

    labels: np.ndarray
    confidence: np.ndarray
    runner_up: np.ndarray


@torch.inference_mode()
def assign_labels(assigner: Assigner | LevelAssigner, features: Any) -> np.ndarray:
    """Cluster of every row, int64, shape (n_samples,).

    Parameters
    ----------
    assigner : Assigner or LevelAssigner
    features : array, memory map, tensor or SciPy sparse matrix, shape (n_samples, n_features)
    """
    labels = np.empty(features.shape[0], np.int64)
    for rows, chunk in row_chunks(assigner, features):
        if isinstance(assigner, LevelAssigner):
            found, best = assigner.walk(chunk)
        else:
            best, found = assigner(chunk).max(1)
        check_numbers(best, rows.start)
        labels[rows] = found.cpu().numpy()
    return labels


@torch.inference_mode()
def assign_probs(assigner: Assigner, features: Any) -> np.ndarray:
    """Cluster probabilities of every row, float32, shape (n_samples, n_clusters)."""
    probs = np.empty((features.shape[0], assigner.n_clusters), np.float32)
    for rows, chunk in row_chunks(assigner, features):
        found = assigner.probs(chunk)
        check_numbers(found[:, 0], rows.start)  # one that is NaN makes all of its row so
        probs[rows] = found.cpu().numpy()
    return probs


@torch.inference_mode()
def represent_rows(assigner: Assigner, features: Any) -> np.ndarray:
    """The bottleneck's activations, or the logits where there is none, float32."""
    has_one = assigner.bottleneck is not None
    represent = assigner.represent if has_one else assigner
    out = np.empty((features.shape[0], assigner.bottleneck or assigner.n_clusters), np.float32)
    for rows, chunk in row_chunks(assigner, features):
        found = represent(chunk)
        check_numbers(found.sum(1), rows.start)
        out[rows] = found.cpu().numpy()
    return out


@torch.inference_mode()
def rank_clusters(assigner: Assigner | LevelAssigner, features: Any) -> RankedRows:
    """The cluster of every row, its probability, and the cluster that comes next."""
    n_samples = features.shape[0]
    labels, runner_up = np.empty(n_samples, np.int64), np.full(n_samples, -1, np.int64)
    confidence = np.empty(n_samples, np.float32)
    for rows, chunk in row_chunks(assigner, features):
        if isinstance(assigner, LevelAssigner):
            found, certainty = (part.cpu().numpy() for part in assigner.walk(chunk))
            labels[rows], confidence[rows] = found, certainty
            continue
        values, order = assigner.probs(chunk).topk(min(2, assigner.n_clusters))
        check_numbers(values[:, 0], rows.start)
        labels[rows], confidence[rows] = order[:, 0].cpu().numpy(), values[:, 0].cpu().numpy()
        if order.shape[1] > 1:
            runner_up[rows] = order[:, 1].cpu().numpy()
    return RankedRows(labels, confidence, runner_up)


@torch.inference_mode()
def hidden_rows(assigner: Assigner | LevelAssigner, features: Any) -> np.ndarray:
    """What the last layer sees of every row, float32: the features where it is the only one.

    Of levels, the first.
    """
    root = assigner.root if isinstance(assigner, LevelAssigner) else assigner
    parts = []
    for _, chunk in row_chunks(root, features):
        hidden = root.represent(chunk)
        parts.append(hidden.to_dense() if hidden.layout == torch.sparse_csr else hidden)
    return torch.cat(parts).float().cpu().numpy() if parts else np.empty((0, 0), np.float32)


def check_numbers(values: Tensor, start: int) -> None:
    """Refuse rows, counted from ``start``, for which the assigner gives NaN or infinity."""
    finite = values.isfinite()
    if not bool(finite.all()):
        row = start + int(finite.int().argmin())
        raise InvalidInputError(
            f"row {row} is so large that its logits leave float32; scale the features as those "
            "that were fitted."
        )


def row_chunks(assigner: Assigner | LevelAssigner, features: Any) -> Iterator[tuple[slice, Tensor]]:
    """Ranges of rows and their features on the assigner's device."""
    device = next(assigner.parameters()).device
    features = as_features(features)
    n_features = features.shape[1] if isinstance(features, Tensor) else 0  # sparse rows are short
    step = max(1, _CHUNK_NUMBERS // (n_features + assigner.width))
    for start in range(0, features.shape[0], step):
        rows = slice(start, min(start + step, features.shape[0]))
        yield rows, gather_rows(features, rows).to(device)
