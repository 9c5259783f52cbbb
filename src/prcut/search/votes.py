"""How sure a partition is of every row: what independent starts and neighbours say of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.matching import count_shared, match_counts
from prcut.search.fragments import take_rows

# votes of a row's own cluster, of starts and of neighbours. With more than half of all, its own has
# the most, so an assigner that learns the votes gives every row the cluster of the partition
_OWN, _OF_STARTS, _OF_NEIGHBORS = 12, 4, 4
N_VOTES = _OWN + _OF_STARTS + _OF_NEIGHBORS
# matching takes the cube of the clusters; of more, only neighbours vote
_MAX_MATCHED = 2000


class Votes(NamedTuple):
    """Clusters that the rows of a partition might have had.

    Three in five of a row's votes are for its own cluster, one is that of independent starts, and
    one that of starts for its neighbours.

    Attributes
    ----------
    links : CSR array, shape (n_samples, n_samples)
    labels : int64 array, shape (n_samples,)
        The partition.
    starts : int64 array, shape (n_starts, n_samples)
        Partitions that were found independently, with the numbers of the matching clusters.
    """

    links: csr_array
    labels: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(
        cls,
        graph: SimilarityGraph,
        labels: np.ndarray,
        starts: tuple[np.ndarray, ...],
        n_clusters: int,
    ) -> Votes:
        """Match the clusters of the starts, if any, with those of the partition.

        >>> graph = SimilarityGraph.from_neighbors([[1], [2], [3], [2]])  # a path
        >>> labels, other = np.array([0, 0, 1, 1]), np.array([1, 0, 0, 0])
        >>> Votes.of(graph, labels, (other,), 2).starts.tolist()
        [[0, 1, 1, 1]]
        >>> print(Votes.of(graph, labels, (other,), 2).shares())
        [0.8 0.7 1.  1. ]
        """
        starts = starts if n_clusters <= _MAX_MATCHED else ()
        matched = [_match(labels, start, n_clusters) for start in starts] or [labels]
        return cls(graph.to_scipy(), labels, np.stack(matched))

    def shares(self) -> np.ndarray:
        """Return the share of a row's votes that its own cluster has, float32."""
        of_starts = (self.starts == self.labels).mean(0)
        rows = np.repeat(np.arange(len(self.labels)), np.diff(self.links.indptr))
        own, near, weight = self.labels[rows], self.links.indices, self.links.data
        agreed = sum((start[near] == own) * weight for start in self.starts)
        degree = np.bincount(rows, weight, len(self.labels))
        of_neighbors = np.bincount(rows, agreed, len(self.labels)) / len(self.starts)
        of_neighbors = np.divide(of_neighbors, degree, where=degree > 0, out=of_starts.copy())
        votes = _OWN + _OF_STARTS * of_starts + _OF_NEIGHBORS * of_neighbors
        shares: np.ndarray = (votes / N_VOTES).astype(np.float32)
        return shares

    def stability(self, n_clusters: int) -> np.ndarray | None:
        """Return how well the starts find every cluster again, float64, shape (n_clusters,).

        That is the mean Jaccard index of the cluster and what is most like it in each start; None
        where there are too many clusters to be compared.

        >>> labels, other = np.array([0, 0, 1, 1]), np.array([1, 0, 0, 0])
        >>> Votes(csr_array((4, 4)), labels, np.stack([labels, other])).stability(2).round(2)
        array([0.75, 0.83])
        """
        if n_clusters > _MAX_MATCHED:
            return None
        found = [_best_jaccard(self.labels, start, n_clusters) for start in self.starts]
        stability: np.ndarray = np.mean(found, axis=0)
        return stability

    def draw(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw votes of some rows, int64, shape (n_rows, N_VOTES)."""
        rows = rows[:, None]
        own = np.repeat(self.labels[rows], _OWN, axis=1)
        n_starts, near = len(self.starts), self._draw_neighbors(rows, rng)
        # a row asks different starts, as far as there are so many
        asked = rng.integers(n_starts, size=rows.shape) + np.arange(_OF_STARTS)
        of_starts = self.starts[asked % n_starts, rows]
        of_neighbors = self.starts[rng.integers(n_starts, size=near.shape), near]
        return np.hstack([own, of_starts, of_neighbors])

    def _draw_neighbors(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw neighbours of each row by their weights; a row that has none is its own."""
        own = take_rows(self.links, rows.reshape(-1))
        first, last = own.indptr[:-1, None], own.indptr[1:, None]
        sums = np.concatenate([[0.0], np.cumsum(own.data, dtype=np.float64)])
        wanted = rng.uniform(sums[first], sums[last], (len(rows), _OF_NEIGHBORS))
        drawn = np.clip(np.searchsorted(sums, wanted, "right") - 1, first, last - 1)
        drawn = np.minimum(drawn, max(0, own.nnz - 1))
        if not own.nnz:
            return np.repeat(rows, _OF_NEIGHBORS, axis=1)
        near: np.ndarray = np.where(last > first, own.indices[drawn], rows)
        return near


def _match(labels: np.ndarray, start: np.ndarray, n_clusters: int) -> np.ndarray:
    """Rename the clusters of a start by those of the partition that they share most rows with."""
    kept, renamed = match_counts(count_shared(labels, start, n_clusters, n_clusters))
    names = np.empty(n_clusters, np.int64)
    names[renamed] = kept
    renamed_start: np.ndarray = names[start]
    return renamed_start


def _best_jaccard(labels: np.ndarray, start: np.ndarray, n_clusters: int) -> np.ndarray:
    shared = count_shared(labels, start, n_clusters, n_clusters)
    union = shared.sum(1)[:, None] + shared.sum(0) - shared
    best: np.ndarray = np.divide(shared, np.maximum(union, 1)).max(1)
    return best
