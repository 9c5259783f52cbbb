"""Blocks on disk: the neighbour graph of more rows than memory holds, one block at a time.

The *core* of a block is a set of rows that are close to each other, its *halo* the rows near them
that are core rows of other blocks. Every core row finds its neighbours inside core + halo, so both
ends of each edge are in the block that found it and no row is ever fetched at random::

    plan.json           what is being built, from what
    centroids.json/.npy one centroid per coarse cell
    exchange/           rows on their way to their cells; removed at the end
    block-00000/        rows, home, features, anchors, neighbors, distances, (kept), (ids) as .npy,
                        and block.json
    manifest.json       written last: every block with sizes and checksums

:func:`prcut.pipeline.outofcore.build_blocks.build_blocks` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np

from prcut.errors import CorruptFileError
from prcut.graph.build import Similarity, edge_similarity
from prcut.graph.neighbors import Metric, Neighbors
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runtime.folder import Folder, finite_number, parsing, whole_number

BLOCKS_FORMAT = 2
# numbers that are checked for NaN at a time
_CHECKED_NUMBERS = 2**20
_FEATURES = "features.npy"


def open_blocks(path: str | Path) -> Blocks:
    """Open the blocks that ``build_blocks`` has built in ``path``."""
    return Blocks(Folder(path))


def _read_scales(scales: Any, n_features: int) -> np.ndarray | None:
    """Return what columns were divided by; ValueError where it is not a number for each."""
    if scales is None:
        return None
    read = np.asarray([finite_number(scale) for scale in scales], np.float32)
    if len(read) != n_features or not (read > 0).all():
        raise ValueError(f"{len(read)} scales of {n_features} columns")
    return read


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
            # of all rows, with their halos
            self.scales = _read_scales(plan["config"].get("scales"), self.n_features)
            self.records: list[dict[str, Any]] = list(manifest["blocks"])
            for record in self.records:
                for name in ("n_core", "n_halo", "n_anchors"):
                    whole_number(record[name])
                folder / record["name"]
        self.folder = folder

    def __repr__(self) -> str:
        return (
            f"Blocks(n_samples={self.n_samples}, n_features={self.n_features}, "
            f"n_blocks={len(self)}, path={self.folder.path!r})"
        )

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> Block:
        """Open a block and verify its checksums."""
        record = self.records[number]
        block = self.open(number)
        if block.features.shape[1] != self.n_features:
            raise CorruptFileError(
                f"{self.folder.path}/{record['name']} has n_features={block.features.shape[1]}, "
                f"the manifest says {self.n_features}. Remove it and run again."
            )
        return block

    def open(self, number: int, *, with_features: bool = True) -> Block:
        """Open a block; without its features, which are most of it, none of them is read."""
        record = self.records[number]
        if not with_features:
            files = {name: file for name, file in record["files"].items() if name != _FEATURES}
            record = {**record, "files": files}
        return Block(self.folder / record["name"], record, self.metric)

    def __iter__(self) -> Iterator[Block]:
        return (self[number] for number in range(len(self)))


class Block:
    """One block: arrays mapped from disk, and its graph.

    Attributes
    ----------
    rows : int64 array, shape (n_core + n_halo,)
        Row numbers in the source, core rows first, in ascending order.
    home : int32 array, shape (n_core + n_halo,)
        The cell in whose blocks each row is a core row.
    features : float array, shape (n_core + n_halo, n_features), or (len(kept), n_features)
    kept : int32 array, optional
        Positions of the rows that ``features`` holds, all of them core; None if these are all rows.
    anchors : int32 array, shape (n_anchors,)
        Positions in the block, all of them core, of the rows that looked for neighbours.
    neighbors : int32 array, shape (n_anchors, n_neighbors)
        Positions in the block of the neighbours of every anchor; -1 where there are fewer.
    distances : float32 array, shape (n_anchors, n_neighbors)
    """

    def __init__(self, folder: Folder, record: dict[str, Any], metric: Metric) -> None:
        folder.verify(record)
        self.metric = metric
        with parsing(f"the record of {folder.path}"):
            self.n_core = whole_number(record["n_core"])
            self.recall = float(record["recall"])
        self.rows = folder.map_array("rows.npy")
        # blocks of format 1 do not have it
        has_home = "home.npy" in record["files"]
        self.home = folder.map_array("home.npy") if has_home else np.full(len(self.rows), -1)
        self.kept = folder.map_array("kept.npy") if "kept.npy" in record["files"] else None
        self.n_kept = len(self.rows) if self.kept is None else len(self.kept)
        has_features = _FEATURES in record["files"]
        nothing = np.empty((self.n_kept, 0), np.float32)
        self.features = folder.map_array(_FEATURES) if has_features else nothing
        self.anchors = folder.map_array("anchors.npy")
        self.neighbors = folder.map_array("neighbors.npy")
        self.distances = folder.map_array("distances.npy")
        if fault := self._find_fault():
            raise CorruptFileError(
                f"{folder.path} is altered or forged: {fault}. Remove it and run again."
            )

    def _find_fault(self) -> str | None:
        """Describe the first contradiction between the arrays: checksums do not show those."""
        n_rows, n_anchors = len(self.rows), len(self.anchors)
        for name, kind, shape in (
            ("rows", "i", (n_rows,)),
            ("home", "i", (n_rows,)),
            ("features", "f", (self.n_kept, *self.features.shape[1:2])),
            ("anchors", "i", (n_anchors,)),
            ("neighbors", "i", (n_anchors, *self.neighbors.shape[1:2])),
            ("distances", "f", self.neighbors.shape),
        ):
            array = getattr(self, name)
            if array.dtype.kind != kind or array.shape != shape:
                return f"{name} has shape {array.shape} and dtype {array.dtype}"
        if self.n_core > n_rows:
            return f"n_core={self.n_core} of {n_rows} rows"
        ranges = [("anchors", 0, self.n_core), ("neighbors", -1, n_rows), ("kept", 0, self.n_core)]
        for name, low, high in ranges[: 2 if self.kept is None else 3]:
            array = getattr(self, name)
            if array.size and not low <= array.min() <= array.max() < high:
                return f"{name} lie in [{array.min()}, {array.max()}], expected [{low}, {high})"
        step = max(1, _CHECKED_NUMBERS // max(1, self.features.shape[1]))
        for start in range(0, self.n_kept, step):
            if not np.isfinite(self.features[start : start + step]).all():
                return "features hold NaN or infinity"
        return None

    def graph(self, similarity: Similarity = "binary") -> SimilarityGraph:
        """Return the block's edges as a graph over its rows, each direction counted half.

        An edge between two anchors of different blocks is found in both: over all blocks the edges
        add up to (A + Aᵀ)/2, where A holds the weights from every anchor to its neighbours. The
        either-or kernel would need the neighbours of both ends, so "binary" equals "mean" here.
        """
        ends = self.anchors.astype(np.int64), self.neighbors.astype(np.int64)
        found = Neighbors(*ends, np.asarray(self.distances), metric=self.metric)
        weight = edge_similarity(found, similarity, features=self.features)
        neighbors = np.full((len(self.rows), weight.shape[1]), -1, np.int32)
        all_weights = np.zeros(neighbors.shape, np.float32)
        neighbors[found.rows], all_weights[found.rows] = found.indices, weight
        return SimilarityGraph.from_neighbors(neighbors, all_weights, symmetrize="mean")
