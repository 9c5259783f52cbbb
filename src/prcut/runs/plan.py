"""What a run on disk will need: bytes, memory and seconds of every stage, from formulas."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import NamedTuple

from prcut.errors import InvalidInputError
from prcut.graph.blocks.build import anchor_fraction
from prcut.graph.neighbors import pair_work
from prcut.runtime.device import readable_bytes
from prcut.search.levels import COARSEST, MOST_NODES, NODES_PER_CLUSTER

# rates of one core, measured on a server of 2024; multiplications and additions of matrices
_FLOPS = 3e10
# bytes read with their checksums, per second
_READ_RATE = 5e8
# bytes written, per second
_WRITE_RATE = 3e8
# comparisons for the neighbours of a row, times √rows; 500 for rows without structure
COMPARISONS = 80.0
# seconds to pass an edge once, as contraction and refinement do
_EDGE_SECONDS = 4e-7
# passes of the join, and of the search
_JOIN_PASSES = 2
_SEARCH_PASSES = 3.5
# seconds to search a node of the coarsest level
_NODE_SECONDS = 2e-4
# bytes of a node in the search
_NODE_BYTES = 2_400
# of all edges found, those that a second row has found as well
_MUTUAL = 0.35
# links to a row count for so much: a few rows are near to many others
_FOUND = 0.5
# bytes of a row number
_ROW = 8
# bytes of an edge found or joined
_EDGE = 8
# bytes of a label in Parquet with id and confidence
_LABEL = 12.5
# bytes of a process
_PROCESS = 3e8
# bytes of a block that a process reads
_BLOCK = 8e7
# bytes of a row, and of a node, while blocks are joined
_JOINED_ROW = 12
_JOINED_NODE = 40
# bytes of an entry, and of a node, while the graph is searched, with all coarser levels; measured
# with one to ten million rows
_SEARCHED_ENTRY = 19
_SEARCHED_NODE = 50
# width of the hidden layer of an assigner that is distilled
_HIDDEN = 256
# rows of a batch that is distilled
_BATCH = 256
# bytes of features that a task reads at a time
_READ_BYTES = 2**24


@dataclass
class Workload:
    """What is to be clustered on disk; options are those of ``BlockConfig``."""

    n_samples: int
    n_features: int
    n_clusters: int
    itemsize: int = 4  # bytes of a number
    n_neighbors: int = 15
    block_rows: int = 100_000
    halo: int = 4
    anchors: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not value > 0:
                raise InvalidInputError(f"{name}={value} must be > 0.")
        self.n_blocks = -(-self.n_samples // self.block_rows)


class StageCost(NamedTuple):
    """Cost of a stage, in bytes and seconds; ``memory`` is that of a task of mean size."""

    stage: str
    tasks: int
    read: float
    written: float
    memory: float
    core_seconds: float


def plan_stages(work: Workload) -> list[StageCost]:
    """Return the stages of a run, each with its cost.

    >>> stages = plan_stages(Workload(10**9, 768, 10_000, itemsize=2))
    >>> [stage.stage for stage in stages]
    ['scatter', 'gather', 'join', 'search', 'lesson', 'distil', 'assign']
    >>> round(stages[0].read / 1e12, 2)
    1.54
    """
    n, d, k = work.n_samples, work.n_features, work.n_clusters
    rows = n * d * work.itemsize
    # there may be fewer cells than a row is sent to
    copies = min(work.halo, work.n_blocks)
    # rows travel in half precision
    copied = n * copies * (d * min(work.itemsize, 2) + _ROW)
    anchors = n * (work.anchors or anchor_fraction(n))
    found = anchors * work.n_neighbors
    found_bytes = anchors * (4 + work.n_neighbors * _EDGE) + n * copies * _ROW
    # both directions; two anchors may have found the same edge
    entries = found * (2 - _MUTUAL * anchors / n)
    # rows that look for neighbours, or are found
    nodes = n - (n - anchors) * math.exp(-_FOUND * found / n)
    graph = entries * _EDGE + nodes * 2 * _ROW
    distilled = max(450, k) * _BATCH
    lesson = min(n, distilled) * d * work.itemsize

    block = work.block_rows * copies
    block_memory = block * d * (2 * min(work.itemsize, 2) + 4)
    block_memory += work.block_rows * work.n_neighbors * 100
    neighbor_seconds = COMPARISONS * math.sqrt(block) * pair_work(d) * 1e-9
    # an edge that both of its ends found has two entries until they are added up
    joined_memory = 2 * found * _EDGE + n * _JOINED_ROW + nodes * _JOINED_NODE + _BLOCK
    least = NODES_PER_CLUSTER * k
    coarsest = int(nodes if nodes <= max(MOST_NODES, least) else max(COARSEST, least))
    # the coarsest level may have up to twice the nodes that are wanted
    searched_memory = min(nodes, 2 * coarsest) * _NODE_BYTES
    searched_memory += entries * _SEARCHED_ENTRY + nodes * _SEARCHED_NODE
    read_tasks = max(1, round(rows / _READ_BYTES))
    model = _HIDDEN * (d + k)

    stages: list[StageCost] = []

    def add(
        stage: str, tasks: int, read: float, written: float, memory: float, seconds: float
    ) -> None:
        moving = read / _READ_RATE + written / _WRITE_RATE
        stages.append(StageCost(stage, tasks, read, written, memory, seconds + moving))

    seconds = 2 * n * d * work.n_blocks / _FLOPS
    add("scatter", read_tasks, rows, copied, _READ_BYTES * (2 + 2 * copies), seconds)
    seconds = anchors * neighbor_seconds
    add("gather", work.n_blocks, copied, found_bytes + lesson, block_memory, seconds)
    seconds = _JOIN_PASSES * found * _EDGE_SECONDS
    add("join", 1, 2 * found_bytes, graph, _PROCESS + joined_memory, seconds)
    seconds = _SEARCH_PASSES * found * _EDGE_SECONDS + coarsest * _NODE_SECONDS
    add("search", 1, graph, 4 * n, _PROCESS + searched_memory, seconds)
    memory = _PROCESS + n * _JOINED_ROW + nodes * _ROW
    add("lesson", 1, lesson + 4 * n + nodes * _ROW, lesson, memory, 0.0)
    seconds = 6 * distilled * model / _FLOPS
    add("distil", 1, lesson, 24 * model, 16 * model + 24 * _BATCH * k, seconds)
    seconds = 2 * n * model / _FLOPS
    add("assign", max(1, n // 10**6), rows + n * _ROW, n * _LABEL, 2**26, seconds)
    return stages


def disk_peak(stages: list[StageCost]) -> float:
    """Return the bytes on disk at most: rows on their way are removed when blocks are finished."""
    return stages[0].written + stages[1].written


def leader_memory(stages: list[StageCost]) -> float:
    """Return the bytes of memory that the process with the whole graph needs."""
    return max(one.memory for one in stages if one.stage in ("join", "search", "lesson"))


def show_plan(work: Workload) -> str:
    """Format the plan as a table."""
    stages = plan_stages(work)
    read, written = sum(one.read for one in stages), sum(one.written for one in stages)
    hours = sum(one.core_seconds for one in stages) / 3600
    line = "{:<14} {:>8} {:>10} {:>10} {:>12} {:>11}".format
    lines = [
        f"{work.n_samples:,} rows x {work.n_features:,} features, {work.n_clusters:,} clusters, "
        f"{work.n_blocks:,} blocks\n",
        line("stage", "tasks", "reads", "writes", "memory/task", "core-hours"),
        *(
            line(stage, f"{tasks:,}", *map(readable_bytes, sizes), f"{seconds / 3600:,.2f}")
            for stage, tasks, *sizes, seconds in stages
        ),
        line("all", "", *map(readable_bytes, (read, written)), "", f"{hours:,.2f}") + "\n",
        "one process, which joins the graph and searches it, needs "
        f"{readable_bytes(leader_memory(stages))} of memory",
        f"disk at most {readable_bytes(disk_peak(stages))}; traffic, where the disk is not on the "
        f"node, {readable_bytes(read + written)}",
        "a model from formulas and the rates of a typical core, not a measurement",
    ]
    return "\n".join(lines)
