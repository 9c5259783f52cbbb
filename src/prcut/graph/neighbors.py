"""The nearest other rows of every row, found exactly or by inverted lists.

The exact search multiplies a block of queries with a block of rows. The lists are tuned to the
recall that is asked for. Queries that are near one another read the same lists together, as one
product of matrices: per distance that took a fifth of the time of FAISS's IVF-Flat, which reads
lists query by query. Rows of few columns go to FAISS: there a block reads more for other queries
than it saves.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from prcut.errors import InvalidInputError, check_positive_int
from prcut.graph.rows import (
    CHUNK_NUMBERS,
    Vectors,
    as_rows,
    as_vectors,
    numbers_per_row,
    project,
    row_products,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array, sparray, spmatrix

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

    def nearest(self, n_neighbors: int) -> Neighbors:
        """Return the nearest of the neighbours only; their recall is no lower than that of all."""
        return self._replace(
            indices=self.indices[:, :n_neighbors], distances=self.distances[:, :n_neighbors]
        )


def find_neighbors(
    features: ArrayLike | sparray | spmatrix,
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
    queries = np.arange(n_samples) if rows is None else np.asarray(rows)
    if queries.ndim != 1 or queries.dtype.kind not in "iu":
        raise InvalidInputError(
            f"rows have shape {queries.shape} and dtype {queries.dtype}, "
            "expected integers of shape (n_queries,)."
        )
    if queries.size and not 0 <= queries.min() <= queries.max() < n_samples:
        raise InvalidInputError(
            f"rows lie in [{queries.min()}, {queries.max()}], expected rows in [0, {n_samples=})."
        )
    queries = queries.astype(np.int64, copy=False)
    n_neighbors = check_positive_int("n_neighbors", n_neighbors)
    if n_neighbors >= n_samples:
        raise InvalidInputError(
            f"{n_neighbors=} must be < {n_samples=}; lower n_neighbors or pass a precomputed graph."
        )
    if not 0 < recall <= 1:
        raise InvalidInputError(f"{recall=} must lie in (0, 1]; 1 asks for the exact search.")

    if recall < 1 and isinstance(vectors.features, np.ndarray):
        by_lists = _search_by_lists(vectors, queries, n_neighbors, metric, recall, seed)
        if by_lists is not None:
            return by_lists
    found = search_exactly(vectors, queries, n_neighbors + 1)
    if not vectors.by_product:
        found = remeasure(vectors, queries, found[1])
    distances, indices = drop_own(queries, *found)
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
    _LOG.debug("%d of %d lists give recall >= %.4f", n_probe, n_lists, measured)
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
    if not 0 < fraction <= 1:
        raise InvalidInputError(f"{fraction=} of the rows must lie in (0, 1].")
    if fraction == 1:
        return np.arange(n_samples)
    size = max(1, round(fraction * n_samples))
    return np.sort(rng.choice(n_samples, size, replace=False, shuffle=False))


# -- the exact search ---------------------------------------------------------------------------

# an exact search holds the table of this many queries and rows
_BLOCK_QUERIES, _BLOCK_ROWS = 1024, 16_384
# columns in a group from which a selection by groups is faster
_MIN_GROUP = 3


def search_exactly(
    vectors: Vectors, queries: np.ndarray, n_found: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and indices of the nearest rows, the query itself among them."""
    distances = np.full((len(queries), n_found), vectors.worst, np.float32)
    indices = np.full((len(queries), n_found), -1, np.int64)
    for first, chunk in vectors.chunks(_BLOCK_ROWS):
        for start in range(0, len(queries), _BLOCK_QUERIES):
            block = slice(start, start + _BLOCK_QUERIES)
            query = vectors.take(queries[block])
            near = find_nearest(query, chunk, min(n_found, chunk.shape[0]), vectors.by_product)
            joined = np.hstack([distances[block], near[0]])
            numbers = np.hstack([indices[block], near[1] + first])
            distances[block], indices[block] = _sort(vectors, joined, numbers, n_found)
    return distances, indices


def remeasure(
    vectors: Vectors, queries: np.ndarray, indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Measure the rows found, -1 for none, one pair at a time; return them nearest first.

    A product of matrices leaves duplicates about 1e-7 of their squared norm apart, each at another
    distance: no scale can be read from that. Here they are exactly 0 apart.
    """
    distances = np.empty(indices.shape, np.float32)
    step = max(1, CHUNK_NUMBERS // (4 * indices.shape[1] * numbers_per_row(vectors.features)))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        distances[block] = _measure(vectors, queries[block], indices[block])
    distances[indices < 0] = vectors.worst
    return _sort(vectors, distances, indices, indices.shape[1])


def _sort(
    vectors: Vectors, distances: np.ndarray, indices: np.ndarray, n_found: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest, nearest first; of equal distances the order is kept."""
    order = np.argsort(-distances if vectors.by_product else distances, 1, kind="stable")
    nearest = order[:, :n_found]
    return np.take_along_axis(distances, nearest, 1), np.take_along_axis(indices, nearest, 1)


def _measure(vectors: Vectors, queries: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Compute the distance, or product, of every query and each of its rows."""
    import faiss

    source = vectors.take(queries)
    if not isinstance(source, np.ndarray):
        target = vectors.take(indices.ravel())
        source = vectors.take(np.repeat(queries, indices.shape[1]))
        if not vectors.by_product:
            source = target = target - source
        return row_products(source, target).reshape(indices.shape)
    if np.may_share_memory(vectors.take(slice(1)), vectors.features):  # all are read in place
        target, place = vectors.take(slice(None)), np.maximum(indices, 0)
    else:
        distinct, place = np.unique(indices, return_inverse=True)
        target = vectors.take(distinct)
    place = np.ascontiguousarray(place.reshape(indices.shape), np.int64)
    distances = np.empty(indices.shape, np.float32)
    # a fifth of the time of NumPy's, which copies every pair
    kind = "inner_products" if vectors.by_product else "L2sqr"
    measure = getattr(faiss, f"fvec_{kind}_by_idx")
    arrays = (faiss.swig_ptr(array) for array in (distances, source, target, place))
    measure(*arrays, source.shape[1], *indices.shape)
    return distances


def drop_own(
    queries: np.ndarray, distances: np.ndarray, indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Drop one column: the query's own number, or the last where that was not found.

    Its own number need not come first, nor be found at all: duplicates may come before it.
    """
    drop = indices == queries[:, None]
    drop[:, -1] |= ~drop.any(1)
    shape = (len(queries), indices.shape[1] - 1)
    return distances[~drop].reshape(shape), indices[~drop].reshape(shape)


def find_nearest(
    queries: np.ndarray | csr_array,
    rows: np.ndarray | csr_array,
    n_found: int,
    by_product: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Search exactly without an index, by NumPy's product and torch's selection.

    ``faiss.knn`` took 4 times as long at 784 features, 3 times at 256, 1.3 times at 64 and 0.7
    times at 16 (FAISS 1.15's wheel, 2 cores).
    """
    from sklearn.utils.extmath import safe_sparse_dot

    # of sparse rows scikit-learn 1.9 fills the table 3 times as fast as SciPy 1.17
    table = safe_sparse_dot(queries if by_product else -2 * queries, rows.T, dense_output=True)
    if not by_product:
        table += row_products(rows, rows)
    values, indices = _select(torch.from_numpy(table), n_found, by_product)
    distances = values.numpy()
    if not by_product:
        distances += row_products(queries, queries)[:, None]
    return distances, indices.numpy()


def _select(table: Tensor, n_found: int, largest: bool) -> tuple[Tensor, Tensor]:
    """Return values and columns of the best of every row, best first: see ``torch.topk``.

    The best values lie in the groups of columns whose best values are best: topk, at many times the
    cost of a maximum per value, need only see the maxima, and then the values of these groups.
    """
    n_columns = table.shape[1]
    size = math.isqrt(n_columns // n_found)
    if size < _MIN_GROUP:
        values, columns = table.topk(n_found, dim=1, largest=largest)
        return values, columns
    step = n_columns // size
    groups = table[:, : size * step].unflatten(1, (size, step))
    best = groups.amax(1) if largest else groups.amin(1)
    chosen = best.topk(n_found, dim=1, largest=largest, sorted=False).indices
    columns = (chosen[:, None] + step * torch.arange(size)[:, None]).flatten(1)
    rest = torch.arange(size * step, n_columns).expand(len(table), -1)
    columns = torch.cat([columns, rest], 1)
    values, place = table.gather(1, columns).topk(n_found, dim=1, largest=largest)
    return values, columns.gather(1, place)


# -- inverted lists -----------------------------------------------------------------------------

# up to here, 10,000 rows each with each, an exact search takes about a second
_EXACT_DISTANCES = 10**8
# FAISS asks for 39 training rows per list; more rows and iterations did not raise the recall
_TRAINING_ROWS_PER_LIST = 40
_TRAINING_ITERATIONS = 5
TUNING_QUERIES = 256
"""Queries searched exactly to measure the recall."""

# queries that read lists together: more share less, fewer make products slow
_QUERIES_TOGETHER = 128
FEW_COLUMNS = 24
"""Columns below which every query reads its own lists: at 16, a million rows took 50 s, not 115."""

# lists nearest to a query, by which queries are put in order
_ORDERING_LISTS = 3
# candidates per neighbour from which the projection does not pay
_MOST_CANDIDATES = 8
_CHUNK_ROWS = 16_384


def pair_work(n_features: int) -> float:
    """Estimate the work to compare two rows, in nanoseconds of one core: selection and product."""
    return 4 + n_features / 37


def plan_lists(n_samples: int, n_queries: int) -> int:
    """Choose the number of lists with the least work, or 0 where the exact search has less."""
    exact = n_samples * n_queries
    if exact <= _EXACT_DISTANCES:
        return 0

    def work(n_lists: int) -> float:
        train = _TRAINING_ITERATIONS * _TRAINING_ROWS_PER_LIST * n_lists**2
        assign = (n_samples + 2 * n_queries) * n_lists
        tune = min(TUNING_QUERIES, n_queries) * n_samples
        # 30 neighbours at recall 0.98 took 2.3 to 4.2 / √n_lists of the rows on images
        return train + assign + tune + 2 / math.sqrt(n_lists) * exact

    choices = [2**power for power in range(4, 17) if 2**power * _TRAINING_ROWS_PER_LIST < n_samples]
    n_lists = min(choices, key=work, default=0)
    return n_lists if n_lists and work(n_lists) < exact else 0


@dataclass(frozen=True)
class Lists:
    """Rows sorted by the nearest of some centroids, and queries in blocks that lie together.

    The largest product of a query is with the nearest row: for distances every row x has the
    further column -|x|²/2, and every query the further column 1.
    """

    vectors: Vectors
    queries: np.ndarray  # row numbers, block by block
    order: np.ndarray  # positions of the queries among those given
    centroids: np.ndarray
    rows: np.ndarray  # row numbers, list by list
    starts: np.ndarray  # of every list, and the end of the last
    table: Any  # the vectors, list by list: an array, or FAISS's index
    n_together: int  # queries that read the same lists

    @classmethod
    def fill(
        cls, vectors: Vectors, queries: np.ndarray, n_lists: int, rng: np.random.Generator
    ) -> Lists:
        """Train centroids on a sample of the rows; sort all rows, and the queries, by them."""
        import faiss

        kmeans: Any = faiss.Kmeans(
            vectors.features.shape[1],
            n_lists,
            niter=_TRAINING_ITERATIONS,
            max_points_per_centroid=_TRAINING_ROWS_PER_LIST,
            seed=int(rng.integers(2**31)),
            # otherwise the longest centroid would have the largest product with every row
            spherical=vectors.by_product,
        )
        sample = rng.choice(vectors.n_samples, _TRAINING_ROWS_PER_LIST * n_lists, replace=False)
        kmeans.train(vectors.take(np.sort(sample)))
        index: Any = None
        if kmeans.d < FEW_COLUMNS:
            metric = faiss.METRIC_INNER_PRODUCT if vectors.by_product else faiss.METRIC_L2
            index = faiss.IndexIVFFlat(kmeans.index, kmeans.d, kmeans.k, metric)
            index.is_trained = True
        near = np.empty((vectors.n_samples, _ORDERING_LISTS), np.int64)
        for start, chunk in vectors.chunks(_CHUNK_ROWS):
            found = find_nearest(chunk, kmeans.centroids, _ORDERING_LISTS, vectors.by_product)[1]
            near[start : start + len(chunk)] = found
            if index is not None:
                home = np.ascontiguousarray(found[:, 0])
                index.add_core(len(chunk), faiss.swig_ptr(chunk), None, faiss.swig_ptr(home))
        rows = np.argsort(near[:, 0], kind="stable")
        starts = np.searchsorted(near[rows, 0], np.arange(n_lists + 1))
        centroids = _with_norm(kmeans.centroids, vectors.by_product)
        if index is not None:
            order = np.arange(len(queries))
            return cls(vectors, queries, order, centroids, rows, starts, index, 1)
        order = np.lexsort(near[queries].T[::-1])
        table = np.empty((len(rows), centroids.shape[1]), np.float32)
        for start in range(0, len(rows), _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            table[part] = _with_norm(vectors.take(rows[part]), vectors.by_product)
        ordered = queries[order]
        return cls(vectors, ordered, order, centroids, rows, starts, table, _QUERIES_TOGETHER)

    @property
    def most_read(self) -> int:
        """Largest number of lists that a query reads."""
        return max(16, len(self.centroids) // 8)

    def take_queries(self, block: slice) -> np.ndarray:
        """Return the vectors of a block of queries, with the further column if they have one."""
        taken = np.asarray(self.vectors.take(self.queries[block]))
        return taken if self.vectors.by_product else np.insert(taken, taken.shape[1], 1, 1)

    def candidates(self, block: slice, n_probe: int, n_found: int) -> np.ndarray:
        """Return the nearest rows in all lists that the block reads, -1 where they hold too few."""
        if self.n_together == 1:
            self.table.nprobe = n_probe
            return np.asarray(self.table.search(self.vectors.take(self.queries[block]), n_found)[1])
        queries = self.take_queries(block)
        read = np.unique(find_nearest(queries, self.centroids, n_probe, by_product=True)[1])
        parts = [slice(self.starts[number], self.starts[number + 1]) for number in read]
        table = np.concatenate([self.table[part] for part in parts])
        n_near = min(n_found, len(table))
        step = max(1, CHUNK_NUMBERS // len(table))
        rows = np.concatenate([self.rows[part] for part in parts])
        found = np.full((len(queries), n_found), -1)
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            _, place = find_nearest(queries[some], table, n_near, by_product=True)
            found[some, :n_near] = rows[place]
        return found


def _with_norm(vectors: np.ndarray, by_product: bool) -> np.ndarray:
    if by_product:
        return vectors
    return np.column_stack([vectors, row_products(vectors, vectors) / -2])


def tune_candidates(
    vectors: Vectors, queries: np.ndarray, true: np.ndarray, recall: float
) -> tuple[int, np.ndarray, np.ndarray] | None:
    """Find how many of the nearest rows in projected vectors hold the true neighbours.

    Return this number, the true neighbours again, and which of them are kept; or None where the
    recall takes too many.
    """
    most = min(_MOST_CANDIDATES * true.shape[1], vectors.n_samples - 1)
    _, near = drop_own(queries, *search_exactly(vectors, queries, most + 1))
    others, _ = remeasure(vectors, queries, near)
    distances, true = remeasure(vectors, queries, true)
    if vectors.by_product:
        others, distances = -others, -distances
    # rows strictly nearer: duplicates of a neighbour do as well as it does
    rank = torch.searchsorted(torch.from_numpy(others), torch.from_numpy(distances)).numpy()
    enough, _ = _fewest(rank, most, recall)
    n_candidates = max(enough, true.shape[1])
    return (n_candidates, true, rank < n_candidates) if enough else None


def tune_probe(
    lists: Lists, sample: np.ndarray, true: np.ndarray, kept: np.ndarray, recall: float
) -> tuple[int, float, float]:
    """Find the fewest lists to read for the recall, a lower estimate of it, and the rows read.

    ``true`` are the true neighbours of a ``sample`` of the queries; those that are not ``kept``
    are lost whatever is read. The others are found if a query of the same block reads their list.
    So the rank of that list gives the recall of every number at once, without a trial search. The
    number is 0 where none suffices.
    """
    size, n_lists = len(sample), len(lists.centroids)
    home = np.empty(len(lists.rows), np.int64)  # list of every row
    home[lists.rows] = np.repeat(np.arange(n_lists), np.diff(lists.starts))
    position = np.argsort(lists.order)[sample]
    first_read = np.full((size, n_lists), lists.most_read)
    together = lists.n_together
    for number, start in enumerate(position // together * together):
        block = lists.take_queries(slice(start, start + together))
        near = find_nearest(block, lists.centroids, lists.most_read, by_product=True)[1]
        for place in reversed(range(lists.most_read)):
            first_read[number, near[:, place]] = place
    rank = np.where(kept, np.take_along_axis(first_read, home[true], 1), lists.most_read)
    n_probe, lower = _fewest(rank, lists.most_read, recall)
    n_read = ((first_read < n_probe) @ np.diff(lists.starts)).mean()
    return n_probe, lower, float(n_read)


def _fewest(rank: np.ndarray, most: int, recall: float) -> tuple[int, float]:
    """Return the least number, up to ``most``, with enough ranks below it, and its recall.

    The recall is a lower estimate: the mean over the queries less two standard errors. Both are 0
    where no number suffices.
    """
    count = np.stack([np.bincount(ranks, minlength=most + 1) for ranks in rank])
    found = count.cumsum(1)[:, :most] / rank.shape[1]
    lower = found.mean(0) - 2 * found.std(0) / math.sqrt(len(rank))
    number = int(np.argmax(lower >= recall))
    return (number + 1, float(lower[number])) if lower[number] >= recall else (0, 0.0)


def search_lists(
    lists: Lists, vectors: Vectors, n_neighbors: int, *, n_probe: int, n_candidates: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and indices of the nearest candidates, as ``vectors`` measure them."""
    distances = np.empty((len(lists.queries), n_neighbors), np.float32)
    indices = np.empty((len(lists.queries), n_neighbors), np.int64)
    step = _CHUNK_ROWS if lists.n_together == 1 else lists.n_together
    for start in range(0, len(lists.queries), step):
        block = slice(start, start + step)
        place = lists.order[block]
        own = lists.queries[block]
        found = remeasure(vectors, own, lists.candidates(block, n_probe, n_candidates + 1))
        found = drop_own(own, *(table[:, : n_neighbors + 1] for table in found))
        distances[place], indices[place] = found
    return distances, indices
