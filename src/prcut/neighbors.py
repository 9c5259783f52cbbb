"""The nearest other rows of every row, exact or by inverted lists tuned to a wanted recall."""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from prcut.errors import InvalidInputError
from prcut.validation import check_positive_int

if TYPE_CHECKING:
    from scipy.sparse import csr_array, sparray, spmatrix

__all__ = [
    "Metric",
    "Neighbors",
    "as_rows",
    "draw_anchors",
    "find_neighbors",
    "numbers_per_row",
    "row_products",
]

Metric = Literal["euclidean", "cosine", "inner_product"]

_LOG = logging.getLogger(__name__)

# up to here, 10,000 rows each with each, an exact search takes seconds at most
_EXACT_DISTANCES = 10**8
# FAISS asks for 39 training rows per list; more, and more iterations, bought no recall
_TRAINING_ROWS_PER_LIST = 40
_TRAINING_ITERATIONS = 5
# queries searched exactly to tell the recall of every n_probe
_TUNING_QUERIES = 256
# rows go to float32 this many numbers at a time (64 MB)
_CHUNK_NUMBERS = 2**24
_QUERY_CHUNK = 4096
# an exact search holds the table of this many queries and rows
_EXACT_QUERIES, _EXACT_ROWS = 1024, 16_384
# what FAISS allows on a GPU, for n_probe and for the rows found
_MAX_GPU_RESULTS = 2048


class Neighbors(NamedTuple):
    """What :func:`find_neighbors` found for each of its queries, nearest first.

    Attributes
    ----------
    rows : int64 array, shape (n_queries,)
        The rows searched for.
    indices : int64 array, shape (n_queries, n_neighbors)
        Rows found, never the query's own; -1 where its lists held too few.
    distances : float32 array, shape (n_queries, n_neighbors)
        What ``metric`` measures. Euclidean: the **squared** distance, exactly 0 for a duplicate,
        infinity where there is none. Cosine and inner product: the **similarity** itself, larger
        is nearer, minus infinity where there is none.
    recall : float
        Share of the true neighbours found: 1.0 for an exact search, else the lower end (mean - 2
        standard errors) of what was measured on a sample of the queries.
    n_lists, n_probe : int
        Inverted lists made, and read for each query; both 0 for an exact search.
    metric : {"euclidean", "cosine", "inner_product"}
        Of ``distances``.
    """

    rows: np.ndarray
    indices: np.ndarray
    distances: np.ndarray
    recall: float = 1.0
    n_lists: int = 0
    n_probe: int = 0
    metric: Metric = "euclidean"


def find_neighbors(
    features: "ArrayLike | sparray | spmatrix",
    n_neighbors: int = 15,
    *,
    rows: ArrayLike | None = None,
    metric: Metric = "euclidean",
    recall: float = 0.98,
    seed: int = 0,
) -> Neighbors:
    """Nearest other rows of every row, or of some.

    Few rows, or few queries, are searched exactly. Others go to inverted lists (FAISS's IVF-Flat),
    of which each query reads as many as a sample of exact searches says that ``recall`` needs;
    where that would be no faster than the exact search, the exact search is made. So it is for
    sparse features, which no list can hold.

    Parameters
    ----------
    features : float16, float32 or float64 array, shape (n_samples, n_features)
        In memory or memory-mapped. C-contiguous float32 is read in place, others go to float32
        in chunks. Or a SciPy sparse matrix or array of any format, of floats, integers or
        booleans: it is never made dense.
    n_neighbors : int
        Below ``n_samples``. A duplicate of a row is a neighbour like any other.
    rows : integer array, shape (n_queries,), optional
        Rows to search for, all by default: see :func:`draw_anchors`. All rows can be found.
    metric : {"euclidean", "cosine", "inner_product"}
        The cosine of a row of zeros is 0 with every row.
    recall : float
        Share of the true neighbours that must be found, in (0, 1]; 1 asks for the exact search.
    seed : int
        Of the lists and the sample. The same seed finds the same rows again on one machine.

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
    vectors = _check_features(as_rows(features), metric)
    n_samples, n_features = vectors.features.shape
    queries = _check_rows(rows, n_samples)
    n_neighbors = check_positive_int("n_neighbors", n_neighbors)
    if n_neighbors >= n_samples:
        raise InvalidInputError(
            f"{n_neighbors=} must be < {n_samples=}; lower n_neighbors or pass a precomputed graph."
        )
    if not 0 < recall <= 1:
        raise InvalidInputError(f"{recall=} must lie in (0, 1]; 1 asks for the exact search.")

    exactly = recall == 1 or not isinstance(vectors.features, np.ndarray)
    n_lists = 0 if exactly else _plan_lists(n_samples, n_features, len(queries))
    if n_lists:
        rng = np.random.default_rng(seed)
        index = _train_lists(vectors, n_lists, rng)
        n_probe, measured = _tune_probe(index, vectors, queries, n_neighbors, recall, rng)
        _LOG.debug("%d of %d lists give recall >= %.4f", n_probe, n_lists, measured)
        work = _list_work(n_samples, n_features, len(queries), n_lists, n_probe / n_lists)
        if work < n_samples * len(queries):
            index.nprobe = n_probe
            distances, indices = _search_lists(index, vectors, queries, n_neighbors)
            return Neighbors(queries, indices, distances, measured, n_lists, n_probe, metric)
    distances, indices = _search_exactly(vectors, queries, n_neighbors + 1)
    if not vectors.by_product:
        distances, indices = _measure_again(vectors, queries, distances, indices)
    distances, indices = _without_own(queries, distances, indices)
    return Neighbors(queries, indices, distances, metric=metric)


def draw_anchors(n_samples: int, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Rows to search neighbours for: a uniform sample without replacement, sorted.

    Parameters
    ----------
    n_samples : int
    fraction : float
        In (0, 1]; at least one row is drawn.
    rng : numpy.random.Generator

    Returns
    -------
    int64 array, shape (max(1, round(fraction × n_samples)),)

    Examples
    --------
    >>> draw_anchors(10, 0.3, np.random.default_rng(0)).tolist()
    [5, 6, 9]
    """
    n_samples = check_positive_int("n_samples", n_samples)
    if not 0 < fraction <= 1:
        raise InvalidInputError(f"{fraction=} of the rows must lie in (0, 1].")
    if fraction == 1:
        return np.arange(n_samples)
    size = max(1, round(fraction * n_samples))
    return np.sort(rng.choice(n_samples, size, replace=False, shuffle=False))


def as_rows(features: Any) -> "np.ndarray | csr_array":
    """Features to take rows from: an array, or a ``csr_array`` that names no entry twice."""
    from scipy.sparse import csr_array, issparse

    if not issparse(features):
        return np.asarray(features)
    rows = csr_array(features)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the caller's matrix stays as it is
        rows.sum_duplicates()
    return rows


def numbers_per_row(features: "np.ndarray | csr_array") -> int:
    """Numbers that a row holds at most; in a sparse one those of the columns count too."""
    if isinstance(features, np.ndarray):
        return int(features.shape[1])
    return max(1, 2 * int(np.diff(features.indptr).max(initial=0)))


def row_products(source: "np.ndarray | csr_array", target: "np.ndarray | csr_array") -> np.ndarray:
    """Inner product of every row with the same row of ``target``, shape (n_rows,)."""
    if isinstance(source, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", source, target))
    return np.asarray(source.multiply(target).sum(1))


@dataclass(frozen=True)
class _Vectors:
    """The rows as FAISS wants them, or sparse ones as csr_array, made a chunk at a time."""

    features: "np.ndarray | csr_array"
    by_product: bool = False  # compared by inner product, not by distance
    unit_length: bool = False
    # a product of matrices loses the distances of rows that all lie far from 0: move them there
    origin: np.ndarray | None = None
    # but sparse rows would be sparse no more: those are multiplied in float64
    sparse_dtype: type = np.float32

    @property
    def n_samples(self) -> int:
        return int(self.features.shape[0])

    @property
    def faiss_metric(self) -> int:
        import faiss

        kind: int = faiss.METRIC_INNER_PRODUCT if self.by_product else faiss.METRIC_L2
        return kind

    def take(self, rows: slice | np.ndarray) -> "np.ndarray | csr_array":
        """Rows as C-contiguous float32: a view for a slice of what is so already."""
        taken = self.features[rows]
        if not isinstance(taken, np.ndarray):
            return self._convert_sparse(taken)
        if self.origin is not None:
            taken = taken - self.origin
        with np.errstate(over="ignore"):  # what leaves float32's range is refused by its name
            taken = np.ascontiguousarray(taken, np.float32)
        if self.unit_length:
            length = np.sqrt(np.einsum("ij,ij->i", taken, taken))[:, None]
            taken = taken / np.where(length == 0, 1, length)
        return taken

    def _convert_sparse(self, taken: "csr_array") -> "csr_array":
        with np.errstate(over="ignore"):
            taken = taken.astype(self.sparse_dtype, copy=False)
        if not self.unit_length:
            return taken
        from sklearn.preprocessing import normalize

        return normalize(taken)

    def chunks(self, most: int | None = None) -> Iterator[tuple[int, "np.ndarray | csr_array"]]:
        """The first row of each chunk, and the chunk, of ``most`` rows."""
        step = max(1, _CHUNK_NUMBERS // numbers_per_row(self.features))
        step = min(step, most) if most else step
        for start in range(0, self.n_samples, step):
            yield start, self.take(slice(start, start + step))


def _check_features(features: "np.ndarray | csr_array", metric: Metric) -> _Vectors:
    if metric not in ("euclidean", "cosine", "inner_product"):
        raise InvalidInputError(f"{metric=} must be 'euclidean', 'cosine' or 'inner_product'.")
    is_sparse = not isinstance(features, np.ndarray)
    counts = is_sparse and features.dtype.kind in "biu"
    if not counts and features.dtype not in (np.float16, np.float32, np.float64):
        raise InvalidInputError(
            f"features have dtype {features.dtype}, expected float16, float32 or float64; "
            "use features.astype('float32')."
        )
    if features.ndim != 2 or features.shape[1] == 0:
        raise InvalidInputError(
            f"features have shape {features.shape}, expected (n_samples, n_features)."
        )
    n_samples, n_features = features.shape
    column_sum, total = np.zeros(n_features), 0.0
    n_not_finite = n_too_large = 0
    # twice a sum of two squared norms bounds a squared distance
    limit = np.finfo(np.float32).max / 4
    for _, chunk in _Vectors(features).chunks():
        squared_norm = row_products(chunk, chunk)
        wrong = ~(squared_norm <= limit)
        if wrong.any():
            double = chunk[wrong].astype(np.float64)  # where no square of a float32 is infinite
            finite = np.isfinite(row_products(double, double))
            n_not_finite += int((~finite).sum())
            n_too_large += int(finite.sum())
        column_sum += chunk.sum(0)
        total += float(squared_norm.sum(dtype=np.float64))
    if n_not_finite:
        raise InvalidInputError(
            f"features have NaN or infinity (in float32) in {n_not_finite} of {n_samples} rows; "
            "remove or replace them."
        )
    if n_too_large:
        raise InvalidInputError(
            f"features have a squared norm beyond {limit:.1e} in {n_too_large} of {n_samples} "
            "rows, so their distances leave float32; scale the features down."
        )
    if metric != "euclidean":
        return _Vectors(features, by_product=True, unit_length=metric == "cosine")
    mean = column_sum / max(n_samples, 1)
    offset = float(mean @ mean)
    # 100 costs two of float32's seven digits; embeddings lie far below and are read in place
    far = offset > 100 * max(total / max(n_samples, 1) - offset, 0.0)
    if far and is_sparse:
        return _Vectors(features, sparse_dtype=np.float64)
    at_least_single = np.float64 if features.dtype == np.float64 else np.float32
    return _Vectors(features, origin=mean.astype(at_least_single) if far else None)


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


def _list_work(
    n_samples: int, n_features: int, n_queries: int, n_lists: int, share: float
) -> float:
    """Work of filling the lists and reading a share of the rows for every query.

    In units of one distance in an exact search, whose larger part is to select, not to multiply.
    Measured from 16 to 784 features.
    """
    assign = (1 + n_features / 250) * (n_samples + n_queries) * n_lists
    read = (1 + n_features / 80) * share * n_samples * n_queries
    return assign + read


def _plan_lists(n_samples: int, n_features: int, n_queries: int) -> int:
    """Number of inverted lists with the least work, 0 where the exact search has less."""
    if n_samples * n_queries <= _EXACT_DISTANCES:
        return 0

    def work(n_lists: int) -> float:
        training_rows = _TRAINING_ROWS_PER_LIST * n_lists
        train = (1 + n_features / 250) * _TRAINING_ITERATIONS * training_rows * n_lists
        tune = min(_TUNING_QUERIES, n_queries) * n_samples
        # 15 neighbours at recall .98 took .49 to .66 / √n_lists of the rows on images of 784 pixels
        share = 0.6 / math.sqrt(n_lists)
        return train + tune + _list_work(n_samples, n_features, n_queries, n_lists, share)

    choices = [2**power for power in range(4, 17) if 2**power * _TRAINING_ROWS_PER_LIST < n_samples]
    n_lists = min(choices, key=work, default=0)
    return n_lists if n_lists and work(n_lists) < n_samples * n_queries else 0


def _train_lists(vectors: _Vectors, n_lists: int, rng: np.random.Generator) -> Any:
    """An IVF-Flat index with centroids from a sample, still without rows."""
    import faiss

    n_features = vectors.features.shape[1]
    coarse = faiss.IndexFlat(n_features, vectors.faiss_metric)
    index = faiss.IndexIVFFlat(coarse, n_features, n_lists, vectors.faiss_metric)
    index.cp.niter = _TRAINING_ITERATIONS
    index.cp.max_points_per_centroid = _TRAINING_ROWS_PER_LIST
    index.cp.seed = int(rng.integers(2**31))
    # by product the longest centroid would win every row
    index.cp.spherical = vectors.by_product
    sample = rng.choice(vectors.n_samples, _TRAINING_ROWS_PER_LIST * n_lists, replace=False)
    index.train(vectors.take(np.sort(sample)))
    return index


def _tune_probe(
    index: Any,
    vectors: _Vectors,
    queries: np.ndarray,
    n_neighbors: int,
    recall: float,
    rng: np.random.Generator,
) -> tuple[int, float]:
    """Fewest lists to read for the recall, and the recall surely reached.

    A true neighbour is found when its list is among those read: the rank of that list among the
    query's tells the recall of every ``n_probe`` at once, without a trial search.
    """
    size = min(_TUNING_QUERIES, len(queries))
    sample = np.sort(rng.choice(queries, size, replace=False))
    distances, indices = _search_exactly(vectors, sample, n_neighbors + 1)
    _, true = _without_own(sample, distances, indices)
    centroids = index.quantizer.reconstruct_n(0, index.nlist)
    _, order = _nearest(vectors.take(sample), centroids, index.nlist, vectors.by_product)
    rank = np.argsort(order, axis=1)
    named, place = np.unique(true, return_inverse=True)
    _, home = _nearest(vectors.take(named), centroids, 1, vectors.by_product)
    home_rank = np.take_along_axis(rank, home[place.reshape(true.shape), 0], axis=1)

    found_at = np.zeros((size, index.nlist))
    np.add.at(found_at, (np.arange(size)[:, None], home_rank), 1 / n_neighbors)
    found = found_at.cumsum(1)
    lower = found.mean(0) - 2 * found.std(0) / np.sqrt(size)
    lower[-1] = 1.0  # reading every list misses nothing; the sum of 1/n may fall short of it
    n_probe = int(np.argmax(lower >= recall)) + 1
    return n_probe, float(lower[n_probe - 1])


def _search_lists(
    index: Any, vectors: _Vectors, queries: np.ndarray, n_neighbors: int
) -> tuple[np.ndarray, np.ndarray]:
    """Distances and indices from a trained index with its ``nprobe`` set."""
    index = _on_gpu(index, n_neighbors + 1)
    for _, chunk in vectors.chunks():
        index.add(chunk)
    distances = np.empty((len(queries), n_neighbors), np.float32)
    indices = np.empty((len(queries), n_neighbors), np.int64)
    # rows of one list read nearly the same lists, which then stay in the cache
    order = np.argsort(_home_lists(index, vectors.n_samples)[queries], kind="stable")
    for start in range(0, len(order), _QUERY_CHUNK):
        part = order[start : start + _QUERY_CHUNK]
        found = index.search(vectors.take(queries[part]), n_neighbors + 1)
        distances[part], indices[part] = _without_own(queries[part], *found)
    distances[indices < 0] = -np.inf if vectors.by_product else np.inf
    return distances, indices


def _home_lists(index: Any, n_samples: int) -> np.ndarray:
    """List of every row, shape (n_samples,); all 0 for an index that does not tell (on a GPU)."""
    import faiss

    home = np.zeros(n_samples, np.int32)
    if isinstance(index, faiss.IndexIVFFlat):
        lists: Any = index.invlists
        for number in range(index.nlist):
            size = lists.list_size(number)
            if size:
                home[faiss.rev_swig_ptr(lists.get_ids(number), size)] = number
    return home


def _search_exactly(
    vectors: _Vectors, queries: np.ndarray, n_found: int
) -> tuple[np.ndarray, np.ndarray]:
    """Distances and indices of the nearest rows, the query's own among them."""
    worst = -np.inf if vectors.by_product else np.inf
    distances = np.full((len(queries), n_found), worst, np.float32)
    indices = np.full((len(queries), n_found), -1, np.int64)
    for first, chunk in vectors.chunks(_EXACT_ROWS):
        for start in range(0, len(queries), _EXACT_QUERIES):
            part = slice(start, start + _EXACT_QUERIES)
            query = vectors.take(queries[part])
            near = _nearest(query, chunk, min(n_found, chunk.shape[0]), vectors.by_product)
            joined = np.hstack([distances[part], near[0]])
            numbers = np.hstack([indices[part], near[1] + first])
            nearest_first = np.argsort(-joined if vectors.by_product else joined, 1, kind="stable")
            best = nearest_first[:, :n_found]
            distances[part] = np.take_along_axis(joined, best, 1)
            indices[part] = np.take_along_axis(numbers, best, 1)
    return distances, indices


def _measure_again(
    vectors: _Vectors, queries: np.ndarray, distances: np.ndarray, indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances by differences, and the order they give.

    A product of matrices leaves duplicates about 1e-7 of their squared norm apart, and two
    duplicates at different distances: no scale can be read from that.
    """
    n_found = indices.shape[1]
    step = max(1, _CHUNK_NUMBERS // (4 * n_found * numbers_per_row(vectors.features)))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        apart = vectors.take(indices[part].ravel())
        apart -= vectors.take(np.repeat(queries[part], n_found))
        distances[part] = row_products(apart, apart).reshape(-1, n_found)
    order = np.argsort(distances, 1, kind="stable")
    return np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1)


def _without_own(
    queries: np.ndarray, distances: np.ndarray, indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distances and indices less one column: the query's own number, or else the last.

    Its own number is not always first, nor always there: duplicates of it may come before.
    """
    drop = indices == queries[:, None]
    drop[:, -1] |= ~drop.any(1)
    shape = (len(queries), indices.shape[1] - 1)
    return distances[~drop].reshape(shape), indices[~drop].reshape(shape)


def _nearest(
    queries: "np.ndarray | csr_array",
    rows: "np.ndarray | csr_array",
    n_found: int,
    by_product: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Exact search without an index, on a GPU where FAISS reports one.

    On a CPU by numpy's product and torch's selection: ``faiss.knn`` took 4 times as long at 784
    features, 3 times at 256, 1.3 times at 64 and .7 times at 16 (FAISS 1.15's wheel, 2 cores).
    """
    import faiss

    is_dense = isinstance(queries, np.ndarray)
    if is_dense and faiss.get_num_gpus() and n_found <= _MAX_GPU_RESULTS:
        metric = faiss.METRIC_INNER_PRODUCT if by_product else faiss.METRIC_L2
        resources = faiss.StandardGpuResources()
        distances, indices = faiss.knn_gpu(resources, queries, rows, n_found, metric=metric)
        return distances, indices
    multiply = np.matmul if is_dense else _multiply_sparse
    if by_product:
        table = multiply(queries, rows.T)
    else:
        table = multiply(-2 * queries, rows.T)
        table += row_products(rows, rows)
    values, places = torch.from_numpy(table).topk(n_found, dim=1, largest=by_product)
    found = values.numpy()
    if not by_product:
        found += row_products(queries, queries)[:, None]
    return found, places.numpy()


def _multiply_sparse(queries: "csr_array", columns: "csr_array") -> np.ndarray:
    """Product as an array, which scikit-learn 1.9 fills 3 times as fast as SciPy 1.17."""
    from sklearn.utils.extmath import safe_sparse_dot

    return np.asarray(safe_sparse_dot(queries, columns, dense_output=True))


def _on_gpu(index: Any, n_found: int) -> Any:
    """The same trained index on the GPUs that FAISS reports, itself where there is none."""
    import faiss

    if faiss.get_num_gpus() and max(index.nprobe, n_found) <= _MAX_GPU_RESULTS:
        return faiss.index_cpu_to_all_gpus(index)
    return index
