"""Features of a graph that came without any: what walks along its edges make of noise."""

import torch
from torch import Generator, Tensor

from prcut.graph import SimilarityGraph

__all__ = ["graph_features"]

# products between two orthonormal bases, without which all columns tend to the same one, and after
# the last, which leave little of what changes from one row to the next
_BETWEEN_BASES, _N_BASES = 8, 2


def graph_features(
    graph: SimilarityGraph, n_columns: int = 64, *, generator: Generator | None = None
) -> Tensor:
    """Random columns smoothed along the edges, float32, shape (n_samples, n_columns).

    Each product with (1 + D⁻¹W)/2 moves a row half-way to the mean of its neighbours, so that rows
    become alike as far as walks lead from one to the other. It is a coarse basis of the slow
    eigenvectors, the slowest having the largest columns, at the price of some sparse products.

    Examples
    --------
    >>> two_pairs = SimilarityGraph.from_neighbors([[1], [0], [3], [2]])
    >>> features = graph_features(two_pairs, 1, generator=torch.Generator().manual_seed(0))
    >>> bool(abs(features[0] - features[1]) < abs(features[0] - features[2]))
    True
    """
    n_samples = graph.n_samples
    columns = torch.randn(n_samples, min(n_columns, n_samples), generator=generator)
    columns = columns.to(graph.weight.device)
    weight = graph.weight.float()
    degree = graph.degree.float()[:, None]
    for number in range(_BETWEEN_BASES * (_N_BASES + 1)):
        if number and number % _BETWEEN_BASES == 0:
            columns = torch.linalg.qr(columns - columns.mean(0))[0] * n_samples**0.5
        means = weight @ columns / degree.clamp_min(torch.finfo(torch.float32).tiny)
        # a row without edges keeps what it has
        columns = torch.where(degree > 0, 0.5 * (columns + means), columns)
    return columns
