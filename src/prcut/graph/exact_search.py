"""Exact nearest neighbours: products of matrices, a block of queries and rows at a time."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from prcut.graph.rows import CHUNK_NUMBERS, Vectors, numbers_per_row, row_products

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# an exact search holds the table of this many queries and rows
_BLOCK_QUERIES, _BLOCK_ROWS = 1024, 16_384
# columns in a group from which a selection by groups is faster
_MIN_GROUP = 3

MAX_GPU_RESULTS = 2048
"""Limit of FAISS on a GPU, for the lists read and for the rows found."""


def search_exactly(
    vectors: Vectors, queries: np.ndarray, n_found: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and indices of the nearest rows, the query itself among them."""
    worst = -np.inf if vectors.by_product else np.inf
    distances = np.full((len(queries), n_found), worst, np.float32)
    indices = np.full((len(queries), n_found), -1, np.int64)
    for first, chunk in vectors.chunks(_BLOCK_ROWS):
        for start in range(0, len(queries), _BLOCK_QUERIES):
            block = slice(start, start + _BLOCK_QUERIES)
            query = vectors.take(queries[block])
            near = find_nearest(query, chunk, min(n_found, chunk.shape[0]), vectors.by_product)
            joined = np.hstack([distances[block], near[0]])
            numbers = np.hstack([indices[block], near[1] + first])
            order = np.argsort(-joined if vectors.by_product else joined, 1, kind="stable")
            nearest = order[:, :n_found]
            distances[block] = np.take_along_axis(joined, nearest, 1)
            indices[block] = np.take_along_axis(numbers, nearest, 1)
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
    distances[indices < 0] = -np.inf if vectors.by_product else np.inf
    order = np.argsort(-distances if vectors.by_product else distances, 1, kind="stable")
    return np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1)


def _measure(vectors: Vectors, queries: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Compute the distance, or product, of every query and each of its rows."""
    import faiss

    library: Any = faiss
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
    by_index = library.fvec_inner_products_by_idx, library.fvec_L2sqr_by_idx
    measure = by_index[0] if vectors.by_product else by_index[1]
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
    queries: "np.ndarray | csr_array",
    rows: "np.ndarray | csr_array",
    n_found: int,
    by_product: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Search exactly without an index, on a GPU where FAISS reports one.

    A CPU uses NumPy's product and torch's selection: ``faiss.knn`` took 4 times as long at 784
    features, 3 times at 256, 1.3 times at 64 and .7 times at 16 (FAISS 1.15's wheel, 2 cores).
    """
    import faiss
    from sklearn.utils.extmath import safe_sparse_dot

    if isinstance(queries, np.ndarray) and faiss.get_num_gpus() and n_found <= MAX_GPU_RESULTS:
        metric = faiss.METRIC_INNER_PRODUCT if by_product else faiss.METRIC_L2
        resources = faiss.StandardGpuResources()
        found = faiss.knn_gpu(resources, queries, rows, n_found, metric=metric)
        return found[0], found[1]
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
