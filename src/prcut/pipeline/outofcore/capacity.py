"""Cost of a run on disk, stage by stage: a model, with the rates of a typical core."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

from prcut.errors import InvalidInputError
from prcut.graph.inverted_lists import pair_work
from prcut.pipeline.outofcore.sizes import anchor_fraction, choose_most_nodes
from prcut.runtime.memory import readable_bytes
from prcut.search.fragments import choose_n_fragments
from prcut.search.many import MANY_CLUSTERS

# bytes of a row number, of an edge (neighbour and distance), and of the number of a cell
_ROW, _EDGE, _CELL = 8, 8, 4
# bytes of a number of a row that travels to be searched
_PACKED = 2
# bytes of a row of labels, measured: Parquet packs id, label and confidence
_LABEL = 12.5
# width of the hidden layer of an assigner that is distilled
_HIDDEN = 256
# bytes of an edge on its way to the blocks of its ends (two row numbers, cell, weight), and in a
# part: column and weight, of float32 between rows and of float64 between fragments
_SENT, _KEPT, _KEPT_COARSE = 24, 8, 12
# of all edges found, those that a second row of the same block has found as well
_MUTUAL = 0.35
# outside nodes of a part, and nodes that it offers, per own node, where there are other blocks
_OUTSIDE = 1.0
# nodes, and edges, of a level relative to those of the level below
_COARSER, _COARSER_EDGES = 1 / 6, 0.4
# rounds of refinement, half of them on the rows; batches of a distillation
_N_ROUNDS, _DISTILLED = 14, 450 * 256
# units of a search for many clusters per node, and its bytes: measured with 320,000 nodes
_MANY_UNITS, _NODE_BYTES = 2.5, 6_000
# bytes of features that a task reads at a time
_READ_BYTES = 2**24


class Rates(NamedTuple):
    """Rates of one core, measured on a server of 2024."""

    flops: float = 3e10  # multiplications and additions of matrices, per second
    read_bytes: float = 5e8  # per second, checksums included
    write_bytes: float = 3e8
    comparisons: float = 80.0  # for the neighbours of a row, times √rows; 500 without structure
    partition: float = 2e-4  # seconds per unit of _search_units
    edge: float = 4e-7  # seconds to pass an edge once, as contraction and refinement do


@dataclass
class Workload:
    """What is to be clustered, and how; the defaults are those of a run on disk.

    Options are those of ``BlockConfig``; a number has ``itemsize`` bytes.
    """

    n_samples: int
    n_features: int
    n_clusters: int
    itemsize: int = 4
    n_neighbors: int = 15
    block_rows: int = 100_000
    halo: int = 4
    anchors: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not value > 0:
                raise InvalidInputError(f"{name}={value} must be > 0.")
        self.n_blocks = -(-self.n_samples // self.block_rows)
        # cells that a row is sent to; there may be fewer of them than halo
        self.copies = min(self.halo, self.n_blocks)
        self.n_anchors = (self.anchors or anchor_fraction(self.n_samples)) * self.n_samples
        self.n_found = self.n_anchors * self.n_neighbors
        # in both directions; two anchors may have found the same one
        self.n_edges = self.n_found * (2 - _MUTUAL * self.n_anchors / self.n_samples)
        self.n_outside = _OUTSIDE * self.n_samples if self.n_blocks > 1 else 0.0
        # of the features of a row, of all rows once in each of their cells, and of all anchors with
        # their edges
        self.row_bytes = self.n_features * self.itemsize
        # rows that are searched travel in half precision
        self.packed_bytes = self.n_features * min(self.itemsize, _PACKED)
        self.copied_bytes = self.n_samples * self.copies * (self.packed_bytes + _ROW + _CELL)
        self.edge_bytes = self.n_anchors * (4 + self.n_neighbors * _EDGE)


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
    ['scatter', 'gather', 'link', 'join', 'meet', 'fragments', 'contract', 'search', 'refine', \
'measure', 'score', 'lesson', 'send labels', 'sort labels', 'distil', 'assign']
    >>> round(stages[0].read / 1e12, 2)
    1.54
    """
    rates = rates or Rates()
    stages = [
        *_block_stages(work, rates),
        *_part_stages(work, rates),
        *_search_stages(work, rates),
        *_label_stages(work),
        _distil_stage(work, rates),
        _assign_stage(work, rates),
    ]
    for number, stage in enumerate(stages):
        moving = stage.read / rates.read_bytes + stage.written / rates.write_bytes
        stages[number] = stage._replace(core_seconds=stage.core_seconds + moving)
    return stages


# -- stages: core_seconds without those of reading and writing -------------------------------


def _block_stages(work: Workload, rates: Rates) -> Iterator[StageCost]:
    row, d = work.row_bytes, work.n_features
    rows, copied, edges = work.n_samples * row, work.copied_bytes, work.edge_bytes
    block = work.block_rows * work.copies
    tasks, memory = max(1, round(rows / _READ_BYTES)), _READ_BYTES * (2 + 2 * work.copies)
    seconds = 2 * work.n_samples * d / rates.flops * work.n_blocks
    yield StageCost("scatter", tasks, rows, copied, memory, seconds)
    memory = block * (2 * work.packed_bytes + 4 * d) + work.block_rows * work.n_neighbors * 100
    seconds = work.n_anchors * _search_seconds(block, rates.comparisons, d)
    kept = work.n_samples * work.copies * (_ROW + _CELL)
    # features of the rows that are distilled
    kept += min(work.n_samples, _n_distilled(work)) * (row + _CELL)
    yield StageCost("gather", work.n_blocks, copied, kept + edges, memory, seconds)


def _search_seconds(n_rows: float, comparisons: float, n_features: int) -> float:
    """Return the seconds to find the neighbours of one row."""
    return comparisons * math.sqrt(n_rows) * pair_work(n_features) * 1e-9


def _part_stages(work: Workload, rates: Rates) -> Iterator[StageCost]:
    """Yield the stages that make the graph of all rows, and its coarser levels."""
    n, tasks, outside = work.n_samples, work.n_blocks, work.n_outside
    found, sent = work.edge_bytes + n * work.copies * (_ROW + _CELL), work.n_edges * _SENT
    kept = work.n_edges * _KEPT + n * (4 + 4 + _ROW) + outside * (4 + 2 * _ROW)
    nodes, edges = _coarse_sums(work)
    posted = 4 * (nodes + outside * nodes / n)
    coarse = edges * _KEPT_COARSE + nodes * _COARSER * 8 + 2 * 4 * _COARSER * outside
    memory, seconds = 6 * sent / tasks, work.n_found * rates.edge
    yield StageCost("link", tasks, found, sent, memory, 2 * seconds)
    yield StageCost("join", tasks, sent + n * _ROW, kept, memory, 4 * seconds)
    yield StageCost("meet", tasks, outside * 2 * _ROW, outside * 4, memory / 4, seconds / 2)
    yield StageCost("fragments", tasks, kept + coarse, posted, memory / 2, seconds / 2)
    yield StageCost("contract", tasks, kept + coarse + posted, coarse, memory / 2, seconds)


def _coarse_sums(work: Workload) -> tuple[float, float]:
    """Return the nodes that are cut into fragments, and the edges between these, of all levels."""
    most = choose_most_nodes(sys.maxsize, work.n_samples, work.n_clusters)
    nodes = level = float(work.n_samples)
    edges = between = work.n_edges * _COARSER_EDGES
    while (level := level * _COARSER) > most:
        between *= _COARSER_EDGES
        nodes, edges = nodes + level, edges + between
    return nodes, edges


def _search_stages(work: Workload, rates: Rates) -> Iterator[StageCost]:
    n, k, tasks = work.n_samples, work.n_clusters, work.n_blocks
    most = choose_most_nodes(sys.maxsize, n, k)
    nodes = min(most, n * _COARSER)
    links = work.n_edges * _COARSER_EDGES * nodes / n
    graph = work.n_edges * _KEPT + n * (4 + 4)
    memory = nodes * _NODE_BYTES
    seconds = _search_units(int(nodes), k) * rates.partition
    yield StageCost("search", 1, links * _KEPT_COARSE, 4 * nodes, memory, seconds)
    read = _N_ROUNDS * (graph + 4 * n + 8 * work.n_outside)
    written = (_N_ROUNDS + 1) * 4 * (n + work.n_outside)
    memory, seconds = 4 * graph / tasks, _N_ROUNDS * work.n_found * rates.edge
    yield StageCost("refine", tasks, read, written, memory, 0.7 * seconds)
    yield StageCost("measure", tasks, read, _N_ROUNDS * 24 * 10 * tasks, memory, 0.7 * seconds)
    yield StageCost("score", tasks, read / _N_ROUNDS, 16 * 100 * tasks, memory, 0.0)


def _label_stages(work: Workload) -> Iterator[StageCost]:
    n, tasks = work.n_samples, work.n_blocks
    drawn = min(n, _n_distilled(work)) * (work.row_bytes + 4)
    labels = n * (_ROW + 4)
    yield StageCost("lesson", tasks, drawn + n * 2 * _ROW, 2 * drawn, 3 * drawn / tasks, 0.0)
    yield StageCost("send labels", tasks, labels, labels, 3 * labels / tasks, 0.0)
    files = -(-n // 2**22)
    yield StageCost("sort labels", files, labels, 4 * n, 2 * labels / files, 0.0)


def _n_distilled(work: Workload) -> int:
    return max(_DISTILLED, 256 * work.n_clusters)


def _distil_stage(work: Workload, rates: Rates) -> StageCost:
    d, k = work.n_features, work.n_clusters
    seen = _n_distilled(work)
    read, written = min(seen, work.n_samples) * work.row_bytes, 2 * 3 * 4 * (d + k) * _HIDDEN
    memory = 16 * (d + k) * _HIDDEN + 4 * 256 * 2 * k * 3
    seconds = 3 * 2 * seen * _HIDDEN * (d + k) / rates.flops
    return StageCost("distil", 1, read, written, memory, seconds)


def _search_units(n_samples: int, n_clusters: int) -> float:
    """Count the rows and, for each fragment and cluster, half a cost of the one in the other.

    Many clusters are searched along the edges, at a cost that they hardly change.
    """
    if n_clusters > MANY_CLUSTERS:
        return _MANY_UNITS * n_samples
    return n_samples + choose_n_fragments(n_samples, n_clusters) * n_clusters / 2


def _assign_stage(work: Workload, rates: Rates) -> StageCost:
    """Return the cost of a pass of all rows through an assigner with a hidden layer."""
    n = work.n_samples
    read, written = n * (work.row_bytes + _ROW), n * _LABEL  # ids are read and written too
    seconds = 2 * n * _HIDDEN * (work.n_features + work.n_clusters) / rates.flops
    return StageCost("assign", max(1, n // 10**6), read, written, 2**26, seconds)


# -- the table -------------------------------------------------------------------------------


def disk_peak(stages: list[StageCost]) -> float:
    """Return the bytes on disk at most."""
    # the exchanged rows are removed when their blocks are finished
    return stages[0].written + stages[1].written


def show_plan(work: Workload, rates: Rates | None = None) -> str:
    """Format the plan as a table."""
    stages = plan_stages(work, rates)
    read, written = sum(one.read for one in stages), sum(one.written for one in stages)
    hours = sum(one.core_seconds for one in stages) / 3600
    peak = disk_peak(stages)
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
        "a model from formulas and the rates of a typical core, not a measurement",
    ]
    return "\n".join(lines)
