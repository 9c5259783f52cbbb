"""The nearest other rows of every row, found exactly or by inverted lists."""

import logging
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from prcut.errors import InvalidInputError, check_positive_int
from prcut.graph.exact_search import drop_own, remeasure, search_exactly
from prcut.graph.inverted_lists import (
    TUNING_QUERIES,
    Lists,
    pair_work,
    plan_lists,
    search_lists,
    tune_candidates,
    tune_probe,
)
from prcut.graph.rows import Vectors, as_rows, as_vectors, project

if TYPE_CHECKING:
    from scipy.sparse import sparray, spmatrix

Metric = Literal["euclidean", "cosine", "inner_product"]

_LOG = logging.getLogger(__name__)

# columns that rows are projected on, where they have at least twice as many
_COLUMNS = 96


class Neighbors(NamedTuple):
    """The result of :func:`find_neighbors`: the neighbours of every query, nearest first.

    Attributes
    ----------
    rows : int64 array, shape (n_queries,)
        Row numbers of the queries.
    indices : int64 array, shape (n_queries, n_neighbors)
        Rows found, never the query itself; -1 where the lists held too few.
    distances : float32 array, shape (n_queries, n_neighbors)
        Euclidean: the **squared** distance, exactly 0 for a duplicate, infinity where there is no
        neighbour. Cosine and inner product: the **similarity** itself, larger is nearer, minus
        infinity where there is no neighbour.
    recall : float
        Fraction of the true neighbours found: 1.0 for an exact search, otherwise a lower estimate
        (mean - 2 standard errors) from a sample of the queries.
    n_lists, n_probe : int
        Number of inverted lists, and of those that each query adds to what its block reads; both 0
        for an exact search.
    metric : {"euclidean", "cosine", "inner_product"}
        Metric of ``distances``.
    """

    rows: np.ndarray
    indices: np.ndarray
    distances: np.ndarray
    recall: float = 1.0
    n_lists: int = 0
    n_probe: int = 0
    metric: Metric = "euclidean"

    def nearest(self, n_neighbors: int) -> "Neighbors":
        """Return the nearest of the neighbours only; their recall is no lower than that of all."""
        return self._replace(
            indices=self.indices[:, :n_neighbors], distances=self.distances[:, :n_neighbors]
        )


def find_neighbors(
    features: "ArrayLike | sparray | spmatrix",
    n_neighbors: int = 15,
    *,
    rows: ArrayLike | None = None,
    metric: Metric = "euclidean",
    recall: float = 0.98,
    seed: int = 0,
) -> Neighbors:
    """Find the nearest other rows of every row, or of some.

    Few rows or few queries are searched exactly, and so are sparse features, which no list can
    hold. Otherwise the rows go to inverted lists, those of many columns projected on their main
    directions: there more candidates are found than wanted, and measured in all columns. A sample
    of exact searches shows how many candidates, and how many lists, the wanted ``recall`` takes; if
    that is no faster than the exact search, the search is exact.

    Parameters
    ----------
    features : float16, float32 or float64 array, shape (n_samples, n_features)
        In memory or memory-mapped. C-contiguous float32 is read in place, others are converted to
        float32 in chunks. Or a SciPy sparse matrix or array of any format, of floats, integers or
        booleans: it is never made dense.
    n_neighbors : int
        Less than ``n_samples``. A duplicate of a row is a neighbour like any other.
    rows : integer array, shape (n_queries,), optional
        Rows whose neighbours are searched, all by default: see :func:`draw_anchors`. Neighbours are
        searched among all rows.
    metric : {"euclidean", "cosine", "inner_product"}
        The cosine of a row of zeros is 0 with every row.
    recall : float
        Fraction of the true neighbours to find, in (0, 1]; 1 asks for the exact search.
    seed : int
        Seed of projection, lists and sample: on one machine the same seed finds the same rows.

    Returns
    -------
    Neighbors

    Examples
    --------
    >>> found = find_neighbors([[0.0], [1.0], [3.0], [3.5]], n_neighbors=2)
    >>> found.indices.tolist()
    [[1, 2], [0, 2], [3, 1], [2, 1]]
    >>> found.distances.tolist()
    [[1.0, 9.0], [1.0, 4.0], [0.25, 4.0], [0.25, 6.25]]
    """
    vectors = as_vectors(as_rows(features), metric)
    n_samples = vectors.n_samples
    queries = _check_rows(rows, n_samples)
    n_neighbors = check_positive_int("n_neighbors", n_neighbors)
    if n_neighbors >= n_samples:
        raise InvalidInputError(
            f"{n_neighbors=} must be < {n_samples=}; lower n_neighbors or pass a precomputed graph."
        )
    if not 0 < recall <= 1:
        raise InvalidInputError(f"{recall=} must lie in (0, 1]; 1 asks for the exact search.")

    if recall < 1 and isinstance(vectors.features, np.ndarray):
        found = _search_by_lists(vectors, queries, n_neighbors, metric, recall, seed)
        if found is not None:
            return found
    distances, indices = search_exactly(vectors, queries, n_neighbors + 1)
    if not vectors.by_product:
        distances, indices = remeasure(vectors, queries, indices)
    distances, indices = drop_own(queries, distances, indices)
    return Neighbors(queries, indices, distances, metric=metric)


def _search_by_lists(
    vectors: Vectors,
    queries: np.ndarray,
    n_neighbors: int,
    metric: Metric,
    recall: float,
    seed: int,
) -> Neighbors | None:
    """Search by inverted lists, or return None where the exact search is no slower."""
    n_samples, n_features = vectors.features.shape
    n_lists = plan_lists(n_samples, len(queries))
    if n_lists == 0:
        return None
    rng = np.random.default_rng(seed)
    sample = np.sort(rng.choice(len(queries), min(TUNING_QUERIES, len(queries)), replace=False))
    tuning = queries[sample]
    _, true = drop_own(tuning, *search_exactly(vectors, tuning, n_neighbors + 1))
    compact, n_candidates, kept = vectors, n_neighbors, np.ones(true.shape, bool)
    if n_features >= 2 * _COLUMNS:
        compact = project(vectors, _COLUMNS, rng)
        # half of what may be lost is lost here, the rest in lists that are not read
        tuned = tune_candidates(compact, tuning, true, (1 + recall) / 2)
        if tuned is None:
            compact = vectors
        else:
            n_candidates, true, kept = tuned
    lists = Lists.fill(compact, queries, n_lists, rng)
    n_probe, measured, n_read = tune_probe(lists, sample, true, kept, recall)
    tuned_to = n_probe, n_lists, n_candidates, measured
    _LOG.debug("%d of %d lists and %d candidates give recall >= %.4f", *tuned_to)
    work = n_read * pair_work(compact.features.shape[1]) + n_candidates * n_features / 2
    # the exact search copies no lists, and misses nothing
    if n_probe == 0 or work >= 0.8 * n_samples * pair_work(n_features):
        return None
    distances, indices = search_lists(
        lists, vectors, n_neighbors, n_probe=n_probe, n_candidates=n_candidates
    )
    return Neighbors(queries, indices, distances, measured, n_lists, n_probe, metric)


def draw_anchors(n_samples: int, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Draw at least one row whose neighbours are searched: without replacement, sorted."""
    n_samples = check_positive_int("n_samples", n_samples)
    if not 0 < fraction <= 1:
        raise InvalidInputError(f"{fraction=} of the rows must lie in (0, 1].")
    if fraction == 1:
        return np.arange(n_samples)
    size = max(1, round(fraction * n_samples))
    return np.sort(rng.choice(n_samples, size, replace=False, shuffle=False))


def _check_rows(rows: ArrayLike | None, n_samples: int) -> np.ndarray:
    if rows is None:
        return np.arange(n_samples)
    queries = np.asarray(rows)
    if queries.ndim != 1 or queries.dtype.kind not in "iu":
        raise InvalidInputError(
            f"rows have shape {queries.shape} and dtype {queries.dtype}, "
            "expected integers of shape (n_queries,)."
        )
    if queries.size and not 0 <= queries.min() <= queries.max() < n_samples:
        raise InvalidInputError(
            f"rows lie in [{queries.min()}, {queries.max()}], expected rows in [0, {n_samples=})."
        )
    return queries.astype(np.int64, copy=False)
