"""Cost of a run on disk, stage by stage: a model, with rates measured on the machine at hand."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.build import build_graph
from prcut.graph.neighbors import find_neighbors
from prcut.pipeline.outofcore.pair_shards import count_shards
from prcut.pipeline.outofcore.sizes import anchor_fraction, bytes_in_memory, choose_sample_rows
from prcut.runtime.folder import Folder, cache_folder
from prcut.runtime.memory import readable_bytes
from prcut.search.fragments import choose_n_fragments
from prcut.search.partition import find_partition
from prcut.training.pairs import WalkPairs

# bytes of a row number, of an edge (neighbour and distance), and of a pair besides its features
# (weight, two node weights, two row numbers)
_ROW, _EDGE, _PAIR = 8, 8, 4 + 8 + 16
# bytes of a row of labels, measured: Parquet packs id, label and confidence
_LABEL = 12.5
# width of the hidden layer of an assigner that is distilled on a sample
_HIDDEN = 256
# rows labelled to measure a partition, relative to the core rows: no edge leads to most halo rows
_LABELLED = 1.3
# bytes of features that a task reads at a time
_READ_BYTES = 2**24


class Rates(NamedTuple):
    """Rates of one core, as :func:`calibrate` measures them."""

    flops: float = 3e10  # multiplications and additions of matrices, per second
    read_bytes: float = 5e8  # per second, checksums included
    write_bytes: float = 3e8
    search: float = 2e-8  # seconds to find neighbours, per row, feature and square root of the rows
    walk: float = 4e-6  # seconds to draw a pair
    partition: float = 2e-4  # seconds per unit of _search_units


@dataclass
class Workload:
    """What is to be clustered, and how; the defaults are those of a run on disk.

    Options are those of ``BlockConfig``, ``ShardConfig`` and training; a number has ``itemsize``
    bytes.
    """

    n_samples: int
    n_features: int
    n_clusters: int
    itemsize: int = 4
    n_neighbors: int = 15
    block_rows: int = 100_000
    halo: int = 4
    anchors: float | None = None
    pairs_per_anchor: int = 4
    max_steps: int = 600
    batch_size: int = 2048
    n_init: int = 1

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not value > 0:
                raise InvalidInputError(f"{name}={value} must be > 0.")
        self.n_blocks = -(-self.n_samples // self.block_rows)
        # cells that a row is sent to; there may be fewer of them than halo
        self.copies = min(self.halo, self.n_blocks)
        self.n_anchors = (self.anchors or anchor_fraction(self.n_samples)) * self.n_samples
        self.n_pairs = self.pairs_per_anchor * self.n_anchors
        # of the features of a row, of all rows once in each of their cells, of all anchors with
        # their edges, and of all pairs
        self.row_bytes = self.n_features * self.itemsize
        self.copied_bytes = self.n_samples * self.copies * (self.row_bytes + _ROW)
        self.edge_bytes = self.n_anchors * (4 + self.n_neighbors * _EDGE)
        self.pair_bytes = self.n_pairs * (2 * self.row_bytes + _PAIR)


class StageCost(NamedTuple):
    """Cost of a stage, in bytes and seconds; ``memory`` is that of a task of mean size."""

    stage: str
    tasks: int
    read: float
    written: float
    memory: float
    core_seconds: float


def plan_stages(work: Workload, rates: Rates | None = None) -> list[StageCost]:
    """Return the stages of a run, each with its cost.

    >>> stages = plan_stages(Workload(10**9, 768, 10_000, itemsize=2))
    >>> [stage.stage for stage in stages]
    ['scatter', 'gather', 'draw pairs', 'shuffle pairs', 'sample', 'train', 'assign']
    >>> round(stages[0].read / 1e12, 2)
    1.54
    """
    rates = rates or Rates()
    stages = [*_block_stages(work, rates), *_pair_stages(work, rates), _sample_stage(work, rates)]
    stages += [_train_stage(work, rates), _assign_stage(work, rates)]
    for number, stage in enumerate(stages):
        moving = stage.read / rates.read_bytes + stage.written / rates.write_bytes
        stages[number] = stage._replace(core_seconds=stage.core_seconds + moving)
    return stages


# -- stages: core_seconds without those of reading and writing -------------------------------


def _block_stages(work: Workload, rates: Rates) -> Iterator[StageCost]:
    row, d = work.row_bytes, work.n_features
    rows, copied, edges = work.n_samples * row, work.copied_bytes, work.edge_bytes
    block = work.block_rows * work.copies
    yield StageCost(
        "scatter",
        tasks=max(1, round(rows / _READ_BYTES)),
        read=rows,
        written=copied,
        memory=_READ_BYTES * (2 + 2 * work.copies),
        core_seconds=2 * work.n_samples * d / rates.flops * work.n_blocks,
    )
    yield StageCost(
        "gather",
        tasks=work.n_blocks,
        read=copied,
        written=copied + edges,
        memory=block * (2 * row + 4 * d) + work.block_rows * work.n_neighbors * 100,
        core_seconds=work.n_anchors * d * math.sqrt(block) * rates.search,
    )


def _pair_stages(work: Workload, rates: Rates) -> Iterator[StageCost]:
    pairs, block = work.pair_bytes, work.block_rows * work.copies
    n_shards = count_shards(int(work.n_pairs), work.n_features, work.itemsize)
    yield StageCost(
        "draw pairs",
        tasks=work.n_blocks,
        read=work.copied_bytes + work.edge_bytes,
        written=pairs,
        memory=block * (work.row_bytes + 16 * work.n_neighbors) + pairs / work.n_blocks * 3,
        core_seconds=work.n_pairs * rates.walk,
    )
    yield StageCost("shuffle pairs", n_shards, pairs, pairs, 3 * pairs / n_shards, 0.0)


def _sample_stage(work: Workload, rates: Rates) -> StageCost:
    row, d, k = work.row_bytes, work.n_features, work.n_clusters
    sample = choose_sample_rows(sys.maxsize, work.n_samples, d, work.itemsize, k)
    searched = sample * d * math.sqrt(sample) * rates.search
    return StageCost(
        "sample",
        tasks=1,
        read=min(work.n_samples * row, 2**32),
        written=sample * (row + 2 * work.n_neighbors * _EDGE),
        memory=bytes_in_memory(sample, d, work.itemsize, 2 * work.n_neighbors),
        core_seconds=searched + _search_units(sample, k) * rates.partition,
    )


def _search_units(n_samples: int, n_clusters: int) -> float:
    """Count the rows and, for each fragment and cluster, half a cost of the one in the other."""
    return n_samples + choose_n_fragments(n_samples, n_clusters) * n_clusters / 2


def _train_stage(work: Workload, rates: Rates) -> StageCost:
    d, k, pairs = work.n_features, work.n_clusters, work.pair_bytes
    seen = work.n_init * work.max_steps * work.batch_size
    # shards are read a second time for their checksums, blocks to measure the assigner that was
    # distilled on a sample and the one of every start
    epochs = math.ceil(seen / max(1, work.n_pairs)) if seen < work.n_pairs else seen / work.n_pairs
    checked = min(epochs, seen / work.n_pairs + work.n_init) * pairs
    measured = (1 + work.n_init) * (work.copied_bytes + work.edge_bytes)
    products = 2 * work.n_samples * d / rates.flops
    # forward and backward of both ends, and the labels of rows that edges lead to
    stepped = seen * 2 * 3 * 2 * d * k / rates.flops
    labelled = _LABELLED * (_layers_seconds(work, rates) + work.n_init * products * k)
    return StageCost(
        "train",
        tasks=1,
        read=seen * (2 * work.row_bytes + 12) + checked + measured,
        written=2 * 3 * 4 * (d + k) * _HIDDEN,
        memory=16 * (d + k) * _HIDDEN + 4 * work.batch_size * 2 * k * 3,
        core_seconds=stepped + labelled,
    )


def _assign_stage(work: Workload, rates: Rates) -> StageCost:
    return StageCost(
        "assign",
        tasks=max(1, work.n_samples // 10**6),
        # ids are read and written too
        read=work.n_samples * (work.row_bytes + _ROW),
        written=work.n_samples * _LABEL,
        memory=2**26,
        core_seconds=_layers_seconds(work, rates),
    )


def _layers_seconds(work: Workload, rates: Rates) -> float:
    """Estimate a pass of all rows through an assigner with a hidden layer."""
    return 2 * work.n_samples * _HIDDEN * (work.n_features + work.n_clusters) / rates.flops


# -- the table -------------------------------------------------------------------------------


def show_plan(work: Workload, rates: Rates | None = None) -> str:
    """Format the plan as a table."""
    stages = plan_stages(work, rates)
    read, written = sum(one.read for one in stages), sum(one.written for one in stages)
    hours = sum(one.core_seconds for one in stages) / 3600
    # the exchanged rows are removed when their blocks are finished
    peak = 2 * stages[0].written + stages[3].written
    line = "{:<14} {:>8} {:>10} {:>10} {:>12} {:>11}".format
    lines = [
        f"{work.n_samples:,} rows x {work.n_features:,} features, {work.n_clusters:,} clusters, "
        f"{work.n_blocks:,} blocks\n",
        line("stage", "tasks", "reads", "writes", "memory/task", "core-hours"),
    ]
    lines += [
        line(stage, f"{tasks:,}", *map(readable_bytes, sizes), f"{seconds / 3600:,.2f}")
        for stage, tasks, *sizes, seconds in stages
    ]
    lines += [
        line("all", "", *map(readable_bytes, (read, written)), "", f"{hours:,.2f}") + "\n",
        f"disk at most {readable_bytes(peak)}; traffic, where the disk is not on the node, "
        f"{readable_bytes(read + written)}",
        "a model from formulas and measured rates, not a measurement",
    ]
    return "\n".join(lines)


# -- rates -----------------------------------------------------------------------------------


def calibrate() -> Rates:
    """Measure the rates of this machine on one core, in less than a minute, and keep them."""
    import faiss

    n_threads = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    try:
        rates = _measure()
    finally:
        torch.set_num_threads(n_threads[0])
        faiss.omp_set_num_threads(n_threads[1])
    Folder(cache_folder("capacity")).write_json("rates.json", rates._asdict())
    return rates


def read_rates() -> Rates | None:
    """Return what :func:`calibrate` measured last, or None."""
    path = cache_folder("capacity") / "rates.json"
    if not path.exists():
        return None
    try:
        return Rates(**{name: float(value) for name, value in json.loads(path.read_text()).items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"{path} was not written by calibrate; remove it.") from error


def _measure() -> Rates:
    rng = np.random.default_rng(0)
    size = 2048
    matrix = torch.from_numpy(rng.standard_normal((size, size)).astype(np.float32))
    n_rows, n_features, n_clusters, n_pairs = 20_000, 64, 20, 100_000
    rows = rng.standard_normal((n_rows, n_features)).astype(np.float32)
    searched = _seconds(lambda: find_neighbors(rows, 15))
    graph = build_graph(rows, 15)
    walk = WalkPairs(graph, n_steps=8)
    start = time.process_time()
    find_partition(graph, n_clusters)
    partitioned = time.process_time() - start
    read_bytes, write_bytes = _measure_disk()
    return Rates(
        flops=2 * size**3 / _seconds(lambda: matrix @ matrix),
        read_bytes=read_bytes,
        write_bytes=write_bytes,
        search=searched / (n_rows * n_features * math.sqrt(n_rows)),
        walk=_seconds(lambda: walk.draw(n_pairs, torch.Generator().manual_seed(0))) / n_pairs,
        partition=partitioned / _search_units(n_rows, n_clusters),
    )


def _measure_disk() -> tuple[float, float]:
    """Return the bytes that are read and written per second of CPU time."""
    content = np.zeros((2**24, 4), np.float32)
    with TemporaryDirectory() as path:
        folder = Folder(path)
        written = _seconds(lambda: folder.seal("a.json", {"a.npy": content}, {"key": "a"}))
        read = _seconds(lambda: folder.is_sealed("a.json", "a") and folder.read_array("a.npy"))
    return 2 * content.nbytes / read, content.nbytes / written


def _seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of the second of two calls."""
    work()
    start = time.process_time()
    work()
    return max(time.process_time() - start, 1e-6)
