"""A fit as a folder: every stage writes its files and is skipped where they are valid.

::

    plan.json         what is fitted to what, and whether in memory or on disk
    graph/            in memory: the graph, mapped while it is trained on
    blocks/ pairs/    on disk: blocks of the graph, and pairs drawn from them
    sample/           on disk: a run in memory on a sample of the rows
    checkpoint/       every start as it goes
    model/            the assigner that was kept
    history.parquet   its training, a row per ten steps
    result.json       written last: scores, sizes, seconds

A killed run is finished by calling it again, with the same numbers. Under torch.distributed the
first process writes and the others wait; the folder must be one that all of them see.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from torch import distributed

from prcut.assigner import Assigner
from prcut.blocks import BlockConfig, build_blocks, open_blocks
from prcut.checkpoint import load_checkpoint
from prcut.engine import Engine, Here
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.fitting import (
    Fit,
    FitConfig,
    Taught,
    choose_device,
    choose_graph,
    choose_n_neighbors,
    fit_graph,
    fit_shards,
    measure_fit,
)
from prcut.graph import SimilarityGraph
from prcut.graph_folder import GRAPH_RECORD, load_graph, save_graph
from prcut.memory import (
    available_memory,
    bytes_in_memory,
    choose_block_rows,
    choose_sample_rows,
    readable_bytes,
)
from prcut.model_folder import load_model
from prcut.neighbors import Metric
from prcut.pair_shards import ShardConfig, open_pair_shards, write_pair_shards
from prcut.partition import Partition
from prcut.processes import this_place
from prcut.progress import Progress
from prcut.run_folder import (
    RUN_FORMAT,
    Mode,
    RunResult,
    absolute_path,
    read_plan,
    read_result,
    save_result,
)
from prcut.similarity import Similarity, build_graph
from prcut.sources import Source, open_source, read_all, sample_rows
from prcut.status import StatusWriter, training_progress
from prcut.storage import Folder, plan_key
from prcut.train_state import Record, TrainState

__all__ = ["GraphConfig", "choose_mode", "fit_run", "graph_run"]

_LOG = logging.getLogger(__name__)
# of the memory that is free, the share that a run takes for granted
_USABLE_MEMORY = 0.6
# pairs on disk: as many as training sees, within these numbers per anchor
_PAIRS_PER_ANCHOR = 4, 32
# decided when a run begins, whatever the machine looks like when it is resumed
_SETTLED = ("data", "mode", "block_rows", "sample_rows")


class GraphConfig(NamedTuple):
    """What decides a graph, besides the data: see :func:`prcut.similarity.build_graph`."""

    n_neighbors: int = 15
    metric: Metric = "euclidean"
    similarity: Similarity = "mean"
    seed: int = 0
    max_components: int = 1


@dataclass(frozen=True)
class _Run:
    """What every stage needs to know."""

    path: str
    source: Source
    data: Any
    graph: GraphConfig
    mode: Mode
    block_rows: int = 0
    sample_rows: int = 0

    @property
    def folder(self) -> Folder:
        """Where the run is."""
        return Folder(self.path)

    @property
    def key(self) -> str:
        """Changes with whatever changes the graph."""
        return plan_key([self.source.fingerprint, *self.graph])


def fit_run(
    data: Any,
    path: str | Path,
    config: FitConfig,
    *,
    column: str | None = None,
    id_column: str | None = None,
    memory: int | None = None,
    device: str = "auto",
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_record: Callable[[int, Record], None] | None = None,
) -> RunResult:
    """Fit an assigner in the folder ``path``, or finish what an earlier call began.

    Parameters
    ----------
    data : array, or path or URI of a .npy file, a Parquet file, or a folder of Parquet files
        See :func:`prcut.sources.open_source`, also for ``column`` and ``id_column``.
    path : str or path
        A folder of its own, local or a URI of any pyarrow filesystem.
    config : FitConfig
    memory : int, optional
        Bytes that data and graph may take; by default 0.6 of what is free. What needs more goes
        through blocks and pairs on disk.
    device : str
        ``"auto"`` is CUDA where there is one.
    engine : Engine, optional
        Where blocks, pairs and training are made, by default here. Another engine, such as
        :class:`prcut.cluster.RayEngine`, goes through blocks on disk, and every process of it must
        see ``data`` and ``path``.
    on_progress, on_record : callables, optional
        As for :func:`prcut.blocks.build_blocks` and :func:`prcut.fitting.fit_graph`; training
        calls ``on_record`` only where it is done here.

    Examples
    --------
    >>> import tempfile
    >>> rows = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    >>> config = FitConfig.of("default", 2, n_neighbors=8, max_steps=50, n_init=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = fit_run(rows, folder, config, device="cpu")
    >>> result.mode, result.n_samples, result.used_clusters
    ('memory', 100, 2)
    """
    source = open_source(data, column=column, id_column=id_column)
    _check(source, config)
    is_here = engine is None or isinstance(engine, Here)
    if is_here:
        choose_device(device)  # or refuse it before anything is made
    elif isinstance(data, np.ndarray):
        raise InvalidInputError("data must be a path or URI that all nodes see, not an array.")
    where = absolute_path(path)
    folder = Folder(where)
    graph = GraphConfig(
        config.n_neighbors or choose_n_neighbors(source.n_samples, config.n_clusters),
        config.metric,
        config.similarity,  # type: ignore[arg-type]  # checked to be a name
        config.train.seed,
        config.n_clusters,
    )
    if _is_leader():
        if folder.exists("plan.json"):
            begun = read_plan(folder)
            settled = {name: begun[name] for name in _SETTLED if name in begun}
        else:
            usable = _usable_memory(memory, is_shared=not is_here)
            mode, block_rows = _choose(source, graph, usable, must_be_on_disk=not is_here)
            name = None if isinstance(data, np.ndarray) else absolute_path(data)
            settled = {"data": name, "mode": mode, "block_rows": block_rows}
            sizes = source.n_samples, source.n_features, source.dtype.itemsize
            settled["sample_rows"] = choose_sample_rows(usable, *sizes, config.n_clusters)
        _check_mode(config, settled.get("mode"))
        folder.start(_describe(source, config) | settled)
    _wait()
    begun = read_plan(folder)
    if (earlier := read_result(where)) is not None:
        _LOG.info("%s is finished already", where)
        return earlier
    run = _Run(where, source, data, graph, begun["mode"], begun["block_rows"], begun["sample_rows"])
    engine = engine or Here()
    seconds: dict[str, float] = {}
    if run.mode == "disk":
        tell = StatusWriter(where).also(on_progress)
        with _timed(seconds, "graph"):
            _blocks_stage(run, config, engine, tell)
        if config.solver == "search":
            with _timed(seconds, "sample"):
                fit_sample = partial(_fit_sample, run, config, device)
                told = tell if _is_leader() else None
                engine.run("sample", fit_sample, 1, total=run.sample_rows, on_progress=told)
    engine.train(partial(_train, run, config, device, seconds, on_record if is_here else None))
    result = read_result(where)
    if result is None:
        raise CorruptFileError(f"{where}/result.json is not there after training; run again.")
    return result


def graph_run(
    data: Any,
    path: str | Path,
    config: GraphConfig,
    *,
    column: str | None = None,
    memory: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Mode:
    """The graph stage alone: a graph or, where it would not fit in memory, blocks in ``path``.

    Parameters are those of :func:`fit_run`. The folder is read by
    :func:`prcut.graph_folder.load_graph` or :func:`prcut.blocks.open_blocks`.

    Returns
    -------
    {"memory", "disk"}
        Where the graph was built: a graph folder, or blocks.
    """
    source = open_source(data, column=column)
    _check_names(config)
    folder = Folder(path)
    _check_free(folder)
    mode, block_rows = _begun_graph(folder) or _choose(source, config, _usable_memory(memory))
    run = _Run(absolute_path(path), source, data, config, mode, block_rows)
    if mode == "disk":
        build_blocks(data, path, _block_config(run), column=column, on_progress=on_progress)
        return mode
    folder.start({**config._asdict(), "fingerprint": source.fingerprint, "format": RUN_FORMAT})
    if not folder.is_sealed(GRAPH_RECORD, run.key):
        _make_graph(run, folder, read_all(source))
    return mode


def choose_mode(needed: int, memory: int) -> Mode:
    """In memory where what is needed fits, else through blocks on disk.

    >>> choose_mode(bytes_in_memory(1_000_000, 128, 4, 15), memory=8 * 10**9)
    'memory'
    >>> choose_mode(bytes_in_memory(100_000_000, 128, 4, 15), memory=8 * 10**9)
    'disk'
    """
    return "memory" if needed <= memory else "disk"


# -- the plan --------------------------------------------------------------------------------


def _check(source: Source, config: FitConfig) -> None:
    if source.n_samples < config.n_clusters:
        raise InvalidInputError(
            f"n_samples={source.n_samples} should be >= n_clusters={config.n_clusters}."
        )
    if source.n_features == 0:
        raise InvalidInputError("data has n_features=0 columns, expected at least one.")
    _check_names(config)


def _check_names(config: FitConfig | GraphConfig) -> None:
    for name, known in (("metric", get_args(Metric)), ("similarity", get_args(Similarity))):
        if getattr(config, name) not in known:
            raise InvalidInputError(
                f"{name}={getattr(config, name)!r} must be one of {', '.join(known)}."
            )


def _check_free(folder: Folder) -> None:
    """Refuse a folder that holds what no plan speaks of."""
    if folder.names() and not folder.exists("plan.json"):
        raise InvalidInputError(f"{folder.path} holds other files; choose a new or empty folder.")


def _check_mode(config: FitConfig, mode: str | None) -> None:
    if mode == "disk" and config.pairs != "walk":
        raise InvalidInputError(
            f"pairs={config.pairs!r} (the paper's) needs the graph in memory, and it does not fit; "
            "raise memory or use preset='default'."
        )


def _describe(source: Source, config: FitConfig) -> dict[str, Any]:
    """What a run is about, one name each, so that an error can say which one differs."""
    options = asdict(config)
    return {
        "kind": "run",
        "format": RUN_FORMAT,
        "fingerprint": source.fingerprint,
        "column": getattr(source, "column", None),
        "id_column": getattr(source, "id_column", None),
        "n_samples": source.n_samples,
        "n_features": source.n_features,
        **asdict(config.in_use),
        **{name: value for name, value in options.items() if name not in ("train", "teach")},
        "balance_weight": (
            config.balance_weight if config.solver == "search" else config.train.balance_weight
        ),
        "n_init": config.n_starts,
        "hidden": config.layers,
    }


def _usable_memory(memory: int | None, *, is_shared: bool = False) -> int:
    """Bytes that were given, or that are free; ``is_shared``: by a task on each CPU of a node."""
    if memory is not None:
        return memory
    usable = int(_USABLE_MEMORY * available_memory())
    return usable // (os.cpu_count() or 1) if is_shared else usable


def _choose(
    source: Source, graph: GraphConfig, usable: int, *, must_be_on_disk: bool = False
) -> tuple[Mode, int]:
    """In memory or on disk, and the rows of a block."""
    sizes = source.n_features, source.dtype.itemsize, graph.n_neighbors
    n_processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    needed = bytes_in_memory(source.n_samples, *sizes, n_processes=n_processes)
    mode = "disk" if must_be_on_disk else choose_mode(needed, usable)
    _LOG.info(
        "%s rows of %s features with %d neighbours need about %s, %s may be used: the graph is "
        "built %s",
        f"{source.n_samples:,}",
        f"{source.n_features:,}",
        graph.n_neighbors,
        readable_bytes(needed),
        readable_bytes(usable),
        "in memory" if mode == "memory" else "on disk, block by block",
    )
    return mode, choose_block_rows(usable, *sizes, halo=BlockConfig.halo)


# -- stages ----------------------------------------------------------------------------------


def _train(
    run: _Run,
    config: FitConfig,
    device: str,
    seconds: dict[str, float],
    on_record: Callable[[int, Record], None] | None,
) -> None:
    """In every process that trains: graph, where it is in memory, training, and the result."""
    chosen = choose_device(device)
    status = StatusWriter(run.path)
    planned = (1 if config.solver == "search" else config.n_starts), config.in_use.max_steps
    start_time = time.monotonic()

    def note(start: int, record: Record) -> None:
        if on_record is not None:
            on_record(start, record)
        if _is_leader():
            speed = record.step / (time.monotonic() - start_time)
            status.on_progress(training_progress(*planned, start, record.step, speed))

    fit = _fit(run, config, chosen, note, seconds)
    if _is_leader():
        result = _result(run, fit, seconds)
        save_result(result, fit.state, _describe(run.source, config), fit.config.solver)
        speed = fit.state.step / max(seconds["training"], 1e-9)
        status.on_progress(training_progress(*planned, planned[0], 0, speed))
    _wait()


def _fit(
    run: _Run,
    config: FitConfig,
    device: torch.device,
    on_record: Callable[[int, Record], None],
    seconds: dict[str, float],
) -> Fit:
    """Training, whichever way; ``seconds`` gets the time of each stage."""
    checkpoint = run.folder / "checkpoint"
    if run.mode == "memory":
        with _timed(seconds, "graph"):
            graph, features, partition = _graph_stage(run, config)
        with _timed(seconds, "training"):
            fit = fit_graph(
                graph,
                features,
                config,
                device=device,
                checkpoint=checkpoint,
                on_record=on_record,
                partition=partition,
            )
            # what is written are the labels that the model gives
            return measure_fit(fit, graph, features)
    shards, blocks = open_pair_shards(f"{run.path}/pairs"), open_blocks(f"{run.path}/blocks")
    taught = None
    if config.solver == "search":
        taught, balance_weight = _open_sample(run, config, device)
        # one start beside what was found; and both are weighed alike
        weighed = replace(config.train, balance_weight=balance_weight)
        config = replace(config.balanced(balance_weight), n_init=1, train=weighed)
    with _timed(seconds, "training"):
        return fit_shards(
            shards,
            blocks,
            config,
            device=device,
            checkpoint=checkpoint,
            on_record=on_record,
            taught=taught,
        )


def _fit_sample(
    run: _Run, config: FitConfig, device: str, _: int, advance: Callable[[int], None]
) -> None:
    """A run in memory on rows of the whole source."""
    rows = sample_rows(run.source, run.sample_rows, [config.train.seed, 7])
    # so many that they fit
    fit_run(rows, f"{run.path}/sample", config, memory=sys.maxsize, device=device)
    advance(run.sample_rows)


def _open_sample(run: _Run, config: FitConfig, device: torch.device) -> tuple[Taught, float]:
    """What a sample's run taught, and the balance weight it chose."""
    model = load_model(f"{run.path}/sample/model")
    balance_weight = float(model.description["result"]["balance_weight"])
    teach = config.balanced(balance_weight).teach
    assert isinstance(model.assigner, Assigner)  # noqa: S101
    assigner = model.assigner.to(device)
    state = TrainState.start(assigner, teach)
    load_checkpoint(Folder(f"{run.path}/sample/checkpoint/start-0"), assigner, state, teach)
    return Taught(assigner, state), balance_weight


def _graph_stage(run: _Run, fit: FitConfig) -> tuple[SimilarityGraph, np.ndarray, Partition | None]:
    """The graph, mapped, the features, and the partition where it was found in choosing a graph."""
    features = read_all(run.source)
    folder = run.folder / "graph"
    partition = None
    if _is_leader() and not folder.is_sealed(GRAPH_RECORD, run.key):
        partition = _make_graph(run, folder, features, fit)
    _wait()
    return load_graph(folder, verify=False), features, partition


def _make_graph(
    run: _Run, folder: Folder, features: np.ndarray, fit: FitConfig | None = None
) -> Partition | None:
    """The graph that is asked for, or that a search prefers, which then has found its partition."""
    config, partition = run.graph, None

    def build(n_neighbors: int) -> SimilarityGraph:
        _LOG.info("finding %d neighbours of %s rows", n_neighbors, f"{len(features):,}")
        return build_graph(
            features,
            n_neighbors,
            metric=config.metric,
            similarity=config.similarity,
            max_components=config.max_components,
            seed=config.seed,
        )

    if fit is not None and fit.solver == "search" and fit.n_neighbors is None:
        n_neighbors, graph, partition = choose_graph(build, len(features), fit)
        config = config._replace(n_neighbors=n_neighbors)
    else:
        graph = build(config.n_neighbors)
    save_graph(folder, graph, {"key": run.key, **config._asdict()})
    return partition


def _begun_graph(folder: Folder) -> tuple[Mode, int] | None:
    """As :func:`_choose`, of what an earlier call began."""
    if not folder.exists("plan.json"):
        return None
    plan = folder.read_json("plan.json")
    if "config" in plan:
        return "disk", int(plan["config"]["block_rows"])
    return "memory", 0


def _block_config(run: _Run) -> BlockConfig:
    graph = run.graph
    return BlockConfig(
        n_neighbors=graph.n_neighbors,
        metric=graph.metric,
        block_rows=run.block_rows,
        seed=graph.seed,
    )


def _blocks_stage(
    run: _Run, config: FitConfig, engine: Engine, on_progress: Callable[[Progress], None]
) -> None:
    """Blocks, and the pairs drawn from them."""
    if _is_leader():
        blocks = build_blocks(
            run.data,
            f"{run.path}/blocks",
            _block_config(run),
            column=getattr(run.source, "column", None),
            engine=engine,
            on_progress=on_progress,
        )
        n_anchors = sum(record["n_anchors"] for record in blocks.records)
        wanted = config.train.max_steps * config.train.batch_size // n_anchors
        least, most = _PAIRS_PER_ANCHOR
        shards = ShardConfig(
            pairs_per_anchor=min(most, max(least, wanted)),
            n_steps=config.walk_length,
            similarity=run.graph.similarity,
            seed=config.train.seed,
        )
        pairs = f"{run.path}/pairs"
        write_pair_shards(blocks, pairs, shards, engine=engine, on_progress=on_progress)
    _wait()


# -- the result ------------------------------------------------------------------------------


def _result(run: _Run, fit: Fit, seconds: dict[str, float]) -> RunResult:
    return RunResult(
        path=run.path,
        assigner=fit.assigner,
        mode=run.mode,
        n_samples=run.source.n_samples,
        n_features=run.source.n_features,
        n_clusters=fit.assigner.n_clusters,
        used_clusters=int((fit.cluster_sizes > 0).sum()),
        objective=fit.objective,
        ratio_cut=fit.ratio_cut,
        balance_weight=fit.config.in_use.balance_weight,
        n_steps=fit.state.step,
        seconds=seconds,
    )


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    seconds[stage] = round(time.monotonic() - start, 3)


# -- processes -------------------------------------------------------------------------------


def _is_leader() -> bool:
    return this_place().rank == 0


def _wait() -> None:
    """Until every process is here."""
    if this_place().world_size > 1:
        distributed.barrier()
