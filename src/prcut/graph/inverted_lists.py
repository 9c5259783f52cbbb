"""Approximate nearest neighbours by inverted lists, tuned to a wanted recall.

Queries that are near one another read the same lists together, as one product of matrices: per
distance that took a fifth of the time of FAISS's IVF-Flat, which reads lists query by query. Rows
of few columns go to FAISS: what a block reads for other queries costs more there than it saves.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from prcut.graph.exact_search import drop_own, find_nearest, remeasure, search_exactly
from prcut.graph.rows import CHUNK_NUMBERS, Vectors, row_products

# up to here, 10,000 rows each with each, an exact search takes about a second
_EXACT_DISTANCES = 10**8
# FAISS asks for 39 training rows per list; more rows and iterations did not raise the recall
_TRAINING_ROWS_PER_LIST = 40
_TRAINING_ITERATIONS = 5
TUNING_QUERIES = 256
"""Queries searched exactly to measure the recall."""

# queries that read lists together: more share less, fewer make products slow
_BLOCK_QUERIES = 128
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
        # 30 neighbours at recall .98 took 2.3 to 4.2 / √n_lists of the rows on images
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
    n_together: int = _BLOCK_QUERIES  # queries that read the same lists

    @classmethod
    def fill(
        cls, vectors: Vectors, queries: np.ndarray, n_lists: int, rng: np.random.Generator
    ) -> "Lists":
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
        centroids = _with_norm(kmeans.centroids, vectors.by_product)
        if vectors.features.shape[1] < FEW_COLUMNS:
            index, home = _fill_index(vectors, kmeans)
            rows, starts = sort_by_list(home, n_lists)
            order = np.arange(len(queries))
            return cls(vectors, queries, order, centroids, rows, starts, index, n_together=1)
        near = np.empty((vectors.n_samples, _ORDERING_LISTS), np.int32)
        for start, chunk in vectors.chunks(_CHUNK_ROWS):
            found = find_nearest(chunk, kmeans.centroids, _ORDERING_LISTS, vectors.by_product)
            near[start : start + len(chunk)] = found[1]
        rows, starts = sort_by_list(near[:, 0], n_lists)
        order = np.lexsort(near[queries].T[::-1])
        table = np.empty((len(rows), centroids.shape[1]), np.float32)
        for start in range(0, len(rows), _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            table[part] = _with_norm(vectors.take(rows[part]), vectors.by_product)
        return cls(vectors, queries[order], order, centroids, rows, starts, table)

    @property
    def most_read(self) -> int:
        """Largest number of lists that a query reads."""
        return max(16, len(self.centroids) // 8)

    @cached_property
    def home(self) -> np.ndarray:
        """List of every row."""
        home = np.empty(len(self.rows), np.int64)
        home[self.rows] = np.repeat(np.arange(len(self.centroids)), np.diff(self.starts))
        return home

    def take_queries(self, block: slice | np.ndarray) -> np.ndarray:
        """Return the vectors of a block of queries."""
        return self.as_queries(np.asarray(self.vectors.take(self.queries[block])))

    def as_queries(self, taken: np.ndarray) -> np.ndarray:
        """Return vectors with the further column of queries, where they have one."""
        return taken if self.vectors.by_product else np.insert(taken, taken.shape[1], 1, 1)

    def nearest_lists(self, queries: np.ndarray, n_probe: int) -> np.ndarray:
        """Return the nearest lists of every query, shape (n_queries, n_probe)."""
        return find_nearest(queries, self.centroids, n_probe, by_product=True)[1]

    def candidates(self, block: slice, n_probe: int, n_found: int) -> np.ndarray:
        """Return the nearest rows in all lists that the block reads, -1 where they hold too few."""
        if self.n_together == 1:
            self.table.nprobe = n_probe
            return np.asarray(self.table.search(self.vectors.take(self.queries[block]), n_found)[1])
        queries = self.take_queries(block)
        read = np.unique(self.nearest_lists(queries, n_probe))
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


def _fill_index(vectors: Vectors, kmeans: Any) -> tuple[Any, np.ndarray]:
    """Return FAISS's inverted lists around trained centroids, and the list of every row."""
    import faiss

    metric = faiss.METRIC_INNER_PRODUCT if vectors.by_product else faiss.METRIC_L2
    index: Any = faiss.IndexIVFFlat(kmeans.index, kmeans.d, kmeans.k, metric)
    index.is_trained = True
    home = np.empty(vectors.n_samples, np.int64)
    for start, chunk in vectors.chunks(_CHUNK_ROWS):
        part = home[start : start + len(chunk)]
        part[:] = kmeans.index.search(chunk, 1)[1].reshape(-1)
        library_arrays = faiss.swig_ptr(chunk), None, faiss.swig_ptr(part)
        index.add_core(len(chunk), *library_arrays)
    return index, home


def sort_by_list(home: np.ndarray, n_lists: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row numbers list by list, and where each list starts."""
    rows = np.argsort(home, kind="stable")
    return rows, np.searchsorted(home[rows], np.arange(n_lists + 1))


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
    position = np.argsort(lists.order)[sample]
    first_read = np.full((size, n_lists), lists.most_read)
    together = lists.n_together
    for number, start in enumerate(position // together * together):
        block = lists.take_queries(slice(start, start + together))
        near = lists.nearest_lists(block, lists.most_read)
        for place in reversed(range(lists.most_read)):
            first_read[number, near[:, place]] = place
    rank = np.where(kept, np.take_along_axis(first_read, lists.home[true], 1), lists.most_read)
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
