"""Blocks on disk: the neighbour graph of more rows than memory holds, one block at a time.

The *core* of a block is a set of rows that are close to each other, its *halo* the rows near them
that are core rows of other blocks. Every core row finds its neighbours inside core + halo, so both
ends of each edge are in the block that found it and no row is ever fetched at random::

    plan.json           what is being built, from what
    centroids.json/.npy one centroid per coarse cell
    exchange/           rows on their way to their cells; removed at the end
    block-00000/        rows, features, anchors, neighbors, distances, (kept), and block.json
    manifest.json       written last: every block with sizes and checksums

:func:`prcut.graph.blocks.build.build_blocks` writes them. :func:`join_blocks` joins their edges:
the features of a large data set exceed memory, its graph does not, as an entry takes eight bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.build import Similarity, edge_similarity
from prcut.graph.neighbors import Metric, Neighbors
from prcut.runtime.folder import Folder, finite_number, parsing, whole_number

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCKS_FORMAT = 2
JOINED_RECORD = "graph.json"
# columns are 32-bit integers
_MOST_NODES = 2**31 - 1
# entries whose order is put right at a time: 200 MB with the copies
_SORTED_AT_ONCE = 2**23


class Blocks:
    """The blocks of a data set, opened one at a time by number."""

    def __init__(self, folder: Folder) -> None:
        manifest = folder.read_manifest(BLOCKS_FORMAT, "build_blocks")
        with parsing(f"{folder.path}/manifest.json"):
            plan = manifest["plan"]
            self.key = str(manifest["key"])
            self.n_samples = whole_number(plan["n_samples"])
            self.n_features = whole_number(plan["n_features"])
            self.dtype = str(plan["dtype"])
            self.metric: Metric = plan["config"]["metric"]
            if self.dtype not in ("float16", "float32") or self.metric not in get_args(Metric):
                raise ValueError(f"dtype {self.dtype} and metric {self.metric}")
            scales = plan["config"]["scales"]
            # what the columns of all rows were divided by
            self.scales = None if scales is None else np.array([*map(finite_number, scales)], "f4")
            self.records: list[dict[str, Any]] = list(manifest["blocks"])
        self.folder = folder

    def __repr__(self) -> str:
        return (
            f"Blocks(n_samples={self.n_samples}, n_features={self.n_features}, "
            f"n_blocks={len(self)}, path={self.folder.path!r})"
        )

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Block]:
        return map(self.open, range(len(self)))

    def open(self, number: int, *, with_features: bool = True) -> Block:
        """Open a block and verify its checksums; most of its bytes are its features."""
        record = self.records[number]
        files = dict(record["files"])
        if not with_features:
            del files["features.npy"]
        folder = self.folder / record["name"]
        folder.verify({**record, "files": files})
        return Block(
            rows=folder.map_array("rows.npy"),
            n_core=whole_number(record["n_core"]),
            kept=folder.map_array("kept.npy") if "kept.npy" in files else None,
            features=folder.map_array("features.npy") if with_features else None,
            anchors=folder.map_array("anchors.npy"),
            neighbors=folder.map_array("neighbors.npy"),
            distances=folder.map_array("distances.npy"),
            metric=self.metric,
        )


class Block(NamedTuple):
    """A block: its rows, and the neighbours that its anchors have found.

    Attributes
    ----------
    rows : int64 array, shape (n_rows,)
        Row numbers in the source; the first ``n_core`` are the core.
    n_core : int
    kept : int32 array, or None
        Positions of the core rows whose features were kept; None where all rows were kept.
    features : array, shape (n_rows or n_kept, n_features), or None
        None where the block was opened without them.
    anchors : int32 array, shape (n_anchors,)
        Positions of the core rows that looked for neighbours.
    neighbors : int32 array, shape (n_anchors, n_neighbors)
        Positions in the block of the neighbours of every anchor; -1 where there are fewer.
    distances : float32 array, shape (n_anchors, n_neighbors)
    metric : {"euclidean", "cosine", "inner_product"}
    """

    rows: np.ndarray
    n_core: int
    kept: np.ndarray | None
    features: np.ndarray | None
    anchors: np.ndarray
    neighbors: np.ndarray
    distances: np.ndarray
    metric: Metric

    def links(self, similarity: Similarity = "binary") -> csr_array:
        """Return the weights, above 0, of the links from every row to the neighbours it found.

        An edge between two anchors is found from both ends: over all blocks the edges add up to
        (A + Aᵀ)/2, where A holds these links. The either-or kernel would need the neighbours of
        both ends, so "binary" equals "mean" here.
        """
        from scipy.sparse import csr_array

        ends = self.anchors.astype(np.int64), self.neighbors.astype(np.int64)
        found = Neighbors(*ends, np.asarray(self.distances), metric=self.metric)
        weight = edge_similarity(found, similarity, features=self.features)
        is_link = (self.neighbors >= 0) & (weight > 0)
        n_rows = len(self.rows)
        counts = np.zeros(n_rows + 1, np.int32)
        counts[found.rows + 1] = is_link.sum(1)
        arrays = weight[is_link], self.neighbors[is_link], np.cumsum(counts, dtype=np.int32)
        return csr_array(arrays, shape=(n_rows, n_rows))


class JoinedGraph(NamedTuple):
    """The graph of the rows that have an edge.

    Attributes
    ----------
    rows : int64 array, shape (n_nodes,)
        Row numbers in the source, block by block: neighbours have near numbers, so that passes over
        the edges find most of what they read in the processor's cache.
    indptr : int64 array, shape (n_nodes + 1,)
    indices : int32 array, shape (n_entries,)
        The nodes at the other ends.
    weight : float32 array, shape (n_entries,)
        Symmetric and above 0.
    """

    rows: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray


def join_blocks(
    blocks: Blocks, similarity: Similarity, advance: Callable[[int], None] | None = None
) -> JoinedGraph:
    """Join the edges of all blocks; the weight of an edge is the mean of its two directions.

    Entries are counted first and then written to their places, so no list of edges is ever held
    besides the graph. ``advance`` is called with the number of core rows of every block.
    """
    counts = np.zeros(blocks.n_samples, np.int64)  # an edge that two rows found counts twice
    for block, links in _links(blocks, similarity):
        # a row is in a block once
        counts[block.rows] += np.diff(links.indptr)
        counts[block.rows] += np.bincount(links.indices, minlength=len(block.rows))
    linked = []
    for record in blocks.records:
        core = (blocks.folder / record["name"]).read_array("rows.npy", 0, record["n_core"])
        linked.append(core[counts[core] > 0])
    rows = np.concatenate(linked)
    if len(rows) > _MOST_NODES:
        raise InvalidInputError(
            f"{len(rows):,} rows have an edge, and a graph holds {_MOST_NODES:,}; cluster a sample "
            "and predict the others."
        )
    indptr = np.concatenate([[0], np.cumsum(counts[rows], dtype=np.int64)])
    del counts, linked
    node_of = np.full(blocks.n_samples, -1, np.int32)
    node_of[rows] = np.arange(len(rows), dtype=np.int32)
    indices, weight = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    place = indptr[:-1].copy()
    for block, links in _links(blocks, similarity):
        for directed in (links, links.T.tocsr()):
            _write_entries(directed, node_of[block.rows], place, indices, weight)
        if advance is not None:
            advance(block.n_core)
    if not np.array_equal(place, indptr[1:]):
        raise CorruptFileError(f"{blocks.folder.path}: the blocks do not match; remove it.")
    return JoinedGraph(rows, *_merge_repeats(indptr, indices, weight))


def save_joined(folder: Folder, graph: JoinedGraph, key: str) -> None:
    """Write the graph to a folder."""
    files = {f"{name}.npy": array for name, array in graph._asdict().items()}
    folder.seal(JOINED_RECORD, files, {"key": key})


def open_joined(folder: Folder) -> JoinedGraph:
    """Open the graph, mapped into memory where the folder is on a local disk."""
    return JoinedGraph(*(folder.map_array(f"{name}.npy") for name in JoinedGraph._fields))


def needs_features(similarity: Any, metric: Metric) -> bool:
    """Return whether a similarity does not follow from the distances."""
    return bool(similarity == "cosine" and metric != "cosine")


def _links(blocks: Blocks, similarity: Similarity) -> Iterator[tuple[Block, csr_array]]:
    """Yield every block with its links, and read its features only if they are needed."""
    with_features = needs_features(similarity, blocks.metric)
    for number in range(len(blocks)):
        block = blocks.open(number, with_features=with_features)
        yield block, block.links(similarity)


def _write_entries(
    directed: csr_array,
    node: np.ndarray,
    place: np.ndarray,
    indices: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Write the entries of a block's rows, whose nodes are given, to their next places."""
    n_entries = np.diff(directed.indptr)
    held = np.flatnonzero(n_entries)
    first = np.zeros(len(n_entries), np.int64)
    first[held] = place[node[held]]
    at = np.repeat(first - directed.indptr[:-1], n_entries) + np.arange(directed.nnz)
    indices[at] = node[directed.indices]
    weight[at] = np.float32(0.5) * directed.data
    place[node[held]] += n_entries[held]


def _merge_repeats(
    indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort the entries of every node and add up those of one edge, in place."""
    from scipy.sparse import csr_array

    n_nodes, n_kept = len(indptr) - 1, 0
    merged = np.empty_like(indptr)
    merged[0] = start = 0
    while start < n_nodes:
        stop = int(np.searchsorted(indptr, indptr[start] + _SORTED_AT_ONCE, "right")) - 1
        stop = min(max(stop, start + 1), n_nodes)
        entries = slice(indptr[start], indptr[stop])
        local = (indptr[start : stop + 1] - indptr[start]).astype(np.int32)
        arrays = weight[entries].copy(), indices[entries].copy(), local
        part = csr_array(arrays, shape=(stop - start, n_nodes))
        part.sum_duplicates()
        kept = slice(n_kept, n_kept + part.nnz)
        indices[kept], weight[kept] = part.indices, part.data
        merged[start + 1 : stop + 1] = n_kept + part.indptr[1:]
        start, n_kept = stop, kept.stop
    # the memory of the rest is given back; nobody else has a view of them
    indices.resize(n_kept, refcheck=False)
    weight.resize(n_kept, refcheck=False)
    return merged, indices, weight
