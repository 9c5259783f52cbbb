"""From neighbours to a similarity graph, saying what in the data deserves a look."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from prcut.errors import DataWarning, InvalidInputError
from prcut.graph import SimilarityGraph
from prcut.neighbors import (
    Metric,
    Neighbors,
    as_rows,
    draw_anchors,
    find_neighbors,
    numbers_per_row,
    row_products,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array, sparray, spmatrix

__all__ = ["PairSimilarity", "Similarity", "build_graph", "edge_similarity"]

Similarity = Literal["binary", "mean", "self_tuning", "cosine"]
# of rows of features: two arrays, or for sparse features two csr_array
PairSimilarity = Callable[[Any, Any], ArrayLike]

# Zelnik-Manor and Perona, Self-tuning spectral clustering (2004): the 7th neighbour
_SCALE_NEIGHBOR = 7
# features of pairs are gathered this many numbers at a time (64 MB in float32)
_CHUNK_NUMBERS = 2**24


def build_graph(
    features: "ArrayLike | sparray | spmatrix",
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
    r"""Link every row to its nearest others.

    Two similarities need no neighbours: rows of the same label are linked by
    :meth:`SimilarityGraph.from_labels`, and a graph that exists already is taken by
    :meth:`SimilarityGraph.from_scipy`.

    Parameters
    ----------
    features : float16, float32 or float64 array, shape (n_samples, n_features)
        In memory or memory-mapped. Or a SciPy sparse matrix or array, which is never made dense.
    n_neighbors : int
        Below ``n_samples``.
    similarity : {"binary", "mean", "self_tuning", "cosine"} or callable
        Weight of an edge between i and j, where one is a neighbour of the other:

        * ``"binary"``: 1, the paper's either-or kernel;
        * ``"mean"``: 1 where each is the other's neighbour, else 1/2;
        * ``"self_tuning"``: :math:`e^{-d_{ij}^2 / (\sigma_i \sigma_j)}`, where :math:`\sigma` is
          the distance to the 7th neighbour, or to the last of fewer;
        * ``"cosine"``: :math:`e^{(\cos_{ij} - 1) / \tau}`, that is :math:`e^{\cos_{ij} / \tau}`
          scaled to 1 for rows of the same direction;
        * a callable that takes two arrays (n_pairs, n_features), for sparse features two
          ``csr_array``, and returns n_pairs weights, finite and >= 0. The larger counts where the
          two directions differ.
    metric : {"euclidean", "cosine", "inner_product"}
        Tells the neighbours. With ``"cosine"``, self-tuning takes the distance of the rows
        scaled to length 1.
    temperature : float
        :math:`\tau` of ``"cosine"``, > 0.
    anchors : float
        Share of the rows that neighbours are searched for, in (0, 1]. The others have edges only
        from the anchors whose neighbours they are.
    recall : float
        Share of the true neighbours that must be found: see :func:`find_neighbors`.
    max_components : int
        More separate components than this are remarked on; up to the number of clusters they are
        no surprise.
    seed : int
        Of the anchors and the search.

    Returns
    -------
    SimilarityGraph

    Warns
    -----
    DataWarning
        Once, naming repeated rows, constant columns, rows of zeros under the cosine, rows without
        edges and separate components, each with its number, if there are any.

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
    weight = edge_similarity(found, similarity, temperature=temperature, features=features)
    neighbors, all_weights = found.indices, weight
    if rows is not None:
        neighbors = np.full((features.shape[0], found.indices.shape[1]), -1)
        all_weights = np.zeros(neighbors.shape, np.float32)
        neighbors[rows], all_weights[rows] = found.indices, weight
    graph = SimilarityGraph.from_neighbors(
        neighbors, all_weights, symmetrize="mean" if similarity == "mean" else "either"
    )
    by_direction = metric == "cosine" or similarity == "cosine"
    remarks = _remarks_on_features(features, by_direction)
    remarks += _remarks_on_graph(graph, found, max_components)
    if remarks:
        text = "\n".join(f"- {remark}" for remark in remarks)
        warnings.warn(f"the graph was built, but look at this:\n{text}", DataWarning, stacklevel=2)
    return graph


def edge_similarity(
    neighbors: Neighbors,
    similarity: Similarity | PairSimilarity = "binary",
    *,
    temperature: float = 0.5,
    features: "np.ndarray | sparray | spmatrix | None" = None,
) -> np.ndarray:
    """Weight of each link found, before the two directions are joined.

    Parameters
    ----------
    neighbors : Neighbors
    similarity, temperature
        As for :func:`build_graph`. For ``"self_tuning"`` a row that was not searched for (no
        anchor, or not of this block's core) has no scale of its own: it takes the source's.
    features : array or sparse matrix, shape (n_samples, n_features), optional
        What ``neighbors`` number; needed by a callable, and by ``"cosine"`` for neighbours found
        by another metric.

    Returns
    -------
    float32 array, shape (n_queries, n_neighbors)
        Finite and >= 0; 0 where there is no neighbour.

    Examples
    --------
    >>> found = find_neighbors([[0.0], [1.0], [3.0]], n_neighbors=1)
    >>> [f"{weight:.3f}" for weight in edge_similarity(found, "self_tuning").ravel()]
    ['0.368', '0.368', '0.135']
    """
    _check_similarity(similarity, neighbors.metric, temperature)
    linked = neighbors.indices >= 0
    if similarity == "binary" or similarity == "mean":  # noqa: PLR1714 - narrows the type
        return linked.astype(np.float32)
    if similarity == "self_tuning":
        return _self_tuning(neighbors, linked)
    if similarity == "cosine":
        if neighbors.metric == "cosine":
            cosine = np.where(linked, neighbors.distances, 0)
        else:
            cosine = _over_pairs(_pair_cosine, neighbors, linked, features)
        weight = np.exp((np.minimum(cosine, 1) - 1) / np.float32(temperature))
        return _where_linked(linked, weight)
    return _over_pairs(_checked(similarity), neighbors, linked, features)


def _where_linked(linked: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The weights in float32, 0 where there is no link."""
    return np.asarray(np.where(linked, weight, 0), np.float32)


def _self_tuning(neighbors: Neighbors, linked: np.ndarray) -> np.ndarray:
    squared = np.where(linked, neighbors.distances, 0)
    if neighbors.metric == "cosine":
        # within float32's rounding of 1 the rows are duplicates: no scale can be read from that
        squared = np.where(linked & (squared < 1 - 1e-6), 2 - 2 * squared, 0)
    # the 7th link, or the last there is
    last = np.clip(linked.sum(1), 1, _SCALE_NEIGHBOR) - 1
    scale = np.sqrt(squared[np.arange(len(squared)), last])
    # seven duplicates make a scale of 0: far below every other scale serves as well
    apart = scale > 0
    floor = 1e-3 * scale[apart].mean() if apart.any() else 1.0
    scale = np.maximum(scale, floor).astype(np.float32)

    n_known = max(neighbors.rows.max(initial=-1), neighbors.indices.max(initial=-1)) + 1
    scale_of = np.full(n_known, np.nan, np.float32)
    some = linked.any(1)  # a row without links has no scale either
    scale_of[neighbors.rows[some]] = scale[some]
    target_scale = scale_of[np.where(linked, neighbors.indices, 0)] if n_known else squared
    target_scale = np.where(np.isnan(target_scale), scale[:, None], target_scale)
    with np.errstate(over="ignore"):  # beyond float32 the weight is 0
        weight = np.exp(-(squared / scale[:, None]) / target_scale)
    return _where_linked(linked, weight)


def _over_pairs(
    function: PairSimilarity,
    neighbors: Neighbors,
    linked: np.ndarray,
    features: "np.ndarray | sparray | spmatrix | None",
) -> np.ndarray:
    """Values of ``function`` at every link, a batch of pairs at a time; 0 elsewhere."""
    if features is None:
        raise InvalidInputError(
            "this similarity looks at the rows themselves; pass features=, the array that the "
            "neighbours number."
        )
    features = as_rows(features)
    query, place = np.nonzero(linked)
    source, target = neighbors.rows[query], neighbors.indices[query, place]
    values = np.empty(len(source), np.float32)
    step = max(1, _CHUNK_NUMBERS // numbers_per_row(features))
    for start in range(0, len(source), step):
        part = slice(start, start + step)
        values[part] = function(features[source[part]], features[target[part]])
    table = np.zeros(linked.shape, np.float32)
    table[linked] = values
    return table


def _pair_cosine(source: Any, target: Any) -> np.ndarray:
    source, target = source.astype(np.float32), target.astype(np.float32)
    length = np.sqrt(row_products(source, source))
    length *= np.sqrt(row_products(target, target))
    cosine: np.ndarray = row_products(source, target) / np.where(length == 0, 1, length)
    return cosine


def _checked(function: PairSimilarity) -> PairSimilarity:
    """The caller's function, whose answers are checked before they are used."""

    def checked(source: Any, target: Any) -> np.ndarray:
        weight = np.asarray(function(source, target))
        n_pairs = source.shape[0]
        if weight.shape != (n_pairs,):
            raise InvalidInputError(
                f"the similarity callable returned shape {weight.shape} for {n_pairs} pairs, "
                f"expected (n_pairs,)=({n_pairs},)."
            )
        if weight.dtype.kind not in "biuf":
            raise InvalidInputError(
                f"the similarity callable returned dtype {weight.dtype}, expected real numbers."
            )
        with np.errstate(over="ignore"):
            weight = weight.astype(np.float32)
        wrong = ~(np.isfinite(weight) & (weight >= 0))
        if wrong.any():
            raise InvalidInputError(
                f"the similarity callable returned {weight[wrong][0]:.3g} among others for "
                f"{int(wrong.sum())} of {n_pairs} pairs, expected finite values >= 0."
            )
        return weight

    return checked


def _check_similarity(
    similarity: Similarity | PairSimilarity, metric: Metric, temperature: float
) -> None:
    kinds = ("binary", "mean", "self_tuning", "cosine")
    if not callable(similarity) and similarity not in kinds:
        raise InvalidInputError(f"{similarity=} must be one of {', '.join(kinds)}, or a callable.")
    if similarity == "self_tuning" and metric == "inner_product":
        raise InvalidInputError(
            "similarity='self_tuning' needs a distance, which metric='inner_product' has not; "
            "use 'euclidean' or 'cosine'."
        )
    if similarity == "cosine" and not 0 < temperature < np.inf:
        raise InvalidInputError(f"{temperature=} must be > 0 and finite.")


def _remarks_on_features(features: "np.ndarray | csr_array", by_direction: bool) -> list[str]:
    """Repeated rows, constant columns and, where only directions count, rows of zeros."""
    n_samples, n_features = features.shape
    multiplier = np.random.default_rng(0).integers(2**63, size=n_features, dtype=np.uint64) * 2 + 1
    digest = np.empty(n_samples, np.uint64)
    constant = np.ones(n_features, bool)
    step = max(1, _CHUNK_NUMBERS // numbers_per_row(features))
    for start in range(0, n_samples, step):
        chunk = features[start : start + step]
        constant &= _equal_columns(chunk, features[:1])
        digest[start : start + step] = _digest(chunk, multiplier)
    n_repeated = n_samples - len(np.unique(digest))
    n_zero = int((digest == 0).sum()) if by_direction else 0
    remarks = []
    if n_repeated:
        remarks.append(
            f"{n_repeated:,} of {n_samples:,} rows repeat an earlier one: they fill each other's "
            "neighbours; drop the repeats, or raise n_neighbors above their number."
        )
    if constant.any():
        remarks.append(
            f"{int(constant.sum()):,} of {n_features:,} columns are constant: they tell no rows "
            "apart; drop them."
        )
    if n_zero:
        remarks.append(
            f"{n_zero:,} of {n_samples:,} rows are all zeros and have no direction: their cosine "
            "with every row was taken as 0; drop them or use metric='euclidean'."
        )
    return remarks


def _equal_columns(chunk: Any, row: Any) -> np.ndarray:
    """Whether each column has the value of the one row throughout."""
    if isinstance(chunk, np.ndarray):
        return np.asarray((chunk == row).all(0))
    from sklearn.utils.sparsefuncs import min_max_axis

    low, high = min_max_axis(chunk, axis=0)
    return np.asarray((low == high) & (low == row.toarray()[0]))


def _digest(chunk: "np.ndarray | csr_array", multiplier: np.ndarray) -> np.ndarray:
    """One 64-bit number per row, the same for the same values: a sum, so linear and exact.

    Zeros add nothing to it, so a row of zeros has 0, and a sparse row what it has when dense.
    """
    values = chunk if isinstance(chunk, np.ndarray) else chunk.data
    values = np.ascontiguousarray(values + values.dtype.type(0))  # -0.0 and 0.0 are one value
    bits = values.view(f"u{values.dtype.itemsize}")
    half = 4 * values.dtype.itemsize
    # round values differ in their high bits only, which a product never moves down
    terms = (bits ^ (bits >> half)).astype(np.uint64)
    if not isinstance(chunk, np.ndarray):
        from scipy.sparse import csr_array

        terms = csr_array((terms, chunk.indices, chunk.indptr), shape=chunk.shape)
    digest: np.ndarray = terms @ multiplier
    return digest


def _remarks_on_graph(graph: SimilarityGraph, found: Neighbors, max_components: int) -> list[str]:
    """Rows without an edge among those searched for, and components of more than one row."""
    n_samples, remarks = graph.n_samples, []
    degree = graph.weight.crow_indices().diff().numpy()
    n_isolated = int((degree[found.rows] == 0).sum())
    if n_isolated:
        remarks.append(
            f"{n_isolated:,} of {len(found.rows):,} rows searched for have no edge, as all their "
            "weights are 0 (or too few rows were found): no cut depends on them; raise "
            "n_neighbors, the temperature or recall."
        )
    if graph.n_components > 1:
        # rows that no anchor found are without edges by design
        size = np.bincount(graph.components.numpy())
        size = np.sort(size[size > 1])
        if len(size) > max_components:
            remarks.append(
                f"the graph falls into {len(size):,} components, the largest of {size[-1]:,} and "
                f"the smallest of {size[0]:,} of {n_samples:,} rows: a cut between components "
                "costs nothing; raise n_neighbors if they belong together."
            )
    return remarks
