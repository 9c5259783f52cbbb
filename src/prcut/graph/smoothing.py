"""Features for a graph without any: random noise, smoothed along the edges."""

import torch
from torch import Generator, Tensor

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.sparse import csr_tensor

# products before, between and after the two orthonormalisations, without which all columns would
# converge to the same one; the last products remove what varies between neighbouring rows
_PRODUCTS_PER_BASIS, _N_BASES = 8, 2


def graph_features(
    graph: SimilarityGraph, n_columns: int = 64, *, generator: Generator | None = None
) -> Tensor:
    """Smooth random columns along the edges, float32, shape (n_samples, n_columns).

    Each product with (1 + D⁻¹W)/2 moves a row halfway to the mean of its neighbours, so rows that
    short walks connect become alike. The columns are a coarse basis of the slow eigenvectors, the
    slowest with the largest values, at the cost of a few sparse products.

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
    # in units in which no degree leaves float32: a power of two, by which division rounds nothing
    unit = 2.0 ** (torch.frexp(graph.degree.max()).exponent.item() - 1)
    given = graph.weight
    values = (given.values() / unit).float()
    weight = csr_tensor(given.crow_indices(), given.col_indices(), values)
    degree = (graph.degree / unit).float()[:, None]
    for number in range(_PRODUCTS_PER_BASIS * (_N_BASES + 1)):
        if number and number % _PRODUCTS_PER_BASIS == 0:
            columns = torch.linalg.qr(columns - columns.mean(0))[0] * n_samples**0.5
        means = weight @ columns / degree.clamp_min(torch.finfo(torch.float32).tiny)
        # a row without edges keeps its values
        columns = torch.where(degree > 0, 0.5 * (columns + means), columns)
    return columns
