"""Checks of arguments; each raises one error that says what is wrong and how to fix it.

They read shapes, dtypes and ranges only, in linear time and without copies.
"""

import numpy as np
import torch
from torch import Tensor

from prcut.errors import InvalidInputError


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        remedy = "pass graph.weight" if name == "weight" else f"use torch.as_tensor({name})"
        raise InvalidInputError(
            f"{name} is of type {type(value).__name__}, expected a torch tensor; {remedy}."
        )


def check_graph_weight(weight: Tensor) -> int:
    """Return ``n_samples`` of a square CSR tensor of similarities."""
    _check_tensor("weight", weight)
    is_square = weight.ndim == 2 and weight.shape[0] == weight.shape[1]
    if weight.layout != torch.sparse_csr or not is_square:
        raise InvalidInputError(
            f"weight has layout {weight.layout} and shape {tuple(weight.shape)}, expected "
            "torch.sparse_csr of shape (n_samples, n_samples); pass "
            "SimilarityGraph.from_scipy(...).weight."
        )
    return weight.shape[0]


def check_labels(labels: Tensor, n_samples: int, n_clusters: int | None = None) -> int:
    """Return ``n_clusters`` of a labelling: one integer in ``[0, n_clusters)`` per row."""
    _check_tensor("labels", labels)
    is_whole = labels.dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    if not is_whole or labels.shape != (n_samples,):
        raise InvalidInputError(
            f"labels have dtype {labels.dtype} and shape {tuple(labels.shape)}, expected integers "
            f"of shape (n_samples,)=({n_samples},); use labels.long()."
        )
    if n_samples == 0:
        return n_clusters or 0
    low, high = (int(bound) for bound in torch.aminmax(labels))
    if low < 0:
        raise InvalidInputError(
            f"labels contain {low}, expected values >= 0; give unlabelled rows a cluster "
            "of their own or remove them."
        )
    if n_clusters is not None and high >= n_clusters:
        raise InvalidInputError(f"labels contain {high}, expected values < {n_clusters=}.")
    return high + 1 if n_clusters is None else n_clusters


def check_probs(probs: Tensor, n_samples: int) -> None:
    """Reject ``probs`` that are not a floating (n_samples, n_clusters) table."""
    _check_tensor("probs", probs)
    if not probs.is_floating_point() or probs.ndim != 2 or probs.shape[0] != n_samples:
        raise InvalidInputError(
            f"probs have dtype {probs.dtype} and shape {tuple(probs.shape)}, expected a floating "
            f"dtype and shape (n_samples, n_clusters) with {n_samples=}."
        )


def check_node_weight(node_weight: Tensor, n_samples: int) -> None:
    """Reject node weights that are not one finite value >= 0 per row."""
    _check_tensor("node_weight", node_weight)
    if node_weight.shape != (n_samples,):
        raise InvalidInputError(
            f"node_weight has shape {tuple(node_weight.shape)}, "
            f"expected (n_samples,)=({n_samples},)."
        )
    if not bool(torch.isfinite(node_weight).all()) or bool((node_weight < 0).any()):
        raise InvalidInputError("node_weight must be finite and >= 0 in every row.")


def check_finite(rows: np.ndarray, start: int, name: str) -> np.ndarray:
    """Return ``rows``, which start at row ``start`` of ``name``; reject NaN and infinity."""
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        raise InvalidInputError(
            f"{name} holds NaN or infinity in {int((~finite).sum())} of the rows "
            f"{start}..{start + len(rows) - 1}, the first is row {start + int(finite.argmin())}; "
            "remove or replace them."
        )
    return rows
