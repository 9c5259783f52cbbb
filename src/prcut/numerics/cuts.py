r"""Cuts of a hard labelling.

One convention holds in the whole package, the paper's definition with its ½ (errata 1):

.. math:: RC(C) = ½ Σ_ℓ \frac{cut(C_ℓ, rest)}{|C_ℓ|}, \qquad cut(A, B) = Σ_{i∈A, j∈B} W_{ij}

The normalised cut has the volume (the sum of degrees) in place of the size :math:`|C_ℓ|`. Both
are one function with a node weight: 1, or the degree. An empty cluster cuts nothing and adds 0.
"""

from typing import Literal

import torch
from torch import Tensor

from prcut.numerics.sparse import degrees, entry_rows
from prcut.numerics.validation import check_graph_weight, check_labels, check_node_weight

Reduction = Literal["sum", "none"]


def ratio_cut(
    weight: Tensor,
    labels: Tensor,
    n_clusters: int | None = None,
    *,
    node_weight: Tensor | None = None,
    reduction: Reduction = "sum",
) -> Tensor:
    """Compute the ratio cut of a labelling, in float64 and O(nnz).

    Parameters
    ----------
    weight : sparse CSR tensor, shape (n_samples, n_samples)
        Symmetric similarities without diagonal (``SimilarityGraph.weight``).
    labels : integer tensor, shape (n_samples,)
        Cluster of every row, in ``[0, n_clusters)``.
    n_clusters : int, optional
        Number of clusters; by default the largest label + 1.
    node_weight : tensor, shape (n_samples,), optional
        Contribution of each row to the size of its cluster: 1 by default, the degree for the
        normalised cut.
    reduction : {"sum", "none"}
        The total, or one value per cluster.

    Examples
    --------
    >>> from prcut import SimilarityGraph
    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [2]])  # 0-1-2-3
    >>> ratio_cut(path.weight, torch.tensor([0, 0, 1, 1])).item()  # ½ (1/2 + 1/2)
    0.5
    """
    cut = cluster_cuts(weight, labels, n_clusters)
    labels = labels.long()
    if node_weight is None:
        size = torch.bincount(labels, minlength=len(cut)).double()
    else:
        check_node_weight(node_weight, len(labels))
        size = torch.zeros_like(cut).index_add_(0, labels, node_weight.double())
    # 0/0 of an empty cluster (or one of isolated rows, normalised) is 0
    return reduce_clusters(torch.where(cut > 0, 0.5 * cut / size, 0.0), reduction)


def cluster_cuts(weight: Tensor, labels: Tensor, n_clusters: int | None = None) -> Tensor:
    """Sum the weights of the edges that leave each cluster, float64, shape (n_clusters,).

    >>> from prcut import SimilarityGraph
    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [2]])
    >>> cluster_cuts(path.weight, torch.tensor([0, 1, 1, 2])).tolist()
    [1.0, 2.0, 1.0]
    """
    n_samples = check_graph_weight(weight)
    n_clusters = check_labels(labels, n_samples, n_clusters)
    labels = labels.long()
    source_labels = labels[entry_rows(weight)]
    crossing = source_labels != labels[weight.col_indices()]
    cut = torch.zeros(n_clusters, dtype=torch.float64, device=weight.device)
    return cut.index_add_(0, source_labels[crossing], weight.values()[crossing].double())


def cluster_links(weight: Tensor, labels: Tensor, n_clusters: int | None = None) -> Tensor:
    """Sum the weights between every two clusters, float64, shape (n_clusters, n_clusters).

    The diagonal holds the edges inside a cluster, in both directions: rows sum to volumes.

    >>> from prcut import SimilarityGraph
    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [2]])
    >>> cluster_links(path.weight, torch.tensor([0, 0, 1, 1])).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    n_samples = check_graph_weight(weight)
    n_clusters = check_labels(labels, n_samples, n_clusters)
    labels = labels.long()
    both = labels[entry_rows(weight)] * n_clusters + labels[weight.col_indices()]
    links = torch.zeros(n_clusters**2, dtype=torch.float64, device=weight.device)
    return links.index_add_(0, both, weight.values().double()).view(n_clusters, n_clusters)


def normalized_cut(
    weight: Tensor, labels: Tensor, n_clusters: int | None = None, *, reduction: Reduction = "sum"
) -> Tensor:
    """Compute the normalised cut of a labelling: :func:`ratio_cut` with degrees as node weights.

    >>> from prcut import SimilarityGraph
    >>> path = SimilarityGraph.from_neighbors([[1], [2], [3], [2]])  # volumes 3 and 3
    >>> round(normalized_cut(path.weight, torch.tensor([0, 0, 1, 1])).item(), 4)
    0.3333
    """
    return ratio_cut(weight, labels, n_clusters, node_weight=degrees(weight), reduction=reduction)


def reduce_clusters(per_cluster: Tensor, reduction: Reduction) -> Tensor:
    """Return the sum over the clusters, or the values per cluster unchanged."""
    if reduction not in ("sum", "none"):
        raise ValueError(f"{reduction=} must be 'sum' or 'none'.")
    return per_cluster.sum() if reduction == "sum" else per_cluster
