"""Build the graph of data larger than memory, block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prcut.errors import InvalidInputError, check_positive_int
from prcut.graph.blocks.cells import Packing, choose_unit, nearest_cells, train_centroids
from prcut.graph.blocks.read import BLOCKS_FORMAT, Blocks
from prcut.graph.neighbors import Metric, draw_anchors, find_neighbors
from prcut.graph.rows import divide_columns
from prcut.runtime.engine import Engine, LocalEngine
from prcut.runtime.folder import Folder, plan_key
from prcut.runtime.progress import Progress
from prcut.runtime.shuffle import bucket_counts, gather, is_scattered, scatter
from prcut.runtime.sources import Source, cut_row_ranges, open_source, rows_per_read, sample_rows

# measured: neighbours, weights, both directions and the copies made while they are joined
_BYTES_PER_LINK = 100
# a smaller block finds too few of the true neighbours; a larger one gains nothing
_MIN_BLOCK_ROWS, _MAX_BLOCK_ROWS = 1_000, 100_000
# of few blocks each sees much of the data in its halo, and compares its rows with all of that
_MANY_BLOCKS, _ENOUGH_BLOCK_ROWS = 64, 10_000
# rows of the largest block with its halo, relative to the mean
_LARGEST_BLOCK = 1.5


def bytes_in_memory(n_samples: int, n_features: int, itemsize: int, n_neighbors: int) -> int:
    """Bound the bytes of features, neighbours and graph while the graph is built.

    >>> bytes_in_memory(1_000_000, 128, 4, 15) / 1e9
    2.524
    """
    # the features are held twice: as they came, and as the search's copy in float32
    return n_samples * (n_features * (itemsize + 4) + n_neighbors * _BYTES_PER_LINK)


def most_block_rows(n_samples: int) -> int:
    """Return the rows that a block has where there is memory enough.

    >>> [most_block_rows(n_samples) for n_samples in (10**5, 10**6, 10**9)]
    [10000, 15625, 100000]
    """
    return min(_MAX_BLOCK_ROWS, max(_ENOUGH_BLOCK_ROWS, n_samples // _MANY_BLOCKS))


def choose_block_rows(
    memory: int, n_samples: int, n_features: int, itemsize: int, n_neighbors: int, *, halo: int
) -> int:
    """Choose the rows of a block: the largest one with its halo takes at most ``memory`` bytes.

    >>> choose_block_rows(8 * 10**9, 10**8, 128, 4, 15, halo=4)
    100000
    >>> choose_block_rows(10**9, 10**8, 128, 4, 15, halo=4)
    81859
    """
    # rows with their halo are read, joined and searched; core rows may be twice the mean
    rows = max(2.0, _LARGEST_BLOCK * halo) * n_features * (2 * itemsize + 4)
    row = int(rows + 2 * n_neighbors * _BYTES_PER_LINK)
    least = max(_MIN_BLOCK_ROWS, 10 * n_neighbors)
    return max(least, min(most_block_rows(n_samples), memory // row))


def anchor_fraction(n_samples: int) -> float:
    """Return the fraction of the rows that look for neighbours: a million, or a tenth if more."""
    return min(1.0, max(0.1, 1e6 / n_samples))


# rows to train centroids on
_TRAIN_ROWS_PER_CELL, _MIN_TRAIN_ROWS = 64, 2**14


@dataclass(frozen=True)
class BlockConfig:
    """Options of :func:`build_blocks`.

    Parameters
    ----------
    block_rows : int
        Mean number of core rows per block; none has more than twice as many.
    halo : int
        Cells in which a row is a candidate, its own included. Work and disk grow with it, and so
        does the fraction of the true neighbours that are found: more cells need more.
    anchors : float in (0, 1], optional
        Fraction of the core rows that look for neighbours (any row can be found). By default all up
        to a million rows; beyond, a million or a tenth, whichever is more.
    recall : float
        Fraction of the neighbours inside a block that its search must find.
    scales : tuple of float, optional
        What columns are divided by where rows are compared; blocks hold them as they come.
    kept : int, optional
        Rows, of all, whose features blocks keep, drawn at random: enough to learn from. Rows then
        travel in half precision, relative to their cell. By default blocks keep all rows, with
        their halos, as they come.
    """

    n_neighbors: int = 15
    metric: Metric = "euclidean"
    block_rows: int = 100_000
    halo: int = 4
    anchors: float | None = None
    recall: float = 0.98
    seed: int = 0
    scales: tuple[float, ...] | None = None
    kept: int | None = None

    def __post_init__(self) -> None:
        for name in ("n_neighbors", "block_rows", "halo"):
            check_positive_int(name, getattr(self, name))
        if self.kept is not None:
            check_positive_int("kept", self.kept)
        if self.anchors is not None and not 0 < self.anchors <= 1:
            raise InvalidInputError(f"anchors={self.anchors} must be in (0, 1].")


def build_blocks(
    data: Any,
    path: str | Path,
    config: BlockConfig | None = None,
    *,
    column: str | None = None,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Blocks:
    """Build the blocks of ``data`` in the folder ``path``, or finish what an earlier run began.

    Parameters
    ----------
    data : array, path or URI of a .npy file, a Parquet file or a folder of them, or Source
        See :func:`prcut.runtime.sources.open_source`, also for ``column``. It is streamed; memory
        holds one block.
    path : str or path
        A folder of its own, local or a URI of any pyarrow filesystem.
    engine : Engine, optional
        Where tasks run; by default in this process.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress` after every task.

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
    source = open_source(data, column=column)
    if source.n_samples == 0 or source.n_features == 0:
        raise InvalidInputError(
            f"data has n_samples={source.n_samples} rows and n_features={source.n_features} "
            "columns, expected at least one of each."
        )
    config = config or BlockConfig()
    cuts = cut_row_ranges(source, rows_per_read(source))
    plan = {
        "format": BLOCKS_FORMAT,
        "config": asdict(config),
        "n_samples": source.n_samples,
        "n_features": source.n_features,
        "dtype": source.dtype.name,
        "fingerprint": source.fingerprint,
        # a resumed run must cut the rows where the first one did
        "cuts": plan_key(cuts.tolist()),
    }
    job = _Job(Folder(path), plan_key(plan), config, source, cuts)
    job.folder.start(plan)
    is_finished = job.folder.exists("manifest.json") and all(
        (job.folder / record["name"]).is_sealed("block.json", job.key)
        for record in Blocks(job.folder).records
    )
    if not is_finished:
        engine = engine or LocalEngine()
        run: Any = partial(engine.run, total=source.n_samples, on_progress=on_progress)
        centroids, packing = _make_centroids(job)
        run("scatter", partial(_scatter_range, job, centroids, packing), job.n_ranges)
        layout = _layout(bucket_counts(job.exchange, job.n_ranges), config)
        run("gather", partial(_gather_block, job, packing, layout), len(layout))
        names = map(_name, range(len(layout)))
        records = [{"name": name, **(job.folder / name).read_json("block.json")} for name in names]
        made = {"key": job.key, "plan": plan, "prcut": version("prcut"), "blocks": records}
        job.folder.write_json("manifest.json", made)
    job.exchange.delete()
    return Blocks(job.folder)


class _Job(NamedTuple):
    """Settings of every task; ``key`` changes with any of them that changes a result."""

    folder: Folder
    key: str
    config: BlockConfig
    source: Source
    cuts: np.ndarray  # where the source is cut into ranges that are read at a time

    @property
    def exchange(self) -> Folder:
        return self.folder / "exchange"

    @property
    def n_ranges(self) -> int:
        return len(self.cuts) - 1


def _name(number: int) -> str:
    return f"block-{number:05d}"


def _make_centroids(job: _Job) -> tuple[np.ndarray, Packing | None]:
    """Train one centroid per cell on a sample, once, and choose how rows are packed."""
    folder, config, source = job.folder, job.config, job.source
    if not folder.is_sealed("centroids.json", job.key):
        n_cells = -(-source.n_samples // config.block_rows)
        n_train = max(_MIN_TRAIN_ROWS, n_cells * _TRAIN_ROWS_PER_CELL)
        sample = sample_rows(source, n_train, [config.seed, 0])
        limit = 2 * config.block_rows * len(sample) / source.n_samples
        compared = divide_columns(sample, config.scales)
        centroids = train_centroids(compared, n_cells, limit, config.metric, config.seed)
        arrays = {"centroids.npy": centroids, "unit.npy": choose_unit(sample)}
        folder.seal("centroids.json", arrays, {"key": job.key})
    centroids, unit = folder.read_array("centroids.npy"), folder.read_array("unit.npy")
    if config.kept is None or source.dtype.itemsize <= 2:
        return centroids, None
    return centroids, Packing.of(centroids, unit, config.metric, config.scales)


def _scatter_range(
    job: _Job,
    centroids: np.ndarray,
    packing: Packing | None,
    number: int,
    advance: Callable[[int], None],
) -> None:
    """Send the rows of a row range to their nearest cells.

    A bucket is a cell and the rank of that cell among the nearest of a row.
    """
    start, stop = job.cuts[number : number + 2].tolist()
    if not is_scattered(job.exchange, number, job.key):
        features = job.source.read(start, stop)
        halo = job.config.halo
        n_nearest = min(halo, len(centroids))
        compared = divide_columns(features, job.config.scales)
        cells = nearest_cells(centroids, compared, n_nearest, job.config.metric)
        bucket = (halo * cells + np.arange(n_nearest)).ravel()
        rows = np.repeat(np.arange(start, stop), n_nearest)
        copies = features[rows - start]
        if packing is not None:
            copies = packing.pack(copies, cells.ravel())
        columns = {"features": copies, "rows": rows}
        scatter(job.exchange, number, columns, bucket, halo * len(centroids), job.key)
    advance(stop - start)


# (bucket, start, step): every step-th row of a bucket, beginning with row start
_Slice = tuple[int, int, int]


def _layout(count: np.ndarray, config: BlockConfig) -> list[list[_Slice]]:
    """Choose the slices of buckets that make up every block, its core first.

    No block has more than twice the mean number of core rows, nor more than 1.5 times the mean
    number of rows in all; otherwise the largest block, and the memory, would grow with the data. A
    cell with too many core rows is dealt out to several blocks: that concerns only cells k-means
    could not split, such as thousands of copies of one row. If a halo is too large, its nearest
    ranks are kept.
    """
    max_core_rows = 2 * config.block_rows
    max_rows = max(max_core_rows, int(_LARGEST_BLOCK * config.halo * config.block_rows))
    layout = []
    for cell, ranks in enumerate(count.reshape(-1, config.halo).tolist()):
        n_blocks = -(-ranks[0] // max_core_rows)
        for number in range(n_blocks):
            slices, room = [], max_rows
            for rank, n_rows in enumerate(ranks):
                if n_rows == 0 or room <= 0:
                    continue
                step = max(n_blocks, -(-n_rows // room))
                slices.append((config.halo * cell + rank, number % step, step))
                room -= -(-n_rows // step)
            layout.append(slices)
    return layout


def _gather_block(
    job: _Job,
    packing: Packing | None,
    layout: list[list[_Slice]],
    number: int,
    advance: Callable[[int], None],
) -> None:
    """Write a block, unless it is finished."""
    block = job.folder / _name(number)
    if not block.is_sealed("block.json", job.key):
        _make_block(job, block, packing, layout[number], number)
    advance(int(block.read_json("block.json")["n_core"]))


def _make_block(
    job: _Job, block: Folder, packing: Packing | None, slices: list[_Slice], number: int
) -> None:
    """Collect a block's rows and find the neighbours of its anchors."""
    config, n_samples, cell = job.config, job.source.n_samples, slices[0][0] // job.config.halo
    ranks = [gather(job.exchange, job.n_ranges, ["rows", "features"], *one) for one in slices]
    n_core = len(ranks[0]["rows"])
    pieces = [ranked.pop("features") for ranked in ranks]
    features = np.concatenate(pieces) if packing is None else packing.unpack(pieces, cell)
    del pieces
    fraction = config.anchors or anchor_fraction(n_samples)
    anchors = draw_anchors(n_core, fraction, np.random.default_rng([config.seed, 1, number]))
    neighbors = np.full((len(anchors), config.n_neighbors), -1, np.int32)
    distances, recall = np.full(neighbors.shape, np.inf, np.float32), 1.0
    n_found = min(config.n_neighbors, len(features) - 1)
    if n_found > 0:
        found = find_neighbors(
            divide_columns(features, config.scales),
            n_found,
            rows=anchors,
            metric=config.metric,
            recall=config.recall,
            seed=config.seed,
        )
        neighbors[:, :n_found], distances[:, :n_found] = found.indices, found.distances
        recall = found.recall
    arrays = {
        "rows.npy": np.concatenate([ranked["rows"] for ranked in ranks]),
        "anchors.npy": anchors.astype(np.int32),
        "neighbors.npy": neighbors,
        "distances.npy": distances,
        "features.npy": features,
    }
    if config.kept is not None:
        rng = np.random.default_rng([config.seed, 2, number])
        kept = draw_anchors(n_core, min(1.0, config.kept / n_samples), rng)
        arrays["kept.npy"] = kept.astype(np.int32)
        arrays["features.npy"] = features[kept].astype(job.source.dtype, copy=False)
    content = {
        "key": job.key,
        "cell": cell,
        "n_core": n_core,
        "n_halo": len(features) - n_core,
        "n_anchors": len(anchors),
        "recall": round(float(recall), 4),
    }
    block.seal("block.json", arrays, content)
