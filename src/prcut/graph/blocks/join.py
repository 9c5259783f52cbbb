"""Join the edges of all blocks into one graph in memory.

The features of a large data set exceed memory, its graph does not: an entry takes eight bytes. A
block holds the links from its core rows to their neighbours. Entries are counted first and then
written to their places, so no list of edges is ever held besides the graph::

    graph.json    written last
    rows.npy      row number of every node; rows without an edge are no nodes
    indptr.npy    where the entries of every node begin, int64
    indices.npy   the node at the other end, int32
    weight.npy    weights of the entries, float32
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.blocks.read import Block, Blocks
from prcut.graph.build import Similarity
from prcut.graph.neighbors import Metric
from prcut.runtime.folder import Folder

JOINED_RECORD = "graph.json"
# columns are 32-bit integers
_MOST_NODES = 2**31 - 1
# entries whose order is put right at a time: 200 MB with the copies
_SORTED_AT_ONCE = 2**23
_ARRAYS = ("rows", "indptr", "indices", "weight")


class JoinedGraph(NamedTuple):
    """The graph of the rows that have an edge.

    Attributes
    ----------
    rows : int64 array, shape (n_nodes,)
        Row numbers in the source, block by block: neighbours have near numbers, so that passes over
        the edges find most of what they read in the processor's cache.
    indptr : int64 array, shape (n_nodes + 1,)
    indices : int32 array, shape (n_entries,)
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

    ``advance`` is called with the number of core rows of every block that was joined.
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
        for directed in (links, csr_array(links.T)):
            _write_entries(directed, node_of[block.rows], place, indices, weight)
        if advance is not None:
            advance(block.n_core)
    if not np.array_equal(place, indptr[1:]):
        raise CorruptFileError(f"{blocks.folder.path}: the blocks do not match; remove it.")
    return JoinedGraph(rows, *_merge_repeats(indptr, indices, weight))


def save_joined(folder: Folder, graph: JoinedGraph, key: str) -> None:
    """Write the graph to a folder."""
    files = {f"{name}.npy": getattr(graph, name) for name in _ARRAYS}
    folder.seal(JOINED_RECORD, files, {"key": key})


def open_joined(folder: Folder) -> JoinedGraph:
    """Open the graph, mapped into memory where the folder is on a local disk."""
    return JoinedGraph(*(folder.map_array(f"{name}.npy") for name in _ARRAYS))


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
