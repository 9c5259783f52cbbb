"""From blocks to the parts of one graph: every edge is sent to the blocks of both of its ends.

A block has found the neighbours of its core rows only: what other blocks found of these comes
through the shuffle. Rows without an edge, which exist where few rows look for neighbours, are no
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.errors import CorruptFileError
from prcut.graph.build import Similarity
from prcut.pipeline.known import check_weights
from prcut.pipeline.outofcore.blocks import Block, Blocks
from prcut.pipeline.outofcore.parts import Level, Part, Posts, cut_offers, joined
from prcut.runtime.engine import Engine
from prcut.runtime.folder import Folder
from prcut.runtime.parquet_source import ParquetSource
from prcut.runtime.shuffle import gather, is_scattered, scatter

# of an edge: the row that it is sent to, the other one and that row's cell, and the weight
_COLUMNS = ("node", "other", "home", "weight")
_WEIGHTS, _ROWS_AT_ONCE = "weights.npy", 2**20


class LinkedBlocks(NamedTuple):
    """The parts of a graph that was found block by block, and the rows of their nodes."""

    level: Level
    rows: Posts


def link_blocks(
    blocks: Blocks,
    folder: Folder,
    similarity: Similarity,
    engine: Engine,
    options: dict[str, Any],
    weights: Folder | None = None,
) -> LinkedBlocks:
    """Make the parts of the graph of all blocks, or finish what an earlier run began.

    ``weights`` holds those of all rows, where they do not count alike.
    """
    level = Level(folder, len(blocks), f"{blocks.key} {similarity}")
    rows = Posts(level, folder / "rows", level.key)
    found = LinkedBlocks(level, rows)
    exchange = folder / "exchange"
    if not level.is_whole:
        send = partial(_send_edges, blocks, similarity, exchange, level.key, weights)
        engine.run("link", send, len(blocks), **options)
        join = partial(_join_edges, blocks, exchange, found, weights)
        engine.run("join", join, len(blocks), **options)
        engine.run("meet", partial(_meet, blocks, found), len(blocks), **options)
        level.finish()
    exchange.delete()
    return found


def write_weights(folder: Folder, source: ParquetSource, column: str) -> None:
    """Write the weights of all rows of a source, which are checked, to one file."""
    n_samples = source.n_samples

    def read() -> Iterator[np.ndarray]:
        for start in range(0, n_samples, _ROWS_AT_ONCE):
            rows = np.arange(start, min(start + _ROWS_AT_ONCE, n_samples))
            yield check_weights(source.read_values(column, rows), len(rows))

    if not folder.exists(_WEIGHTS):
        folder.write_arrays(_WEIGHTS, (n_samples,), np.dtype(np.float64), read())


def read_weights(folder: Folder, rows: np.ndarray) -> np.ndarray:
    """Return the weights of some rows."""
    return np.asarray(folder.map_array(_WEIGHTS)[rows])


def _send_edges(
    blocks: Blocks,
    similarity: Similarity,
    exchange: Folder,
    key: str,
    weights: Folder | None,
    number: int,
    advance: Callable[[int], None],
) -> None:
    """Send the edges that a block has found to the blocks of both ends."""
    if not is_scattered(exchange, number, key):
        needs_features = similarity == "cosine" and blocks.metric != "cosine"
        block = blocks.open(number, with_features=needs_features)
        columns, copies, bucket = _address(blocks, block, number, similarity)
        if weights is not None:
            both = (read_weights(weights, columns[end]) for end in ("node", "other"))
            columns["weight"] = columns["weight"] * np.prod([*both], axis=0)
        scatter(exchange, number, columns, copies, bucket, len(blocks), key)
    advance(blocks.records[number]["n_core"])


def _address(
    blocks: Blocks, block: Block, number: int, similarity: Similarity
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return the edges of a block, each once for its own row and once for that of the halo."""
    weight = block.graph(similarity).to_scipy().tocoo()
    is_own = (weight.row < block.n_core) & (weight.data > 0)
    source, target = weight.row[is_own], weight.col[is_own]
    away = np.flatnonzero(target >= block.n_core)
    node = np.concatenate([source, target[away]])
    other = np.concatenate([target, source[away]])
    columns = {
        "node": block.rows[node],
        "other": block.rows[other],
        "home": block.home[other].astype(np.int32),
        "weight": np.concatenate([weight.data[is_own], weight.data[is_own][away]]),
    }
    first, count = _blocks_of_cells(blocks)
    cell = block.home[target[away]]
    # a cell that was dealt out to several blocks: all of them get the edge, one has its row
    n_copies = np.concatenate([np.ones(len(source), np.int64), count[cell]])
    copies = np.repeat(np.arange(len(node)), n_copies)
    order = np.arange(len(copies)) - np.repeat(np.cumsum(n_copies) - n_copies, n_copies)
    start = np.concatenate([np.full(len(source), number), first[cell]])
    return columns, copies, start[copies] + order


def _blocks_of_cells(blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Return the first block of every cell, and the number of its blocks, which follow it."""
    cells = np.array([record["cell"] for record in blocks.records])
    numbers = np.arange(cells.max() + 1)
    first = np.searchsorted(cells, numbers)
    return first, np.searchsorted(cells, numbers, side="right") - first


def _join_edges(
    blocks: Blocks,
    exchange: Folder,
    found: LinkedBlocks,
    weights: Folder | None,
    number: int,
    advance: Callable[[int], None],
) -> None:
    """Join all edges of a block's core rows to a part."""
    record = blocks.records[number]
    if not found.rows.has(number):
        edges = gather(exchange, len(blocks), _COLUMNS, number)
        rows = (blocks.folder / record["name"]).read_array("rows.npy", 0, record["n_core"])
        part, linked, outside = _make_part(blocks, rows, edges)
        if weights is not None:
            part = part._replace(sizes=read_weights(weights, linked))
        found.level.save(number, part, outside=outside)
        found.rows.post(number, part, linked)
    advance(record["n_core"])


def _make_part(
    blocks: Blocks, rows: np.ndarray, edges: dict[str, np.ndarray]
) -> tuple[Part, np.ndarray, np.ndarray]:
    """Return a part without what it picks, and the rows of its nodes, own and outside."""
    is_mine = np.isin(edges["node"], rows)
    edge_node, other, home, weight = (edges[column][is_mine] for column in _COLUMNS)
    own, node = np.unique(edge_node, return_inverse=True)
    is_outside = ~np.isin(other, rows)
    outside = np.unique(other[is_outside])
    column = np.searchsorted(own, other)
    column[is_outside] = len(own) + np.searchsorted(outside, other[is_outside])
    n_nodes = len(own) + len(outside)
    graph = csr_array((weight, (node.reshape(-1), column)), shape=(n_nodes, n_nodes))
    # every block of an outside row's cell is offered its neighbours here, and read from
    cell_first, cell_count = _blocks_of_cells(blocks)
    cells = home[is_outside]
    count = cell_count[cells]
    order = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    targets = np.repeat(cell_first[cells], count) + order
    nodes = np.repeat(node.reshape(-1)[is_outside], count)
    offers, cuts = cut_offers(targets, nodes)
    arrays = {"sizes": np.ones(len(own)), "offers": offers, "cuts": cuts}
    sources = cuts[:, 0].astype(np.int32)
    return (
        Part.of(graph, len(own), **arrays, sources=sources, picked=np.empty(0, np.int32)),
        own,
        outside,
    )


def _meet(blocks: Blocks, found: LinkedBlocks, number: int, advance: Callable[[int], None]) -> None:
    """Find the outside nodes of a part in what the other parts offer."""
    level = found.level
    if not level.has(number):
        sources, outside = level.map(number, "sources"), level.map(number, "outside")
        offered = joined(found.rows.inbox(number, sources))
        order = np.argsort(offered, kind="stable")
        place = np.searchsorted(offered, outside, sorter=order)
        picked = order[np.minimum(place, len(order) - 1)] if len(order) else order
        if not np.array_equal(offered[picked], outside):
            raise CorruptFileError(f"{level.folder.path}: the blocks do not match; remove it.")
        level.save_picked(number, picked.astype(np.int32))
    advance(blocks.records[number]["n_core"])
