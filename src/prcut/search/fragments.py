"""Fragments: many small groups of rows that walks along the edges hardly leave."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from torch import Generator

from prcut.graph.build import graph_features
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.sparse import from_scipy
from prcut.search import kernels

_N_COLUMNS = 64
# rounds of k-means, and of more centres than this, which have few points each
_KMEANS_ROUNDS, _MANY_CENTRES, _FEW_ROUNDS = 10, 2000, 5
# points that k-means is trained on: more do not move its centres
_POINTS_PER_CENTRE = 64
_CHUNK = 4096
GROUP_SIZE = 8
"""Rows that move, or are smoothed, as one."""
# groups beyond which they become larger, since clustering more is slow, and groups of a fragment at
# least: with fewer, fragments become ragged
_MANY_GROUPS, _GROUPS_PER_FRAGMENT = 2**14, 4
_GROUP_ROUNDS = 5
# fraction of rows that are left alone from which they are joined: fewer do not stop the contraction
_MANY_SINGLE = 0.25
# nodes that are visited in one random order; of more, those of a window: some megabytes with edges
_ONE_WINDOW, _WINDOW = 2**18, 2**14
# weights of a large graph that are converted at a time: 64 MB
_SUMMED_AT_ONCE = 2**23


def find_fragments(weight: csr_array, n_fragments: int, rng: np.random.Generator) -> np.ndarray:
    """Assign every row to a fragment, int64, numbered from 0, by k-means of smoothed noise.

    Of many rows, groups of eight or more are smoothed and clustered instead, at an eighth of the
    cost or less. With no more rows than fragments, every row is a fragment of its own.
    """
    n_samples = weight.shape[0]
    if n_fragments >= n_samples:
        return np.arange(n_samples)
    least = _GROUPS_PER_FRAGMENT * n_fragments
    size = max(min(GROUP_SIZE, n_samples // least), n_samples // max(least, _MANY_GROUPS))
    groups = np.arange(n_samples)
    if size > 1:
        groups = find_groups(weight, size, rng)
        weight = contract(weight, groups, inner=True).links
    seed = int(rng.integers(2**31))
    generator = Generator().manual_seed(seed)
    smooth = graph_features(SimilarityGraph(from_scipy(weight)), _N_COLUMNS, generator=generator)
    points = smooth.numpy()
    centres = points[rng.permutation(len(points))[:n_fragments]]
    fragments = kmeans(points, np.bincount(groups), centres, rng)
    return np.unique(fragments[groups], return_inverse=True)[1].reshape(-1)


def find_groups(weight: csr_array, most: int, rng: np.random.Generator) -> np.ndarray:
    """Group up to ``most`` rows each that are closely linked, numbered from 0.

    Every row, in random order, joins the group that it has the heaviest links to, if there is
    room: label propagation with a limit of size.
    """
    groups = np.arange(weight.shape[0])
    order = _draw_order(len(groups), rng)
    kernels.call("propagate", weight, order, most, _GROUP_ROUNDS, groups)
    groups = _join_single(weight, groups, most)
    # groups bear the numbers of rows, so they are counted without sorting
    is_used = np.zeros(len(groups), dtype=bool)
    is_used[groups] = True
    numbers: np.ndarray = (np.cumsum(is_used) - 1)[groups]
    return numbers


def _join_single(weight: csr_array, groups: np.ndarray, most: int) -> np.ndarray:
    """Group rows that are alone, as groups near them are full, by a neighbour that they share.

    Otherwise all leaves of a star but a few would stay alone on every level.
    """
    alone = np.flatnonzero(np.bincount(groups, minlength=len(groups))[groups] == 1)
    alone = alone[np.diff(weight.indptr)[alone] > 0]
    if len(alone) < _MANY_SINGLE * len(groups):
        return groups
    links = take_rows(weight, alone)
    heaviest = links.indices[links.indptr[:-1] + _first_largest(links)]
    order = np.lexsort((alone, groups[heaviest]))
    shared = groups[heaviest[order]]
    rank = np.arange(len(order)) - np.searchsorted(shared, shared)
    first = order[np.flatnonzero(rank % most == 0)]
    joined: np.ndarray = groups.copy()
    joined[alone[order]] = alone[first[np.cumsum(rank % most == 0) - 1]]
    return joined


def _first_largest(links: csr_array) -> np.ndarray:
    """Return the position of the largest entry in every row, none of which is empty."""
    rows = np.repeat(np.arange(links.shape[0]), np.diff(links.indptr))
    order = np.lexsort((np.arange(links.nnz), -links.data, rows))
    return np.asarray(order[links.indptr[:-1]] - links.indptr[:-1])


def _draw_order(n_nodes: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a random order; where nodes are many, one window of them after the other.

    Linked nodes often have near numbers, so a window stays in the processor's cache.
    """
    if n_nodes <= _ONE_WINDOW:
        return rng.permutation(n_nodes)
    order = np.arange(n_nodes)
    for start in range(0, n_nodes, _WINDOW):
        rng.shuffle(order[start : start + _WINDOW])
    return order


def kmeans(
    points: np.ndarray, sizes: np.ndarray, centres: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the nearest centre of every point, by k-means weighted by the points' sizes."""
    n_centres = len(centres)
    sample = rng.permutation(len(points))[: _POINTS_PER_CENTRE * n_centres]
    known, size = points[sample], sizes[sample].astype(points.dtype)
    for _ in range(_KMEANS_ROUNDS if n_centres <= _MANY_CENTRES else _FEW_ROUNDS):
        entries = size, (_nearest(known, centres), np.arange(len(known)))
        member = csr_array(entries, shape=(n_centres, len(known)))
        total = member.sum(1)[:, None]
        centres = np.where(total > 0, member @ known / np.maximum(total, 1), centres)
    return _nearest(points, centres)


def _nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    half_norms = 0.5 * (centres**2).sum(1)
    chunks = (points[start : start + _CHUNK] for start in range(0, len(points), _CHUNK))
    return np.concatenate([(half_norms - chunk @ centres.T).argmin(1) for chunk in chunks])


def choose_n_fragments(n_samples: int, n_clusters: int) -> int:
    """Choose the number of fragments: one per twelve rows, between 150 and 400.

    Many clusters get eight fragments each, up to 4096 in all; every cluster gets at least two, and
    there are never more fragments than rows.
    """
    wanted = max(min(400, max(150, n_samples // 12)), min(8 * n_clusters, 4096, n_samples // 4))
    return min(max(wanted, 2 * n_clusters), n_samples)


class CoarseGraph(NamedTuple):
    """The weights between fragments, and their numbers of rows.

    Everything is in float64, but the weights of a large graph of single rows may be in float32.

    Attributes
    ----------
    links : CSR array, shape (n_fragments, n_fragments)
        Symmetric, with an empty diagonal: edges within a fragment are never cut.
    sizes : float64 array, shape (n_fragments,)
    inner : float
        Weight of the edges within fragments, in both directions, where it is needed.
    edge_weight : float
        Weight of a typical edge between two rows, Σw² / Σw: a weight between fragments stands for
        as many edges as it has this.
    """

    links: csr_array
    sizes: np.ndarray
    inner: float = 0.0
    edge_weight: float = 1.0

    @classmethod
    def of_arrays(cls, indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray) -> CoarseGraph:
        """Return the graph of single rows with the arrays of a CSR matrix."""
        return cls.of_rows(compact_csr(weight, indices, indptr))

    @classmethod
    def of_rows(cls, links: csr_array) -> CoarseGraph:
        """Return the graph of single rows, whose weights stay as they are."""
        total, squares = 0.0, 0.0
        for start in range(0, links.nnz, _SUMMED_AT_ONCE):
            weight = links.data[start : start + _SUMMED_AT_ONCE].astype(np.float64)
            total += float(weight.sum())
            squares += float(np.square(weight).sum())
        edge_weight = squares / total if total > 0 else 1.0
        return cls(links, np.ones(links.shape[0]), edge_weight=edge_weight)

    @property
    def total(self) -> float:
        """Weight of all edges in both directions, those within fragments included."""
        return float(self.links.data.sum(dtype=np.float64)) + self.inner


def as_coarse(graph: SimilarityGraph | CoarseGraph) -> CoarseGraph:
    """Return the weights in units of the largest, in float64; rows have size 1."""
    if isinstance(graph, CoarseGraph):
        return graph
    weight = graph.to_scipy()
    dtype = np.int32 if weight.nnz <= np.iinfo(np.int32).max else np.int64
    data = weight.data.astype(np.float64) / (weight.data.max(initial=0) or 1)
    arrays = data, weight.indices.astype(dtype), weight.indptr.astype(dtype)
    links = csr_array(arrays, shape=weight.shape, dtype=np.float64)
    total = links.data.sum()
    edge_weight = float((links.data**2).sum() / total) if total > 0 else 1.0
    return CoarseGraph(links, np.ones(weight.shape[0]), edge_weight=edge_weight)


def contract(
    weight: csr_array,
    fragments: np.ndarray,
    *,
    sizes: np.ndarray | None = None,
    inner: bool = False,
) -> CoarseGraph:
    """Return the graph between fragments, which are numbered from 0 without gaps.

    ``sizes`` are the numbers of rows of the nodes, by default 1. ``inner`` keeps the edges within a
    fragment, in both directions, on the diagonal.
    """
    fragments = fragments.astype(np.int64, copy=False)
    n_fragments = int(fragments.max()) + 1
    counts = np.bincount(fragments, minlength=n_fragments)
    members = np.argsort(fragments, kind="stable")
    first = np.concatenate([[0], np.cumsum(counts)])
    indptr = np.empty(n_fragments + 1, dtype=np.int64)
    # room for all edges, of which few pages are touched
    indices, data = np.empty(weight.nnz, dtype=np.int32), np.empty(weight.nnz)
    groups = fragments, n_fragments, members, first
    n_links = kernels.call("contract", weight, *groups, int(inner), indptr, indices, data)
    # gives the rest back without a copy; nobody else has a view of the arrays
    indices.resize(n_links, refcheck=False)
    data.resize(n_links, refcheck=False)
    links = compact_csr(data, indices, indptr)
    held = counts if sizes is None else np.bincount(fragments, sizes, n_fragments)
    return CoarseGraph(links, held.astype(np.float64))


def compact_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> csr_array:
    """Return a square matrix whose columns stay 32-bit, however many entries it has.

    SciPy makes both kinds of indices 64-bit where there are 2³¹ entries.
    """
    n_rows = len(indptr) - 1
    if indptr[-1] <= np.iinfo(np.int32).max:
        return csr_array((data, indices, indptr.astype(np.int32)), shape=(n_rows, n_rows))
    links = csr_array((n_rows, n_rows), dtype=data.dtype)
    links.data, links.indices, links.indptr = data, indices, indptr
    return links


def take_rows(links: csr_array, rows: np.ndarray) -> csr_array:
    """Return some rows of a matrix without a copy of all of its columns, as SciPy would make."""
    first, n_entries = links.indptr[rows], links.indptr[rows + 1] - links.indptr[rows]
    indptr = np.concatenate([[0], np.cumsum(n_entries, dtype=np.int64)])
    at = np.repeat(first - indptr[:-1], n_entries) + np.arange(indptr[-1])
    arrays = links.data[at], links.indices[at], indptr
    return csr_array(arrays, shape=(len(rows), links.shape[1]))


def overlay(*partitions: np.ndarray) -> np.ndarray:
    """Intersect partitions: the coarsest fragments, numbered from 0, that none of them splits."""
    joined = np.zeros(len(partitions[0]), dtype=np.int64)
    for labels in partitions:
        joined = joined * (int(labels.max()) + 1) + labels
        joined = np.unique(joined, return_inverse=True)[1].reshape(-1)
    return joined
