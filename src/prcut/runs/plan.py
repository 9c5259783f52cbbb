"""The plan of a run: its data, its settings, and what it will need."""

from __future__ import annotations

import logging
import math
import os
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, get_args

import numpy as np

from prcut.errors import InvalidInputError
from prcut.fit.choose import choose_n_neighbors
from prcut.fit.config import FitConfig, check_n_samples
from prcut.fit.known import columns_of
from prcut.graph.blocks.build import (
    BlockConfig,
    anchor_fraction,
    bytes_in_memory,
    choose_block_rows,
)
from prcut.graph.build import Similarity
from prcut.graph.inverted_lists import pair_work
from prcut.graph.neighbors import Metric
from prcut.runs.folder import RUN_FORMAT, Mode, read_plan
from prcut.runtime.device import available_memory, readable_bytes
from prcut.runtime.folder import Folder, plan_key
from prcut.runtime.sources import Source
from prcut.search.fragments import choose_n_fragments
from prcut.search.levels import COARSEST, MOST_NODES, NEAR, NODES_PER_CLUSTER
from prcut.search.many import MANY_CLUSTERS

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
# seconds to search a node of the coarsest level, or a fragment of it in half a cluster
_NODE_SECONDS = 2e-4
# a search for many clusters takes the time of so many nodes for each node
_MANY_NODES = 2.5
# bytes of a node in a search for many clusters, measured with 320,000 nodes
_MANY_BYTES = 6_000
# bytes of a node in any other search
_FEW_BYTES = 2_400
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
    is_many = k > MANY_CLUSTERS
    # fragments are tried in every cluster; many clusters are searched along the edges
    searched = coarsest + choose_n_fragments(coarsest, k) * k / 2
    searched = _MANY_NODES * coarsest if is_many else searched
    # the coarsest level may have a few more nodes than are wanted
    searched_memory = min(nodes, NEAR * coarsest) * (_MANY_BYTES if is_many else _FEW_BYTES)
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
    seconds = _SEARCH_PASSES * found * _EDGE_SECONDS + searched * _NODE_SECONDS
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


_LOG = logging.getLogger(__name__)
# fraction of the free memory that a run may use by default
_USABLE_MEMORY = 0.6
# neighbours on disk, where no other number is tried: few follow the shape of clusters closely
_SEARCHED_NEIGHBORS = 15
_DECIDED_ONCE = ("data", "mode", "block_rows")


@dataclass(frozen=True)
class RunPlan:
    """What every stage of a run needs to know."""

    path: str
    source: Source
    config: FitConfig
    device: str
    mode: Mode
    block_rows: int

    @property
    def folder(self) -> Folder:
        """The folder of the run."""
        return Folder(self.path)

    @property
    def n_neighbors(self) -> int:
        """Neighbours of a row, as far as they are known before the fit."""
        return planned_neighbors(self.config, self.source.n_samples)

    @property
    def key(self) -> str:
        """A digest that changes with whatever changes the graph."""
        config = self.config
        settings = [self.n_neighbors, config.metric, config.similarity, config.seed]
        return plan_key([self.source.fingerprint, *settings, config.n_clusters])


def planned_neighbors(config: FitConfig, n_samples: int) -> int:
    """Return the neighbours of a row, as far as they are known before the fit."""
    chosen = choose_n_neighbors(n_samples, config.n_clusters)
    if config.solver == "search":
        chosen = min(chosen, _SEARCHED_NEIGHBORS)
    return config.n_neighbors or chosen


def plan_run(
    path: str,
    source: Source,
    config: FitConfig,
    memory: int | None,
    *,
    on_disk: bool = False,
    device: str = "auto",
) -> RunPlan:
    """Write ``plan.json``, or check that the plan of an earlier call is the same.

    ``on_disk`` says that the engine cannot work in memory.
    """
    folder = Folder(path)
    if folder.exists("plan.json"):
        earlier = read_plan(folder)
        decided = {name: earlier[name] for name in _DECIDED_ONCE if name in earlier}
    else:
        usable = usable_memory(memory, is_shared=on_disk)
        n_neighbors = planned_neighbors(config, source.n_samples)
        mode, block_rows = choose_mode(source, n_neighbors, usable, on_disk=on_disk)
        decided = {"data": source.path, "mode": mode, "block_rows": block_rows}
    if decided.get("mode") == "disk" and config.solver == "train":
        remedy = "leave out the engine" if on_disk else "raise memory"
        raise InvalidInputError(
            f"solver='train' needs the graph in memory, and this run has it on disk; {remedy}, "
            "train batch by batch with PRCut.partial_fit, or use solver='search'."
        )
    folder.start(describe_run(source, config) | decided)
    return RunPlan(path, source, config, device, decided["mode"], decided["block_rows"])


def describe_run(source: Source, config: FitConfig) -> dict[str, Any]:
    """Describe a run, one name for each setting, so that an error can say which one differs."""
    is_searched = config.solver == "search"
    # threads decide nothing, and a search neither projects nor refines
    left_out = {"train", "distil", "n_jobs"} | (
        {"n_components", "refine"} if is_searched else set()
    )
    own = {name: value for name, value in asdict(config).items() if name not in left_out}
    return {
        "kind": "run",
        "format": RUN_FORMAT,
        "fingerprint": source.fingerprint,
        "column": getattr(source, "column", None),
        "id_column": getattr(source, "id_column", None),
        "n_samples": source.n_samples,
        "n_features": source.n_features,
        **asdict(config.in_use),
        **own,
        "balance_weight": config.balance_weight if is_searched else config.training_balance,
        "n_init": config.n_starts,
        "hidden": config.layers,
    }


def check_fit(source: Source, config: FitConfig) -> None:
    """Refuse what cannot be fitted, before a folder is made."""
    check_n_samples(source.n_samples, config)
    if source.n_features == 0:
        raise InvalidInputError("data has n_features=0 columns, expected at least one.")
    # a function has no name that a folder could hold
    for name, known in (("metric", get_args(Metric)), ("similarity", get_args(Similarity))):
        if (given := getattr(config, name)) not in known:
            raise InvalidInputError(f"{name}={given!r} must be one of {', '.join(known)}.")
    for column in (config.label_column, config.weight_column):
        if column is not None:  # none of its rows: says so where there is no such column
            columns_of(source, column).read_values(column, np.empty(0, np.int64))
    if config.weight_column is None:
        config.limits(source.n_samples)  # refuses what cannot hold


def usable_memory(memory: int | None, *, is_shared: bool = False) -> int:
    """Return the bytes that were given, or a fraction of the free ones.

    ``is_shared`` says that every CPU of the node runs a task of its own.
    """
    if memory is not None:
        return memory
    usable = int(_USABLE_MEMORY * available_memory())
    return usable // (os.cpu_count() or 1) if is_shared else usable


def choose_mode(
    source: Source, n_neighbors: int, usable: int, *, on_disk: bool = False
) -> tuple[Mode, int]:
    """Choose memory where rows and graph fit, else blocks on disk; return the rows of a block."""
    sizes = source.n_samples, source.n_features, source.dtype.itemsize, n_neighbors
    needed = bytes_in_memory(*sizes)
    mode: Mode = "disk" if on_disk or needed > usable else "memory"
    _LOG.info(
        "%s rows of %s features with %d neighbours need about %s, %s may be used: the graph is "
        "built %s",
        *(f"{source.n_samples:,}", f"{source.n_features:,}", n_neighbors),
        *map(readable_bytes, (needed, usable)),
        "in memory" if mode == "memory" else "on disk, block by block",
    )
    return mode, choose_block_rows(usable, *sizes, halo=BlockConfig.halo)
