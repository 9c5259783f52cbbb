"""Blocks on disk: the neighbour graph of more rows than memory holds.

Rows are grouped once by coarse cell. The *core* of a block are the rows nearest to its centroid,
its *halo* the rows that have the centroid among their ``halo`` nearest. Every core row finds its
neighbours inside core + halo, so both ends of each edge are in the block that found it and nothing
is ever fetched at random::

    plan.json           what is being built, from what
    centroids.npy       one per cell
    exchange/           rows on their way to their cells; removed at the end
    block-00000/        rows, features, anchors, neighbors, distances, (ids) as .npy, and block.json
    manifest.json       written last: every block with sizes and checksums

Each file is whole or not there, each step is skipped where its result is valid: a killed run is
finished by running it again, with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from prcut.cells import nearest_cells, train_centroids
from prcut.engine import Engine, Here
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.exchange import bucket_counts, gather, is_scattered, scatter
from prcut.graph import SimilarityGraph
from prcut.memory import LARGEST_BLOCK
from prcut.neighbors import Metric, Neighbors, draw_anchors, find_neighbors
from prcut.progress import Progress
from prcut.similarity import Similarity, edge_similarity
from prcut.sources import Source, cut_pieces, open_source, piece_rows, sample_rows
from prcut.storage import Folder, parsing, plan_key, whole_number
from prcut.validation import check_positive_int

__all__ = ["Block", "BlockConfig", "Blocks", "build_blocks", "open_blocks"]

_FORMAT = 1
# rows to train centroids on
_TRAIN_ROWS_PER_CELL, _MIN_TRAIN_ROWS = 64, 2**14
# numbers looked at together, for NaN
_CHECKED_NUMBERS = 2**20


@dataclass(frozen=True)
class BlockConfig:
    """How blocks are built.

    Parameters
    ----------
    n_neighbors : int
    metric : {"euclidean", "cosine", "inner_product"}
    block_rows : int
        Core rows of a block in the mean; none has more than twice as many.
    halo : int
        Cells a row is a candidate in, its own included. Work and disk grow with it, and so does the
        share of the true neighbours that are found: more cells need more.
    anchors : float in (0, 1], optional
        Share of the core rows that look for neighbours (all rows are found). By default all up to
        a million rows; beyond, a million or a tenth, whichever is more.
    recall : float
        Share of the neighbours inside a block that its search must find.
    seed : int
    """

    n_neighbors: int = 15
    metric: Metric = "euclidean"
    block_rows: int = 100_000
    halo: int = 4
    anchors: float | None = None
    recall: float = 0.98
    seed: int = 0

    @property
    def max_core_rows(self) -> int:
        """Core rows of the largest block there may be."""
        return 2 * self.block_rows

    @property
    def max_rows(self) -> int:
        """Rows of the largest block there may be, with its halo."""
        return max(self.max_core_rows, int(LARGEST_BLOCK * self.halo * self.block_rows))

    def __post_init__(self) -> None:
        for name in ("n_neighbors", "block_rows", "halo"):
            check_positive_int(name, getattr(self, name))
        if self.anchors is not None and not 0 < self.anchors <= 1:
            raise InvalidInputError(f"anchors={self.anchors} must be in (0, 1].")


class _Plan(NamedTuple):
    """What every step needs to know; the key changes with any of it."""

    config: BlockConfig
    n_samples: int
    n_features: int
    dtype: str
    fingerprint: str
    has_ids: bool
    cuts: np.ndarray

    @property
    def key(self) -> str:
        return plan_key(self.to_json())

    @property
    def n_pieces(self) -> int:
        return len(self.cuts) - 1

    @property
    def columns(self) -> list[str]:
        return ["rows", "features", *(["ids"] if self.has_ids else [])]

    def to_json(self) -> dict[str, Any]:
        # a resumed run must cut the rows where the first one did
        cuts = plan_key(self.cuts.tolist())
        own = {"config": asdict(self.config), "format": _FORMAT, "cuts": cuts}
        return {**self._asdict(), **own}

    def piece(self, piece: int) -> tuple[int, int]:
        return int(self.cuts[piece]), int(self.cuts[piece + 1])


def build_blocks(
    data: Any,
    path: str | Path,
    config: BlockConfig | None = None,
    *,
    column: str | None = None,
    id_column: str | None = None,
    filesystem: Any = None,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Blocks:
    """Build the blocks of ``data`` in the folder ``path``, or finish what an earlier run began.

    Parameters
    ----------
    data : array, or path or URI of a .npy file, a Parquet file, or a folder of Parquet files
        See :func:`prcut.sources.open_source`, also for ``column``, ``id_column`` and
        ``filesystem``. It is streamed; memory holds one piece of it, or one block.
    path : str or path
        A folder of its own, local or a URI of any pyarrow filesystem.
    config : BlockConfig
    engine : Engine, optional
        Where pieces and blocks are made; by default here.
    on_progress : callable, optional
        Called with a :class:`Progress` after every piece and block.

    Examples
    --------
    >>> import tempfile
    >>> rows = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
    >>> config = BlockConfig(n_neighbors=5, block_rows=250)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     blocks = build_blocks(rows, folder, config)
    ...     sum(block["n_core"] for block in blocks.records) == 1000
    True
    """
    config = config or BlockConfig()
    source = open_source(data, column=column, id_column=id_column, filesystem=filesystem)
    if source.n_samples == 0 or source.n_features == 0:
        raise InvalidInputError(
            f"data has n_samples={source.n_samples} rows and n_features={source.n_features} "
            "columns, expected at least one of each."
        )
    plan = _Plan(
        config=config,
        n_samples=source.n_samples,
        n_features=source.n_features,
        dtype=source.dtype.name,
        fingerprint=source.fingerprint,
        has_ids=source.read_ids(0, 1) is not None,
        cuts=cut_pieces(source, piece_rows(source)),
    )
    folder = Folder(path)
    folder.start(plan.to_json())
    exchange = folder / "exchange"
    if folder.exists("manifest.json") and _is_finished(open_blocks(path), plan):
        exchange.delete()
        return open_blocks(path)
    engine = engine or Here()
    centroids = _centroids(folder, source, plan)
    options: dict[str, Any] = {"total": plan.n_samples, "on_progress": on_progress}
    scatter_piece = partial(_scatter_piece, exchange, source, plan, centroids)
    engine.run("scatter", scatter_piece, plan.n_pieces, **options)
    layout = _layout(bucket_counts(exchange, plan.n_pieces), plan.config)
    gather_block = partial(_gather_block, folder, exchange, plan, layout)
    engine.run("gather", gather_block, len(layout), **options)
    records = [{"name": name, **_record(folder / name)} for name in map(_name, range(len(layout)))]
    found = sum(record["n_core"] for record in records)
    if found != plan.n_samples:
        raise CorruptFileError(f"{folder} holds {found} core rows of {plan.n_samples}.")
    folder.write_json(
        "manifest.json",
        {"key": plan.key, "plan": plan.to_json(), "prcut": version("prcut"), "blocks": records},
    )
    exchange.delete()
    return open_blocks(path)


def _is_finished(blocks: Blocks, plan: _Plan) -> bool:
    return all(
        (blocks.folder / record["name"]).is_sealed("block.json", plan.key)
        for record in blocks.records
    )


# -- cells -----------------------------------------------------------------------------------


def _centroids(folder: Folder, source: Source, plan: _Plan) -> np.ndarray:
    """One per cell, by k-means on a sample; made once."""
    if not folder.is_sealed("centroids.json", plan.key):
        n_cells = -(-plan.n_samples // plan.config.block_rows)
        n_train = max(_MIN_TRAIN_ROWS, n_cells * _TRAIN_ROWS_PER_CELL)
        sample = sample_rows(source, n_train, [plan.config.seed, 0])
        limit = plan.config.max_core_rows * len(sample) / plan.n_samples
        centroids = train_centroids(sample, n_cells, limit, plan.config.metric, plan.config.seed)
        folder.seal("centroids.json", {"centroids.npy": centroids}, {"key": plan.key})
    return folder.read_array("centroids.npy")


def _scatter_piece(
    exchange: Folder,
    source: Source,
    plan: _Plan,
    centroids: np.ndarray,
    piece: int,
    advance: Callable[[int], None],
) -> None:
    """Send every row of a piece to its nearest cells; a bucket is a cell and a rank in nearness."""
    start, stop = plan.piece(piece)
    if is_scattered(exchange, piece, plan.key):
        return advance(stop - start)
    features = source.read(start, stop)
    columns = {"features": features, "rows": np.arange(start, stop)}
    if (ids := source.read_ids(start, stop)) is not None:
        columns["ids"] = _plain_ids(ids)
    halo = plan.config.halo
    n_nearest = min(halo, len(centroids))
    cells = nearest_cells(centroids, features, n_nearest, plan.config.metric)
    bucket = halo * cells + np.arange(n_nearest)
    copies = np.repeat(np.arange(stop - start), n_nearest)
    scatter(exchange, piece, columns, copies, bucket.ravel(), halo * len(centroids), plan.key)
    return advance(stop - start)


def _plain_ids(ids: Any) -> np.ndarray:
    """Integers as they are, strings as UTF-8 bytes of fixed width: both can be mapped."""
    array: np.ndarray = ids.to_numpy(zero_copy_only=False)
    return array if array.dtype.kind in "iu" else np.char.encode(array.astype(np.str_), "utf-8")


class _Share(NamedTuple):
    """Every ``n_parts``-th row of a bucket, from ``part`` on."""

    bucket: int
    part: int
    n_parts: int


def _layout(count: np.ndarray, config: BlockConfig) -> list[list[_Share]]:
    """Which buckets make up every block, its core first.

    No block exceeds twice the mean in core rows, nor 1.5 of it in all: of more blocks the largest
    would be larger, and memory grow with the data. A cell with more core rows is thinned into
    several blocks: that is left to cells k-means could not split, such as thousands of copies of
    one row. Of a centroid near everything the nearest ranks of the halo are kept.
    """
    limit = config.max_core_rows
    layout = []
    for cell, ranks in enumerate(count.reshape(-1, config.halo)):
        n_parts = -(-int(ranks[0]) // limit)
        for part in range(n_parts):
            shares, room = [], config.max_rows
            for rank, n_rows in enumerate(ranks.tolist()):
                if n_rows == 0 or room <= 0:
                    continue
                stride = max(n_parts, -(-n_rows // room))
                shares.append(_Share(config.halo * cell + rank, part % stride, stride))
                room -= -(-n_rows // stride)
            layout.append(shares)
    return layout


def _gather_block(
    folder: Folder,
    exchange: Folder,
    plan: _Plan,
    layout: list[list[_Share]],
    number: int,
    advance: Callable[[int], None],
) -> None:
    """Collect a block's rows and find the neighbours of its anchors."""
    config, shares = plan.config, layout[number]
    block = folder / _name(number)
    if block.is_sealed("block.json", plan.key):
        return advance(int(_record(block)["n_core"]))
    core, *halo = (
        gather(exchange, plan.n_pieces, plan.columns, one.bucket, one.part, one.n_parts)
        for one in shares
    )
    n_core = len(core["rows"])
    features = np.concatenate([ranked.pop("features") for ranked in (core, *halo)])
    share = config.anchors or min(1.0, max(0.1, 1e6 / plan.n_samples))
    anchors = draw_anchors(n_core, share, np.random.default_rng([config.seed, 1, number]))
    neighbors = np.full((len(anchors), config.n_neighbors), -1, np.int32)
    distances = np.full(neighbors.shape, np.inf, np.float32)
    recall = 1.0
    n_found = min(config.n_neighbors, len(features) - 1)
    if n_found > 0:
        found = find_neighbors(
            features,
            n_found,
            rows=anchors,
            metric=config.metric,
            recall=config.recall,
            seed=config.seed,
        )
        neighbors[:, :n_found], distances[:, :n_found] = found.indices, found.distances
        recall = found.recall
    arrays = {
        "rows.npy": np.concatenate([ranked["rows"] for ranked in (core, *halo)]),
        "features.npy": features,
        "anchors.npy": anchors.astype(np.int32),
        "neighbors.npy": neighbors,
        "distances.npy": distances,
    }
    if plan.has_ids:
        arrays["ids.npy"] = core["ids"]
    block.seal(
        "block.json",
        arrays,
        {
            "key": plan.key,
            "cell": shares[0].bucket // config.halo,
            "n_core": n_core,
            "n_halo": len(features) - n_core,
            "n_anchors": len(anchors),
            "recall": round(float(recall), 4),
        },
    )
    return advance(n_core)


def _name(number: int) -> str:
    return f"block-{number:05d}"


def _record(block: Folder) -> dict[str, Any]:
    record = block.read_record("block.json")
    if record is None:
        raise CorruptFileError(f"{block.path}/block.json is missing; run again.")
    return record


# -- reading ---------------------------------------------------------------------------------


class Block:
    """One block: arrays mapped from disk, and its graph.

    Attributes
    ----------
    rows : int64 array, shape (n_core + n_halo,)
        Row numbers in the source, core rows first.
    features : float array, shape (n_core + n_halo, n_features)
    anchors : int32 array, shape (n_anchors,)
        Places in the block, all of them core, of the rows that looked for neighbours.
    neighbors : int32 array, shape (n_anchors, n_neighbors)
        Places in the block of the neighbours of every anchor; -1 where there are fewer.
    distances : float32 array, shape (n_anchors, n_neighbors)
    ids : array, shape (n_core,), or None
        Integers, or UTF-8 bytes.
    """

    def __init__(self, folder: Folder, record: dict[str, Any], metric: Metric) -> None:
        folder.verify(record)
        self.metric = metric
        with parsing(f"the record of {folder.path}"):
            self.n_core = whole_number(record["n_core"])
            self.recall = float(record["recall"])
        self.rows = folder.map_array("rows.npy")
        self.features = folder.map_array("features.npy")
        self.anchors = folder.map_array("anchors.npy")
        self.neighbors = folder.map_array("neighbors.npy")
        self.distances = folder.map_array("distances.npy")
        self.ids = folder.map_array("ids.npy") if "ids.npy" in record["files"] else None
        if wrong := self._wrong():
            raise CorruptFileError(
                f"{folder.path} is altered or forged: {wrong}. Remove it and run again."
            )

    def _wrong(self) -> str | None:
        """The first way in which the arrays do not fit each other, which checksums cannot tell."""
        n_rows, n_anchors = len(self.rows), len(self.anchors)
        for name, kind, shape in (
            ("rows", "i", (n_rows,)),
            ("features", "f", (n_rows, *self.features.shape[1:2])),
            ("anchors", "i", (n_anchors,)),
            ("neighbors", "i", (n_anchors, *self.neighbors.shape[1:2])),
            ("distances", "f", self.neighbors.shape),
        ):
            array = getattr(self, name)
            if array.dtype.kind != kind or array.shape != shape:
                return f"{name} has shape {array.shape} and dtype {array.dtype}"
        if not self.n_core <= n_rows or (self.ids is not None and self.ids.shape != (self.n_core,)):
            return f"n_core={self.n_core} of {n_rows} rows"
        for name, low, high in (("anchors", 0, self.n_core), ("neighbors", -1, n_rows)):
            array = getattr(self, name)
            if array.size and not low <= array.min() <= array.max() < high:
                return f"{name} lie in [{array.min()}, {array.max()}], expected [{low}, {high})"
        step = max(1, _CHECKED_NUMBERS // max(1, self.features.shape[1]))
        for start in range(0, n_rows, step):
            if not np.isfinite(self.features[start : start + step]).all():
                return "features hold NaN or infinity"
        return None

    def graph(
        self, similarity: Similarity = "binary", *, temperature: float = 0.5
    ) -> SimilarityGraph:
        """The block's edges as a graph over its rows, each direction counted half.

        An edge between two anchors of different blocks is found in both: over all blocks the edges
        add up to (A + Aᵀ)/2, A the weights from every anchor to its neighbours. The either-or
        kernel would need both lists in one place, so "binary" and "mean" are the same here.

        Parameters
        ----------
        similarity, temperature
            As for :func:`prcut.similarity.build_graph`.
        """
        found = Neighbors(
            self.anchors.astype(np.int64),
            self.neighbors.astype(np.int64),
            np.asarray(self.distances),
            metric=self.metric,
        )
        weight = edge_similarity(found, similarity, temperature=temperature, features=self.features)
        neighbors = np.full((len(self.rows), weight.shape[1]), -1, np.int32)
        all_weights = np.zeros(neighbors.shape, np.float32)
        neighbors[found.rows], all_weights[found.rows] = found.indices, weight
        return SimilarityGraph.from_neighbors(neighbors, all_weights, symmetrize="mean")


class Blocks:
    """The blocks of a data set, opened one at a time by number.

    >>> import tempfile
    >>> rows = np.random.default_rng(0).standard_normal((500, 4)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     blocks = build_blocks(rows, folder, BlockConfig(n_neighbors=3, block_rows=100))
    ...     first = blocks[0]
    ...     bool((rows[first.rows] == first.features).all())
    True
    """

    def __init__(self, folder: Folder) -> None:
        manifest = folder.read_manifest(_FORMAT, "build_blocks")
        with parsing(f"{folder.path}/manifest.json"):
            plan = manifest["plan"]
            self.key = str(manifest["key"])
            self.n_samples = whole_number(plan["n_samples"])
            self.n_features = whole_number(plan["n_features"])
            self.dtype = str(plan["dtype"])
            self.metric: Metric = plan["config"]["metric"]
            if self.dtype not in ("float16", "float32") or self.metric not in get_args(Metric):
                raise ValueError(f"dtype {self.dtype} and metric {self.metric}")
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
        """Open a block, its checksums verified."""
        record = self.records[number]
        block = Block(self.folder / record["name"], record, self.metric)
        if block.features.shape[1] != self.n_features:
            raise CorruptFileError(
                f"{self.folder.path}/{record['name']} has n_features={block.features.shape[1]}, "
                f"the manifest says {self.n_features}. Remove it and run again."
            )
        return block

    def __iter__(self) -> Iterator[Block]:
        return (self[number] for number in range(len(self)))


def open_blocks(path: str | Path) -> Blocks:
    """The blocks that :func:`build_blocks` has built in ``path``."""
    return Blocks(Folder(path))
