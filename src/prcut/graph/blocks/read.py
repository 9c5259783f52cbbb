"""Blocks on disk: the neighbour graph of more rows than memory holds, one block at a time.

The *core* of a block is a set of rows that are close to each other, its *halo* the rows near them
that are core rows of other blocks. Every core row finds its neighbours inside core + halo, so both
ends of each edge are in the block that found it and no row is ever fetched at random::

    plan.json           what is being built, from what
    centroids.json/.npy one centroid per coarse cell
    exchange/           rows on their way to their cells; removed at the end
    block-00000/        rows, features, anchors, neighbors, distances, (kept), and block.json
    manifest.json       written last: every block with sizes and checksums

:func:`prcut.graph.blocks.build.build_blocks` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from prcut.graph.build import Similarity, edge_similarity
from prcut.graph.neighbors import Metric, Neighbors
from prcut.runtime.folder import Folder, finite_number, parsing, whole_number

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCKS_FORMAT = 2


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
