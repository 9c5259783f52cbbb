"""What a run on disk takes, stage by stage: a model, with rates measured on the machine at hand."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

from prcut.datasets import cache_folder
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.fragments import choose_n_fragments
from prcut.memory import bytes_in_memory, choose_sample_rows, readable_bytes
from prcut.pair_shards import count_shards

__all__ = ["Rates", "StageCost", "Workload", "calibrate", "plan_stages", "read_rates", "show_plan"]

_FILE = "rates.json"
# bytes of a row number, and of an edge: neighbour and distance
_ROW, _EDGE = 8, 8
# bytes of a pair besides its features: weight, two node weights, two row numbers
_PAIR = 4 + 8 + 16
# the layer that a sample teaches
_HIDDEN = 256
# rows that are labelled to measure a partition, in core rows: most of a halo no edge leads to
_LABELLED = 1.3
# bytes of a row of labels, measured: Parquet packs id, label and confidence
_LABEL = 12.5


class Rates(NamedTuple):
    """Of one core; :func:`calibrate` measures them.

    Attributes
    ----------
    flops : float
        Multiplications and additions of matrices, per second.
    read_bytes, write_bytes : float
        Through files with their checksums, per second.
    search : float
        Seconds to find the neighbours of a row, per feature and per square root of the rows.
    walk : float
        Seconds to draw a pair.
    partition : float
        Seconds to search clusters, per row and per two prices of a fragment in a cluster.
    """

    flops: float = 3e10
    read_bytes: float = 5e8
    write_bytes: float = 3e8
    search: float = 2e-8
    walk: float = 4e-6
    partition: float = 2e-4


@dataclass(frozen=True)
class Workload:
    """What is to be clustered, and how: the defaults of a run on disk.

    Parameters
    ----------
    n_samples, n_features, n_clusters : int
    itemsize : int
        Bytes of a number: 2 for float16, 4 for float32.
    n_neighbors, block_rows, halo
        As for :class:`prcut.blocks.BlockConfig`.
    anchors : float, optional
        By default as there.
    pairs_per_anchor, max_steps, batch_size, n_init
        Of :class:`prcut.pair_shards.ShardConfig`, and of training.
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

    @property
    def n_blocks(self) -> int:
        """Blocks in all."""
        return -(-self.n_samples // self.block_rows)

    @property
    def copies(self) -> int:
        """Cells that a row is sent to; there are no more than there are."""
        return min(self.halo, self.n_blocks)

    @property
    def n_anchors(self) -> float:
        """Rows that look for neighbours."""
        share = self.anchors or min(1.0, max(0.1, 1e6 / self.n_samples))
        return share * self.n_samples

    @property
    def sample_rows(self) -> int:
        """Rows that are searched in memory."""
        sizes = self.n_samples, self.n_features, self.itemsize, self.n_clusters
        return choose_sample_rows(sys.maxsize, *sizes)

    @property
    def priced(self) -> float:
        """What the search of a sample takes, in units of its rate."""
        n_fragments = choose_n_fragments(self.sample_rows, self.n_clusters)
        return self.sample_rows + n_fragments * self.n_clusters / 2

    @property
    def n_pairs(self) -> float:
        """Pairs in all shards."""
        return self.pairs_per_anchor * self.n_anchors


class StageCost(NamedTuple):
    """What a stage takes.

    Attributes
    ----------
    stage : str
    tasks : int
        That are independent.
    read, written : float
        Bytes.
    memory : float
        Bytes of a task, at most in the mean.
    core_seconds : float
    """

    stage: str
    tasks: int
    read: float
    written: float
    memory: float
    core_seconds: float


def plan_stages(work: Workload, rates: Rates | None = None) -> list[StageCost]:
    """The stages of a run, each with its cost.

    >>> stages = plan_stages(Workload(10**9, 768, 10_000, itemsize=2))
    >>> [stage.stage for stage in stages]
    ['scatter', 'gather', 'draw pairs', 'shuffle pairs', 'sample', 'train', 'assign']
    >>> round(stages[0].read / 1e12, 2)
    1.54
    """
    rates = rates or Rates()
    n_samples, d, k = work.n_samples, work.n_features, work.n_clusters
    row = d * work.itemsize
    rows = n_samples * row
    # every row once in each of its cells
    copied = n_samples * work.copies * (row + _ROW)
    edges = work.n_anchors * (4 + work.n_neighbors * _EDGE)
    pairs = work.n_pairs * (2 * row + _PAIR)
    block = work.block_rows * work.copies
    seen = work.n_init * work.max_steps * work.batch_size
    steps_read = seen * (2 * row + 12)
    # shards are read a second time for their checksums, blocks to measure what a sample taught and
    # every start
    epochs = math.ceil(seen / max(1, work.n_pairs)) if seen < work.n_pairs else seen / work.n_pairs
    checked = min(epochs, seen / work.n_pairs + work.n_init) * pairs
    measured = (1 + work.n_init) * (copied + edges)
    sample = work.sample_rows

    def cost(
        stage: str, tasks: int, read: float, written: float, memory: float, cpu: float
    ) -> StageCost:
        moved = read / rates.read_bytes + written / rates.write_bytes
        return StageCost(stage, tasks, read, written, memory, cpu + moved)

    n_shards = count_shards(int(work.n_pairs), d, work.itemsize)
    products = 2 * n_samples * d / rates.flops
    # of the layer that a sample teaches
    layers = 2 * n_samples * _HIDDEN * (d + k) / rates.flops
    return [
        cost(
            "scatter",
            max(1, round(rows / 2**24)),
            rows,
            copied,
            2**24 * (2 + 2 * work.copies),
            products * work.n_blocks,
        ),
        cost(
            "gather",
            work.n_blocks,
            copied,
            copied + edges,
            block * (2 * row + 4 * d) + work.block_rows * work.n_neighbors * 100,
            work.n_anchors * d * math.sqrt(block) * rates.search,
        ),
        cost(
            "draw pairs",
            work.n_blocks,
            copied + edges,
            pairs,
            block * (row + 16 * work.n_neighbors) + pairs / work.n_blocks * 3,
            work.n_pairs * rates.walk,
        ),
        cost("shuffle pairs", n_shards, pairs, pairs, 3 * pairs / n_shards, 0.0),
        cost(
            "sample",
            1,
            min(rows, 2**32),
            sample * (row + 2 * work.n_neighbors * _EDGE),
            bytes_in_memory(sample, d, work.itemsize, 2 * work.n_neighbors),
            sample * d * math.sqrt(sample) * rates.search + work.priced * rates.partition,
        ),
        cost(
            "train",
            1,
            steps_read + checked + measured,
            2 * 3 * 4 * (d + k) * _HIDDEN,
            16 * (d + k) * _HIDDEN + 4 * work.batch_size * 2 * k * 3,
            # forward and backward of both ends, and the labels of what edges lead to
            seen * 2 * 3 * 2 * d * k / rates.flops
            + _LABELLED * (layers + work.n_init * products * k),
        ),
        # ids are read and written too
        cost(
            "assign",
            max(1, n_samples // 10**6),
            rows + n_samples * _ROW,
            n_samples * _LABEL,
            2**26,
            layers,
        ),
    ]


def show_plan(work: Workload, rates: Rates | None = None) -> str:
    """The plan as a table."""
    stages = plan_stages(work, rates)
    lines = [
        f"{work.n_samples:,} rows x {work.n_features:,} features, {work.n_clusters:,} clusters, "
        f"{work.n_blocks:,} blocks",
        "",
        f"{'stage':<14} {'tasks':>8} {'reads':>10} {'writes':>10} {'memory/task':>12} "
        f"{'core-hours':>11}",
    ]
    lines += [
        f"{one.stage:<14} {one.tasks:>8,} {readable_bytes(one.read):>10} "
        f"{readable_bytes(one.written):>10} {readable_bytes(one.memory):>12} "
        f"{one.core_seconds / 3600:>11,.2f}"
        for one in stages
    ]
    read, written = sum(one.read for one in stages), sum(one.written for one in stages)
    hours = sum(one.core_seconds for one in stages) / 3600
    # rows on their way are removed when their blocks are there
    peak = 2 * stages[0].written + stages[3].written
    lines += [
        f"{'all':<14} {'':>8} {readable_bytes(read):>10} {readable_bytes(written):>10} {'':>12} "
        f"{hours:>11,.2f}",
        "",
        f"disk at most {readable_bytes(peak)}; traffic, where the disk is not on the node, "
        f"{readable_bytes(read + written)}",
        "a model from formulas and measured rates, not a measurement",
    ]
    return "\n".join(lines)


# -- rates -----------------------------------------------------------------------------------


def calibrate() -> Rates:
    """Measure the rates of this machine on one core, in less than a minute, and keep them."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rates = _measure()
    finally:
        torch.set_num_threads(n_threads)
    folder = cache_folder("capacity")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).write_text(json.dumps(rates._asdict(), indent=1))
    return rates


def read_rates() -> Rates | None:
    """What :func:`calibrate` measured last, or None."""
    path = cache_folder("capacity") / _FILE
    if not path.exists():
        return None
    try:
        return Rates(**{name: float(value) for name, value in json.loads(path.read_text()).items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"{path} is not what calibrate wrote; remove it.") from error


def _measure() -> Rates:
    import faiss

    from prcut.neighbors import find_neighbors
    from prcut.pairs import WalkPairs
    from prcut.partition import find_partition
    from prcut.similarity import build_graph
    from prcut.storage import Folder

    rng = np.random.default_rng(0)
    size = 2048
    matrix = torch.from_numpy(rng.standard_normal((size, size)).astype(np.float32))
    flops = 2 * size**3 / _seconds(lambda: matrix @ matrix)
    n_rows, n_features = 20_000, 64
    rows = rng.standard_normal((n_rows, n_features)).astype(np.float32)
    n_threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        found = _seconds(lambda: find_neighbors(rows, 15))
        graph = build_graph(rows, 15)
    finally:
        faiss.omp_set_num_threads(n_threads)
    walk = WalkPairs(graph, n_steps=8)
    n_clusters = 20
    start = time.process_time()
    find_partition(graph, n_clusters)
    searched = time.process_time() - start
    n_pairs = 100_000
    drawn = _seconds(lambda: walk.draw(n_pairs, torch.Generator().manual_seed(0)))
    with TemporaryDirectory() as path:
        folder = Folder(Path(path))
        content = np.zeros((2**24, 4), np.float32)
        written = _seconds(lambda: folder.seal("a.json", {"a.npy": content}, {}))
        record = folder.read_json("a.json")

        def read_twice() -> None:
            folder.verify(record)
            folder.read_array("a.npy")

        read = _seconds(read_twice)
    return Rates(
        flops=flops,
        read_bytes=2 * content.nbytes / read,
        write_bytes=content.nbytes / written,
        search=found / (n_rows * n_features * math.sqrt(n_rows)),
        walk=drawn / n_pairs,
        partition=searched / Workload(n_rows, n_features, n_clusters).priced,
    )


def _seconds(work: Callable[[], object]) -> float:
    """CPU time of the second of two calls."""
    work()
    start = time.process_time()
    work()
    return max(time.process_time() - start, 1e-6)
