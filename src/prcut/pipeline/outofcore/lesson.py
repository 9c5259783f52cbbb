"""The rows that a partition on disk is distilled from: drawn from all blocks into one file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from prcut.graph.rows import divide_columns
from prcut.pipeline.outofcore.blocks import Blocks
from prcut.pipeline.outofcore.parts import Posts
from prcut.runtime.engine import Engine
from prcut.runtime.folder import Folder
from prcut.search.votes import N_VOTES, Votes
from prcut.training.batches import LabelledRows

_RECORD = "lesson.json"


class _Draw(NamedTuple):
    """How many rows every block gives, and which."""

    blocks: Blocks
    rows: Posts
    labels: Posts
    counts: list[int]
    seed: int
    key: str


def write_lesson(
    blocks: Blocks,
    rows: Posts,
    labels: Posts,
    folder: Folder,
    n_wanted: int,
    seed: int,
    engine: Engine,
    options: dict[str, Any],
) -> None:
    """Draw rows with their clusters from all blocks, in proportion to these."""
    key = f"{labels.key} {n_wanted} {seed}"
    if folder.is_sealed(_RECORD, key):
        return
    nodes = rows.level.first_nodes()
    counts = np.diff(nodes * min(n_wanted, int(nodes[-1])) // nodes[-1]).tolist()
    draw = _Draw(blocks, rows, labels, counts, seed, key)
    pieces = folder / "pieces"
    engine.run("lesson", partial(_draw_rows, draw, pieces), len(blocks), **options)
    _join_pieces(folder, pieces, draw)
    pieces.delete()


def open_lesson(folder: Folder, scales: np.ndarray | None) -> LabelledRows:
    """Open the rows; their features are mapped, not read, unless columns are divided."""
    labels = folder.read_array("labels.npy").astype(np.int64)
    features = divide_columns(folder.map_array("features.npy"), scales)
    return LabelledRows(features, torch.from_numpy(labels))


def _draw_rows(draw: _Draw, pieces: Folder, number: int, advance: Callable[[int], None]) -> None:
    rows = draw.rows.own(number)
    name = f"piece-{number:05d}"
    if not pieces.is_sealed(f"{name}.json", draw.key):
        rng = np.random.default_rng([draw.seed, 9, number])
        record = draw.blocks.records[number]
        block = draw.blocks.folder / record["name"]
        held = block.read_array("rows.npy", 0, record["n_core"])
        if "kept.npy" in record["files"]:
            held = held[block.read_array("kept.npy")]
        # nodes are rows with an edge
        _, nodes, places = np.intersect1d(rows, held, return_indices=True)
        n_drawn = min(draw.counts[number], len(nodes))
        some = np.sort(rng.choice(len(nodes), n_drawn, replace=False))
        drawn, features = nodes[some], block.map_array("features.npy")[places[some]]
        part = draw.labels.level.load(number)
        labels = draw.labels.all(number, part)  # no other starts are made of blocks
        votes = Votes(part.graph.links, labels, labels[None]).draw(drawn, rng)
        arrays = {"features": features, "labels": votes}
        files = {f"{name}.{array}.npy": arrays[array] for array in arrays}
        pieces.seal(f"{name}.json", files, {"key": draw.key, "n_rows": n_drawn})
    advance(len(rows))


def _join_pieces(folder: Folder, pieces: Folder, draw: _Draw) -> None:
    """Join the pieces of all blocks, one at a time, in the order of the blocks."""
    names = [f"piece-{number:05d}" for number in range(len(draw.blocks))]
    n_rows = sum(int(pieces.read_json(f"{name}.json")["n_rows"]) for name in names)

    def read(array: str) -> Any:
        return map(pieces.read_array, (f"{name}.{array}.npy" for name in names))

    shapes = {"features": (n_rows, draw.blocks.n_features), "labels": (n_rows, N_VOTES)}
    dtypes = {"features": np.dtype(draw.blocks.dtype), "labels": np.dtype(np.int32)}
    files = {
        f"{name}.npy": folder.write_arrays(f"{name}.npy", shapes[name], dtypes[name], read(name))
        for name in shapes
    }
    folder.write_json(_RECORD, {"key": draw.key, "files": files})
