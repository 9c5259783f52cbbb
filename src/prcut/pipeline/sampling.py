"""Balanced samples of a clustered collection: a quota for every cluster, rows drawn by hash.

::

    *.parquet    ids and labels of the drawn rows, in files named as those of the labels
    _prcut/      plan and records, under a name that readers of Parquet skip

Memory holds the labels of one file. A row is drawn if the hash of its number and the seed is among
the smallest of its cluster, so neither files nor engines nor a killed call change the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prcut.errors import InvalidInputError
from prcut.numerics.validation import check_positive_int
from prcut.pipeline.dedup import write_table
from prcut.pipeline.labels import STATE_FOLDER, check_new
from prcut.pipeline.outofcore.rounds import draw_fractions
from prcut.pipeline.run_folder import check_finished, read_plan
from prcut.pipeline.saved_fit import coarse_labels, parse_fit
from prcut.runtime.engine import Engine, LocalEngine
from prcut.runtime.folder import Folder, parsing, plan_key, whole_number
from prcut.runtime.progress import Progress
from prcut.runtime.shuffle import gather, is_scattered, scatter
from prcut.training.assigner.saved import load_model

_FORMAT = 1
# candidates that meet in a bucket, and labels that are read with their rows
_BUCKET_ROWS, _BATCH_ROWS = 2**22, 2**14
_Advance = Callable[[int], None]


class Sample(NamedTuple):
    """What :func:`draw_sample` has written, and how many rows of how many clusters."""

    path: str
    n_rows: int
    n_clusters: int


def draw_sample(
    run: str | Path,
    path: str | Path,
    size: int,
    balance: str = "tree",
    *,
    seed: int = 0,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Sample:
    """Draw rows of a finished run with its labels, or finish what an earlier call began.

    Parameters
    ----------
    run : str or path
        A finished run with ``labels/``.
    path : str or path
        A new or empty folder, local or a URI.
    size : int
        Number of rows to draw.
    balance : str
        ``"uniform"``: equal quotas for all clusters. ``"tree"``: equal quotas down the tree, which
        are the layers of the run, or else √k groups of its merge tree.
        ``"temperature:τ"``: quotas ∝ (rows of the cluster)^(1/τ); 1 keeps the proportions and
        larger values even them out. A cluster with fewer rows than its quota gives all it has, and
        the others share the rest.
    seed : int
        Another seed draws other rows.
    """
    if not 0 <= seed < 2**23:
        raise InvalidInputError(f"{seed=} must be from 0 to 2^23 - 1.")
    check_positive_int("size", size)
    temperature = _parse_balance(balance)
    labels = open_labels(run)
    if size > labels.n_samples:
        raise InvalidInputError(f"{size=} must be at most {labels.n_samples}, the rows of {run}.")
    layers, n_clusters = _read_groups(run)
    folder = Folder(path)
    check_new(folder)
    state = folder / STATE_FOLDER
    plan = {"kind": "sample", "format": _FORMAT, "labels": labels.key}
    plan |= {"size": size, "balance": balance, "seed": seed}
    state.start(plan)
    job = _Job(folder, labels, n_clusters, size, seed, plan_key(plan))
    if not state.exists("manifest.json"):
        engine = engine or LocalEngine()
        run_stage = partial(engine.run, total=labels.n_samples, on_progress=on_progress)
        n_files = len(labels.files)
        run_stage("count", partial(_count, job), n_files)
        quotas = _share_out(job, layers, temperature)
        run_stage("draw", partial(_draw, job), n_files)
        run_stage("choose", partial(_choose, job), job.n_buckets)
        run_stage("write", partial(_write, job), n_files)
        n_used = int((quotas > 0).sum())
        state.write_json("manifest.json", {"key": job.key, "plan": plan, "n_clusters": n_used})
    job.work.delete()
    folder.clear_unfinished()
    return Sample(str(path), size, int(state.read_json("manifest.json")["n_clusters"]))


# -- quotas ----------------------------------------------------------------------------------------


def share_out(total: int, rooms: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Share ``total`` out by weight among rooms of limited size; return whole numbers, int64.

    As water fills basins: those that are full take no more, and the level rises in the others.

    >>> share_out(10, np.array([1, 100, 100]), np.ones(3)).tolist()
    [1, 5, 4]
    """
    fill = rooms / weights  # level at which a room is full
    order = np.argsort(fill, kind="stable")
    room, weight = rooms[order].astype(np.float64), weights[order].astype(np.float64)
    before = np.cumsum(room) - room
    open_weight = np.cumsum(weight[::-1])[::-1]
    levels = (total - before) / open_weight  # if all rooms before this one are full
    first = np.flatnonzero(levels <= fill[order] * (1 + 1e-12))
    level = levels[first[0]] if len(first) else np.inf
    exact = np.minimum(rooms, level * weights)
    shares: np.ndarray = np.floor(exact + 1e-9).astype(np.int64)
    # what rounding leaves goes to the largest remainders
    left = np.lexsort((np.arange(len(rooms)), -(exact - shares)))
    left = left[shares[left] < rooms[left]][: total - int(shares.sum())]
    shares[left] += 1
    return shares


def share_down(total: int, sizes: np.ndarray, layers: Sequence[np.ndarray]) -> np.ndarray:
    """Share ``total`` out equally among the groups of the coarsest layer, then inside each.

    >>> share_down(12, np.full(3, 100), [np.array([0, 0, 1])]).tolist()
    [3, 3, 6]
    """
    groups = layers[0] if layers else np.arange(len(sizes))
    rooms = np.bincount(groups, sizes).astype(np.int64)
    quotas = share_out(total, rooms, np.ones(len(rooms)))
    if not layers:
        return quotas
    shares = np.zeros(len(sizes), np.int64)
    for group, quota in enumerate(quotas.tolist()):
        inside = np.flatnonzero(groups == group)
        finer = [np.unique(one[inside], return_inverse=True)[1] for one in layers[1:]]
        shares[inside] = share_down(quota, sizes[inside], finer)
    return shares


def _parse_balance(balance: str) -> float | None:
    """Return the temperature of cluster sizes; None for quotas down the tree."""
    kind, _, number = balance.partition(":")
    if balance in ("tree", "uniform"):
        return None if balance == "tree" else np.inf
    try:
        temperature = float(number)
    except ValueError:
        temperature = 0.0
    if kind != "temperature" or not temperature > 0:
        raise InvalidInputError(f"{balance=} must be tree, uniform, or such as temperature:2.")
    return temperature


def read_layers(loaded: Any) -> list[np.ndarray]:
    """Return the group of every cluster in coarser layers, the coarsest first."""
    known = coarse_labels(loaded)
    return [known[size] for size in sorted(known)]


def _read_groups(run: str | Path) -> tuple[list[np.ndarray], int]:
    """Return the layers of a run, or else √k groups of its merge tree, and its clusters."""
    loaded = load_model(f"{str(run).rstrip('/')}/model")
    layers, n_clusters = read_layers(loaded), int(loaded.assigner.n_clusters)
    if not layers and (tree := parse_fit(loaded).fitted.get("merge_tree_")) is not None:
        layers = [tree.labels(round(n_clusters**0.5))]
    return layers, n_clusters


# -- labels of a run -------------------------------------------------------------------------------


class _Labels(NamedTuple):
    """The label files of a run, the first row of each, and the number of rows after the last."""

    folder: Folder
    files: list[str]
    starts: np.ndarray
    key: str

    @property
    def n_samples(self) -> int:
        return int(self.starts[-1])

    def read(self, number: int, columns: Sequence[int]) -> pa.Table:
        """Read columns of a file, by their positions."""
        path = f"{self.folder.path}/{self.files[number]}"
        with self.folder.filesystem.open_input_file(path) as file:
            parquet = pq.ParquetFile(file)
            return parquet.read([parquet.schema_arrow.names[column] for column in columns])

    def clusters(self, number: int) -> np.ndarray:
        """Read the clusters of the rows of a file."""
        return np.asarray(self.read(number, [1]).column(0).to_numpy(), np.int64)

    def batches(self, n_samples: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the first row and the clusters of successive row ranges, of so many rows in all."""
        if n_samples != self.n_samples:
            found = f"{self.folder.path} has {self.n_samples} labels"
            raise InvalidInputError(f"{found} for {n_samples=} rows; assign again.")
        for number, first in enumerate(self.starts[:-1].tolist()):
            clusters = self.clusters(number)
            for start in range(0, len(clusters), _BATCH_ROWS):
                yield first + start, clusters[start : start + _BATCH_ROWS]


def open_labels(run: str | Path) -> _Labels:
    """Open the labels that `prcut fit` has written for all rows of a run."""
    read_plan(Folder(run))
    check_finished(Folder(run))
    folder = Folder(f"{str(run).rstrip('/')}/labels")
    if not (folder / STATE_FOLDER).exists("manifest.json"):
        raise InvalidInputError(
            f"{run} has no finished labels; resume it with `prcut fit … --resume`, without "
            "--no-assign."
        )
    manifest = (folder / STATE_FOLDER).read_manifest(1, "prcut fit")
    with parsing(f"{folder.path}/{STATE_FOLDER}/manifest.json"):
        files, key = [str(name) for name in manifest["plan"]["files"]], str(manifest["key"])
        counts = [_count_rows(folder, name) for name in files]
        if sum(counts) != whole_number(manifest["n_samples"]):
            raise ValueError(f"the files have {sum(counts)} rows")
    return _Labels(folder, files, np.cumsum([0, *counts]), key)


def _count_rows(folder: Folder, name: str) -> int:
    if ".." in Path(name).parts or name.startswith("/"):
        raise ValueError(f"{name} is outside of the folder")
    return int(pq.read_metadata(f"{folder.path}/{name}", filesystem=folder.filesystem).num_rows)


# -- stages ----------------------------------------------------------------------------------------


class _Job(NamedTuple):
    """What every task needs to know."""

    folder: Folder
    labels: _Labels
    n_clusters: int
    size: int
    seed: int
    key: str

    @property
    def work(self) -> Folder:
        return self.folder / STATE_FOLDER / "work"

    @property
    def n_buckets(self) -> int:
        n_candidates = min(self.labels.n_samples, self.size * len(self.labels.files))
        return max(1, -(-n_candidates // _BUCKET_ROWS))


def _count(job: _Job, number: int, advance: _Advance) -> None:
    name = f"count-{number:05d}"
    if not job.work.is_sealed(f"{name}.json", job.key):
        clusters = job.labels.clusters(number)
        if clusters.max(initial=0) >= job.n_clusters:
            raise InvalidInputError(f"{job.labels.files[number]} has labels of another model.")
        counts = np.bincount(clusters[clusters >= 0], minlength=job.n_clusters)
        job.work.seal(f"{name}.json", {f"{name}.npy": counts}, {"key": job.key})
    advance(int(np.diff(job.labels.starts)[number]))


def _share_out(job: _Job, layers: list[np.ndarray], temperature: float | None) -> np.ndarray:
    """Write the quota of every cluster."""
    names = [f"count-{number:05d}.npy" for number in range(len(job.labels.files))]
    sizes: np.ndarray = np.sum([job.work.read_array(name) for name in names], axis=0)
    if job.size > sizes.sum():
        raise InvalidInputError(
            f"size={job.size} must be at most {sizes.sum()}, the rows there are."
        )
    if temperature is None:
        quotas = share_down(job.size, sizes, layers)
    else:
        quotas = share_out(job.size, sizes, np.maximum(sizes, 1) ** (1 / temperature))
    job.work.write_array("quotas.npy", quotas)
    return quotas


def _draw(job: _Job, number: int, advance: _Advance) -> None:
    """Send the rows of a file that may be drawn to the bucket of their cluster."""
    start, stop = job.labels.starts[number : number + 2].tolist()
    if not is_scattered(job.work / "drawn", number, job.key):
        rows, clusters = np.arange(start, stop), job.labels.clusters(number)
        # the hash takes numbers below 256 besides those of rows, so larger seeds move the rows
        hashed = draw_fractions(rows + (job.seed >> 8 << 40), job.seed & 255)
        columns = {"rows": rows, "clusters": clusters, "hashed": hashed}
        drawn = _smallest(job, **columns)
        scattered = columns, drawn, clusters[drawn] % job.n_buckets
        scatter(job.work / "drawn", number, *scattered, job.n_buckets, job.key)
    advance(stop - start)


def _smallest(job: _Job, rows: np.ndarray, clusters: np.ndarray, hashed: np.ndarray) -> np.ndarray:
    """Return the positions of the smallest hashes of every cluster, as many as its quota."""
    quotas = job.work.read_array("quotas.npy")
    order = np.lexsort((rows, hashed, clusters))
    order = order[np.searchsorted(clusters[order], 0) :]  # rows without a cluster come first
    ordered = clusters[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return np.sort(order[rank < quotas[ordered]])


def _choose(job: _Job, number: int, advance: _Advance) -> None:
    """Send the rows that are drawn back to their files."""
    n_files = len(job.labels.files)
    if not is_scattered(job.work / "chosen", number, job.key):
        names = ["rows", "clusters", "hashed"]
        found = gather(job.work / "drawn", n_files, names, number)
        chosen = _smallest(job, **found)
        file = np.searchsorted(job.labels.starts, found["rows"][chosen], side="right") - 1
        columns = {"rows": found["rows"]}
        scatter(job.work / "chosen", number, columns, chosen, file, n_files, job.key)
    advance(job.labels.n_samples // job.n_buckets)


def _write(job: _Job, number: int, advance: _Advance) -> None:
    """Write the ids and labels of the rows of a file that are drawn."""
    start, stop = job.labels.starts[number : number + 2].tolist()
    record, path = f"written-{number:05d}.json", Path(job.labels.files[number])
    if not job.work.exists(record):
        rows = gather(job.work / "chosen", job.n_buckets, ["rows"], number)["rows"]
        table = job.labels.read(number, [0, 1]).take(np.sort(rows) - start)
        folder = job.folder
        for name in path.parent.parts:
            folder = folder / name
        write_table(folder, path.name, table)
        job.work.write_json(record, {"key": job.key})
    advance(stop - start)
