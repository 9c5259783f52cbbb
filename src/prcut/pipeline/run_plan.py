"""Plan a run before anything is made: what is fitted to what, in memory or on disk.

What is decided here is written to ``plan.json`` and stays when the run is resumed, whatever the
machine looks like then.
"""

from __future__ import annotations

import logging
import os
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, get_args

import numpy as np

from prcut.errors import InvalidInputError
from prcut.graph.build import Similarity
from prcut.graph.neighbors import Metric
from prcut.pipeline.choose import choose_n_neighbors
from prcut.pipeline.config import FitConfig, check_n_samples
from prcut.pipeline.known import columns_of
from prcut.pipeline.outofcore.build_blocks import BlockConfig
from prcut.pipeline.outofcore.sizes import bytes_in_memory, choose_block_rows, choose_most_nodes
from prcut.pipeline.run_folder import RUN_FORMAT, Mode, read_plan
from prcut.runtime.folder import Folder, plan_key
from prcut.runtime.memory import available_memory, readable_bytes
from prcut.runtime.sources import Source

_LOG = logging.getLogger(__name__)
# fraction of the free memory that a run may use by default
_USABLE_MEMORY = 0.6
# neighbours on disk, where no other number is tried: few follow the shape of clusters closely
_SEARCHED_NEIGHBORS = 15
_DECIDED_ONCE = ("data", "mode", "block_rows", "most_nodes")


class GraphConfig(NamedTuple):
    """What decides a graph, besides the data: see :func:`prcut.graph.build_graph`."""

    n_neighbors: int = 15
    metric: Metric = "euclidean"
    similarity: Similarity = "mean"
    seed: int = 0
    max_components: int = 1

    @classmethod
    def of(cls, config: FitConfig, n_samples: int) -> GraphConfig:
        """Return the graph of a fit, as far as it is known before the fit."""
        chosen = choose_n_neighbors(n_samples, config.n_clusters)
        if config.solver == "search":
            chosen = min(chosen, _SEARCHED_NEIGHBORS)
        return cls(
            config.n_neighbors or chosen,
            config.metric,
            config.similarity,  # type: ignore[arg-type]  # checked to be a name
            config.seed,
            config.n_clusters,
        )

    def key(self, source: Source) -> str:
        """Return a digest that changes with whatever changes the graph of a source."""
        return plan_key([source.fingerprint, *self])

    def blocks(
        self, block_rows: int, scales: np.ndarray | None = None, kept: int | None = None
    ) -> BlockConfig:
        """Return the options of a graph that is built block by block."""
        given = None if scales is None else tuple(scales.tolist())
        how: dict[str, Any] = {"seed": self.seed, "scales": given, "kept": kept}
        return BlockConfig(self.n_neighbors, self.metric, block_rows, **how)


@dataclass(frozen=True)
class RunPlan:
    """What every stage of a run needs to know."""

    path: str
    source: Source
    config: FitConfig
    device: str
    graph: GraphConfig
    mode: Mode
    block_rows: int
    most_nodes: int

    @property
    def folder(self) -> Folder:
        """The folder of the run."""
        return Folder(self.path)

    @property
    def key(self) -> str:
        """A digest that changes with whatever changes the graph."""
        return self.graph.key(self.source)


def write_plan(
    path: str, source: Source, config: FitConfig, memory: int | None, *, on_disk: bool
) -> None:
    """Write ``plan.json``, or check that the plan of an earlier call is the same.

    ``on_disk`` says that the engine cannot work in memory.
    """
    folder = Folder(path)
    if folder.exists("plan.json"):
        earlier = read_plan(folder)
        decided = {name: earlier[name] for name in _DECIDED_ONCE if name in earlier}
    else:
        usable = usable_memory(memory, is_shared=on_disk)
        graph = GraphConfig.of(config, source.n_samples)
        mode, block_rows = choose_mode(source, graph, usable, on_disk=on_disk)
        most_nodes = choose_most_nodes(usable, source.n_samples, config.n_clusters)
        values = getattr(source, "path", None), mode, block_rows, most_nodes
        decided = dict(zip(_DECIDED_ONCE, values, strict=True))
    if decided.get("mode") == "disk" and config.solver == "train":
        remedy = "leave out the engine" if on_disk else "raise memory"
        raise InvalidInputError(
            f"solver='train' needs the graph in memory, and this run has it on disk; {remedy}, "
            "train batch by batch with PRCut.partial_fit, or use solver='search'."
        )
    folder.start(describe_run(source, config) | decided)


def open_plan(path: str, source: Source, config: FitConfig, device: str = "auto") -> RunPlan:
    """Return the plan that :func:`write_plan` wrote."""
    plan = read_plan(Folder(path))
    sizes = plan["mode"], plan["block_rows"], plan["most_nodes"]
    return RunPlan(path, source, config, device, GraphConfig.of(config, source.n_samples), *sizes)


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
    check_names(config)
    for column in (config.label_column, config.weight_column):
        if column is not None:  # none of its rows: says so where there is no such column
            columns_of(source, column).read_values(column, np.empty(0, np.int64))
    if config.weight_column is None:
        config.limits(source.n_samples)  # refuses what cannot hold


def check_names(config: FitConfig | GraphConfig) -> None:
    """Refuse metrics and similarities that have no name of ours: a function has none on disk."""
    for name, known in (("metric", get_args(Metric)), ("similarity", get_args(Similarity))):
        if getattr(config, name) not in known:
            raise InvalidInputError(
                f"{name}={getattr(config, name)!r} must be one of {', '.join(known)}."
            )


def usable_memory(memory: int | None, *, is_shared: bool = False) -> int:
    """Return the bytes that were given, or a fraction of the free ones.

    ``is_shared`` says that every CPU of the node runs a task of its own.
    """
    if memory is not None:
        return memory
    usable = int(_USABLE_MEMORY * available_memory())
    return usable // (os.cpu_count() or 1) if is_shared else usable


def choose_mode(
    source: Source, graph: GraphConfig, usable: int, *, on_disk: bool = False
) -> tuple[Mode, int]:
    """Choose memory where rows and graph fit, else blocks on disk; return the rows of a block."""
    sizes = source.n_samples, source.n_features, source.dtype.itemsize, graph.n_neighbors
    needed = bytes_in_memory(*sizes)
    mode: Mode = "disk" if on_disk or needed > usable else "memory"
    _LOG.info(
        "%s rows of %s features with %d neighbours need about %s, %s may be used: the graph is "
        "built %s",
        *(f"{source.n_samples:,}", f"{source.n_features:,}", graph.n_neighbors),
        *map(readable_bytes, (needed, usable)),
        "in memory" if mode == "memory" else "on disk, block by block",
    )
    return mode, choose_block_rows(usable, *sizes, halo=BlockConfig.halo)
