"""Build a similarity graph from rows, and warn of suspicious data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from prcut.errors import InvalidInputError, warn_of
from prcut.graph.neighbors import Metric, Neighbors, draw_anchors, find_neighbors
from prcut.graph.rows import as_rows, numbers_per_row, row_keys, row_products
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.sparse import csr_tensor

if TYPE_CHECKING:
    from scipy.sparse import csr_array, sparray, spmatrix

Similarity = Literal["binary", "mean", "self_tuning", "cosine"]
# takes features of the two ends of pairs: two arrays, or two csr_array if features are sparse
PairSimilarity = Callable[[Any, Any], ArrayLike]

# Zelnik-Manor and Perona, Self-tuning spectral clustering (2004): the 7th neighbour
_SCALE_NEIGHBOR = 7
# features of pairs are gathered this many numbers at a time (64 MB in float32)
_CHUNK_NUMBERS = 2**24
# fraction of the rows, or columns, from which something is worth a warning
_WARNED_FRACTION = 0.01


def build_graph(
    features: ArrayLike | sparray | spmatrix,
    n_neighbors: int = 15,
    *,
    similarity: Similarity | PairSimilarity = "binary",
    metric: Metric = "euclidean",
    temperature: float = 0.5,
    anchors: float = 1.0,
    recall: float = 0.98,
    max_components: int = 1,
    seed: int = 0,
) -> SimilarityGraph:
    r"""Build the graph that links every row to its nearest others.

    Two other graphs need no neighbours: :meth:`SimilarityGraph.from_labels` links rows of the same
    label, and :meth:`SimilarityGraph.from_scipy` takes a graph that exists already.

    Parameters
    ----------
    features : float16, float32 or float64 array, shape (n_samples, n_features)
        In memory or memory-mapped. Or a SciPy sparse matrix or array, which is never made dense.
    n_neighbors : int
        Less than ``n_samples``.
    similarity : {"binary", "mean", "self_tuning", "cosine"} or callable
        Weight of an edge between i and j, where one is a neighbour of the other:

        * ``"binary"``: 1, the paper's either-or kernel;
        * ``"mean"``: 1 where each is the other's neighbour, else 1/2;
        * ``"self_tuning"``: :math:`e^{-d_{ij}^2 / (\sigma_i \sigma_j)}`, where :math:`\sigma` is
          the distance to the 7th neighbour, or to the last of fewer;
        * ``"cosine"``: :math:`e^{(\cos_{ij} - 1) / \tau}`, that is :math:`e^{\cos_{ij} / \tau}`
          scaled to 1 for rows of the same direction;
        * a callable that takes two arrays (n_pairs, n_features), for sparse features two
          ``csr_array``, and returns n_pairs weights, finite and >= 0. Where the two directions
          differ, the larger weight is used.
    metric : {"euclidean", "cosine", "inner_product"}
        Defines the neighbours. With ``"cosine"``, self-tuning uses the distance of the rows
        scaled to length 1.
    temperature : float
        :math:`\tau` of ``"cosine"``, > 0.
    anchors : float
        Fraction of the rows whose neighbours are searched, in (0, 1]. Other rows have edges only
        to the anchors whose neighbours they are.
    recall : float
        Fraction of the true neighbours to find: see :func:`find_neighbors`.
    max_components : int
        Warn if the graph has more components than this; up to the number of clusters they are
        expected.
    seed : int
        Seed of the anchors and the search.

    Returns
    -------
    SimilarityGraph

    Warns
    -----
    DataWarning
        One warning that counts repeated rows, constant columns, rows of zeros under the cosine,
        rows without edges and in separate components, where they are 1 % of all or more.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(100, 2))
    >>> build_graph(rows, n_neighbors=10)
    SimilarityGraph(n_samples=100, n_edges=627, n_components=1)
    """
    features = as_rows(features)
    _check_similarity(similarity, metric, temperature)
    rows = None
    if anchors != 1:
        rows = draw_anchors(features.shape[0], anchors, np.random.default_rng(seed))
    found = find_neighbors(
        features, n_neighbors, rows=rows, metric=metric, recall=recall, seed=seed
    )
    graph = link_neighbors(found, features, similarity, temperature=temperature)
    warn_of_data(features, graph, found, similarity, max_components)
    return graph


def link_neighbors(
    found: Neighbors,
    features: np.ndarray | csr_array,
    similarity: Similarity | PairSimilarity = "binary",
    *,
    temperature: float = 0.5,
) -> SimilarityGraph:
    """Build the graph of neighbours that were found in ``features``: see :func:`build_graph`."""
    weight = edge_similarity(found, similarity, temperature=temperature, features=features)
    neighbors, all_weights = found.indices, weight
    if len(found.rows) < features.shape[0]:
        neighbors = np.full((features.shape[0], found.indices.shape[1]), -1)
        all_weights = np.zeros(neighbors.shape, np.float32)
        neighbors[found.rows], all_weights[found.rows] = found.indices, weight
    return SimilarityGraph.from_neighbors(
        neighbors, all_weights, symmetrize="mean" if similarity == "mean" else "either"
    )


def edge_similarity(
    neighbors: Neighbors,
    similarity: Similarity | PairSimilarity = "binary",
    *,
    temperature: float = 0.5,
    features: Any = None,
) -> np.ndarray:
    """Compute the weight of each link in float32, before the two directions are joined.

    ``features``, the rows that ``neighbors`` refers to, are needed by a callable, and by
    ``"cosine"`` for neighbours found by another metric.
    """
    _check_similarity(similarity, neighbors.metric, temperature)
    linked = neighbors.indices >= 0
    if callable(similarity):
        return _over_pairs(similarity, neighbors, linked, features)
    if similarity in ("binary", "mean"):
        return linked.astype(np.float32)
    if similarity == "self_tuning":
        weight = _self_tuning(neighbors, linked)
    else:
        cosine = neighbors.distances
        if neighbors.metric != "cosine":
            cosine = _over_pairs(_pair_cosine, neighbors, linked, features)
        weight = np.exp((np.minimum(cosine, 1) - 1) / np.float32(temperature))
    return np.asarray(np.where(linked, weight, 0), np.float32)


def _self_tuning(neighbors: Neighbors, linked: np.ndarray) -> np.ndarray:
    """Compute self-tuning weights; a row that was not searched is given the source's scale."""
    squared = np.where(linked, neighbors.distances, 0)
    if neighbors.metric == "cosine":
        # within float32's rounding of 1 the rows are duplicates, which give no scale
        squared = np.where(linked & (squared < 1 - 1e-6), 2 - 2 * squared, 0)
    # the 7th link, or the last of fewer
    last = np.clip(linked.sum(1), 1, _SCALE_NEIGHBOR) - 1
    scale = np.sqrt(squared[np.arange(len(squared)), last])
    # seven duplicates give a scale of 0: use one far below all others instead
    apart = scale > 0
    floor = 1e-3 * scale[apart].mean() if apart.any() else 1.0
    scale = np.maximum(scale, floor).astype(np.float32)

    n_known = max(neighbors.rows.max(initial=-1), neighbors.indices.max(initial=-1)) + 1
    scale_of = np.full(n_known + 1, np.nan, np.float32)  # the last is that of index -1
    some = linked.any(1)  # a row without links has no scale either
    scale_of[neighbors.rows[some]] = scale[some]
    target_scale = scale_of[neighbors.indices]
    target_scale = np.where(np.isnan(target_scale), scale[:, None], target_scale)
    with np.errstate(over="ignore"):  # beyond float32 the weight is 0
        return np.asarray(np.exp(-(squared / scale[:, None]) / target_scale))


def _over_pairs(
    function: PairSimilarity, neighbors: Neighbors, linked: np.ndarray, features: Any
) -> np.ndarray:
    """Evaluate ``function`` at every link, a batch of pairs at a time; return 0 elsewhere."""
    features = as_rows(features)
    query, column = np.nonzero(linked)
    source, target = neighbors.rows[query], neighbors.indices[query, column]
    table = np.zeros(linked.shape, np.float32)
    step = max(1, _CHUNK_NUMBERS // numbers_per_row(features))
    for start in range(0, len(source), step):
        batch = slice(start, start + step)
        weight = np.asarray(function(features[source[batch]], features[target[batch]]))
        n_pairs = len(source[batch])
        if weight.shape != (n_pairs,) or weight.dtype.kind not in "biuf":
            raise InvalidInputError(
                f"the similarity callable returned shape {weight.shape} and dtype {weight.dtype} "
                f"for {n_pairs} pairs, expected real numbers of shape (n_pairs,)=({n_pairs},)."
            )
        with np.errstate(over="ignore"):  # the graph rejects infinite weights
            table[query[batch], column[batch]] = weight
    return table


def _pair_cosine(source: Any, target: Any) -> np.ndarray:
    source, target = source.astype(np.float32), target.astype(np.float32)
    length = np.sqrt(row_products(source, source))
    length *= np.sqrt(row_products(target, target))
    cosine: np.ndarray = row_products(source, target) / np.where(length == 0, 1, length)
    return cosine


def _check_similarity(
    similarity: Similarity | PairSimilarity, metric: Metric, temperature: float
) -> None:
    kinds = ("binary", "mean", "self_tuning", "cosine")
    if not callable(similarity) and similarity not in kinds:
        raise InvalidInputError(f"{similarity=} must be one of {', '.join(kinds)}, or a callable.")
    if similarity == "self_tuning" and metric == "inner_product":
        raise InvalidInputError(
            "similarity='self_tuning' needs a distance, which metric='inner_product' does not "
            "give; use 'euclidean' or 'cosine'."
        )
    if similarity == "cosine" and not 0 < temperature < np.inf:
        raise InvalidInputError(f"{temperature=} must be > 0 and finite.")


def warn_of_data(
    features: np.ndarray | csr_array,
    graph: SimilarityGraph,
    found: Neighbors,
    similarity: Similarity | PairSimilarity,
    max_components: int,
) -> None:
    """Warn once of all that is suspicious in the rows and in their graph."""
    by_direction = found.metric == "cosine" or similarity == "cosine"
    remarks = _remarks_on_features(features, by_direction)
    remarks += _remarks_on_graph(graph, found, max_components)
    if remarks:
        warn_of("\n- ".join(["the graph was built, but please check the data:", *remarks]))


def _remarks_on_features(features: np.ndarray | csr_array, by_direction: bool) -> list[str]:
    """Describe repeated rows, constant columns and, if only directions count, rows of zeros."""
    n_samples, n_features = features.shape
    if isinstance(features, np.ndarray):
        low, high = features.min(0), features.max(0)
    else:
        from sklearn.utils.sparsefuncs import min_max_axis

        low, high = min_max_axis(features, axis=0)
    n_constant = int((low == high).sum())
    keys = row_keys(features)
    n_repeated = n_samples - len(np.unique(keys))
    n_zero = int((keys == 0).sum()) if by_direction else 0  # the key of a row of zeros is 0
    remarks = []
    if _is_much(n_repeated, n_samples):
        remarks.append(
            f"{n_repeated:,} of {n_samples:,} rows repeat an earlier one, so duplicates fill "
            "their neighbours; drop the repeats, or raise n_neighbors above their number."
        )
    if _is_much(n_constant, n_features):
        remarks.append(
            f"{n_constant:,} of {n_features:,} columns are constant and distinguish no rows; "
            "drop them."
        )
    if _is_much(n_zero, n_samples):
        remarks.append(
            f"{n_zero:,} of {n_samples:,} rows are all zeros and have no direction: their cosine "
            "with every row was taken as 0; drop them or use metric='euclidean'."
        )
    return remarks


def _remarks_on_graph(graph: SimilarityGraph, found: Neighbors, max_components: int) -> list[str]:
    """Describe searched rows without an edge, and components of more than one row."""
    remarks = []
    degree = graph.weight.crow_indices().diff().numpy()
    n_isolated = int((degree[found.rows] == 0).sum())
    if _is_much(n_isolated, len(found.rows)):
        remarks.append(
            f"{n_isolated:,} of {len(found.rows):,} searched rows have no edge, as all their "
            "weights are 0 (or too few rows were found), so no cut depends on them; raise "
            "n_neighbors, the temperature or recall."
        )
    size = np.bincount(graph.components.numpy())
    size = size[size > 1]  # rows that no anchor found have no edges by design
    apart = int(np.sort(size)[: max(0, len(size) - max_components)].sum())
    if _is_much(apart, graph.n_samples):
        remarks.append(
            f"the graph has {len(size):,} components, the largest of {size.max():,} and "
            f"the smallest of {size.min():,} of {graph.n_samples:,} rows: a cut between "
            "components costs nothing; raise n_neighbors if they belong together."
        )
    return remarks


def _is_much(count: int, total: int) -> bool:
    """Return whether so many are worth a warning."""
    return count > 0 and count >= _WARNED_FRACTION * total


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
