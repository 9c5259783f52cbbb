"""A fit as a folder: every stage writes its files and is skipped where they are valid.

::

    plan.json         what is fitted to what, and whether in memory or on disk
    graph/            in memory: the graph, mapped while it is trained on
    blocks/           on disk: blocks of the graph
    search/           on disk: the graph level by level, while its partition is searched
    partition/        the cluster of every row
    lesson/           on disk: rows to distil the partition from
    checkpoint/       every start as it is trained
    model/            the assigner that was kept, and rows to tell outliers by
    history.parquet   its training, a row per ten steps
    result.json       written last: scores, sizes, seconds

Calling a killed run again resumes it, with the same numbers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.build import build_graph
from prcut.graph.rows import MEASURED_ROWS
from prcut.graph.saved import GRAPH_RECORD, load_graph, save_graph
from prcut.pipeline.choose import ChosenGraph, choose_graph, choose_scales
from prcut.pipeline.config import FitConfig
from prcut.pipeline.fit import Fit, fit_rows
from prcut.pipeline.known import Known, refuse_known
from prcut.pipeline.outliers import MAX_EXEMPLARS, Exemplars
from prcut.pipeline.outofcore.build_blocks import build_blocks
from prcut.pipeline.outofcore.row_labels import find_clusters, save_row_labels
from prcut.pipeline.outofcore.search_run import distil_run, search_run
from prcut.pipeline.run_folder import RUN_FORMAT, Mode, RunResult, read_result, save_result
from prcut.pipeline.run_plan import (
    GraphConfig,
    RunPlan,
    check_fit,
    check_names,
    choose_mode,
    describe_run,
    open_plan,
    usable_memory,
    write_plan,
)
from prcut.pipeline.starts import OnRecord
from prcut.runtime.device import choose_device
from prcut.runtime.engine import Engine, LocalEngine
from prcut.runtime.folder import Folder, absolute_path
from prcut.runtime.progress import Progress, StatusWriter, training_progress
from prcut.runtime.sources import draw_rows, open_source, read_all, sample_rows
from prcut.training.assigner.network import Assigner
from prcut.training.state import Record

_LOG = logging.getLogger(__name__)


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
    on_record: OnRecord | None = None,
) -> RunResult:
    """Fit an assigner in the folder ``path``, or resume what an earlier call began.

    Parameters
    ----------
    data : Source, array, or path or URI of a .npy file, a Parquet file, or a folder of Parquet
        See :func:`prcut.runtime.open_source`, also for ``column`` and ``id_column``.
    path : str or path
        A folder of its own, local or a URI of any pyarrow filesystem.
    config : FitConfig
    memory : int, optional
        Bytes that data and graph may take, by default 0.6 of the free ones. What needs more goes
        through blocks on disk.
    device : str
        ``"auto"`` is CUDA where there is one.
    engine : Engine, optional
        Runs the tasks of all stages but the last, by default in this process. Another engine,
        such as :class:`prcut.runtime.RayEngine`, works on disk, and all of its processes must see
        ``data`` and ``path``. The assigner is trained in this process.
    on_progress, on_record : callables, optional
        Called with the :class:`~prcut.runtime.Progress` of a stage, and with the number of a start
        and its newest training record.

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
    check_fit(source, config)
    choose_device(device)  # refuse a wrong one before anything is made
    is_local = engine is None or isinstance(engine, LocalEngine)
    if not is_local and source.path is None:
        raise InvalidInputError("data must be a path or URI that all nodes see, not an array.")
    where = absolute_path(path)
    write_plan(where, source, config, memory, on_disk=not is_local)
    if (earlier := read_result(where)) is not None:
        _LOG.info("%s is finished already", where)
        return earlier
    plan = open_plan(where, source, config, device)
    seconds: dict[str, float] = {}
    if plan.mode == "disk":
        report = StatusWriter(where).also(on_progress)
        _search_disk(plan, engine or LocalEngine(), report, seconds)
    _train(plan, seconds, on_record)
    result = read_result(where)
    if result is None:
        raise CorruptFileError(f"{where}/result.json is missing after training; run again.")
    plan.folder.clear_unfinished()  # of nodes that were killed
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
    """Build the graph alone: a graph or, where it would not fit in memory, blocks in ``path``.

    Parameters are those of :func:`fit_run`. The folder is read by :func:`prcut.graph.load_graph` or
    :func:`prcut.pipeline.outofcore.blocks.open_blocks`.

    Returns
    -------
    {"memory", "disk"}
        Where the graph was built: a graph folder, or blocks.
    """
    source = open_source(data, column=column)
    check_names(config)
    folder = Folder(path)
    if folder.names() and not folder.exists("plan.json"):
        raise InvalidInputError(f"{folder.path} holds other files; choose a new or empty folder.")
    mode, block_rows = _earlier_mode(folder) or choose_mode(source, config, usable_memory(memory))
    if mode == "disk":
        build_blocks(source, path, config.blocks(block_rows), on_progress=on_progress)
        return mode
    settings, key = config._asdict(), config.key(source)
    folder.start({**settings, "fingerprint": source.fingerprint, "format": RUN_FORMAT})
    if not folder.is_sealed(GRAPH_RECORD, key):
        save_graph(folder, build_graph(read_all(source), **settings), {"key": key, **settings})
    return mode


def _earlier_mode(folder: Folder) -> tuple[Mode, int] | None:
    """Return what :func:`choose_mode` chose when an earlier call began."""
    if not folder.exists("plan.json"):
        return None
    plan = folder.read_json("plan.json")
    return ("disk", int(plan["config"]["block_rows"])) if "config" in plan else ("memory", 0)


# -- on disk: blocks, and their partition ----------------------------------------------------------


def _search_disk(
    plan: RunPlan,
    engine: Engine,
    on_progress: Callable[[Progress], None],
    seconds: dict[str, float],
) -> None:
    """Build the blocks and search their partition."""
    refuse_known(plan.config, "graphs on disk; give more --memory", ("label_column",))
    with _timed(seconds, "graph"):
        blocks = build_blocks(
            plan.source,
            f"{plan.path}/blocks",
            plan.graph.blocks(plan.block_rows, _disk_scales(plan), _kept_rows(plan)),
            engine=engine,
            on_progress=on_progress,
        )
    with _timed(seconds, "search"):
        search_run(plan, blocks, engine, on_progress)


def _kept_rows(plan: RunPlan) -> int | None:
    """Return how many rows of the blocks are needed after their edges; None for all."""
    weighs_rows = plan.graph.similarity == "cosine" and plan.graph.metric != "cosine"
    if weighs_rows:
        return None
    return plan.config.distil.max_steps * plan.config.distil.batch_size


def _disk_scales(plan: RunPlan) -> np.ndarray | None:
    """Return what columns are divided by."""
    sample = sample_rows(plan.source, MEASURED_ROWS, [plan.config.seed, 10])
    return choose_scales(sample, plan.config)


# -- the fit ---------------------------------------------------------------------------------------


def _train(plan: RunPlan, seconds: dict[str, float], on_record: OnRecord | None) -> None:
    """Fit, and write the result."""
    config, status = plan.config, StatusWriter(plan.path)
    planned = (1 if config.solver == "search" else config.n_starts), config.in_use.max_steps
    start_time = time.monotonic()

    def note(start: int, record: Record) -> None:
        if on_record is not None:
            on_record(start, record)
        speed = record.step / (time.monotonic() - start_time)
        status.on_progress(training_progress(*planned, start, record.step, speed))

    options = {
        "device": choose_device(plan.device),
        "checkpoint": plan.folder / "checkpoint",
        "on_record": note,
    }
    fit_here = _fit_memory if plan.mode == "memory" else _fit_disk
    fit = fit_here(plan, options, seconds)
    if fit.labels is not None:  # of rows in memory
        save_row_labels(plan.folder / "partition", plan.key, fit.labels)
    about, exemplars = describe_run(plan.source, config), _draw_exemplars(plan, fit.assigner)
    result = RunResult.of(plan.path, plan.mode, plan.source, fit, seconds)
    save_result(result, fit, about, exemplars)
    speed = fit.state.step / max(seconds["training"], 1e-9)
    status.on_progress(training_progress(*planned, planned[0], 0, speed))


def _fit_memory(plan: RunPlan, options: dict[str, Any], seconds: dict[str, float]) -> Fit:
    known = Known.of_source(plan.source, plan.config)
    with _timed(seconds, "graph"):
        rows = read_all(plan.source)
        graph = _graph_stage(plan, rows)
    with _timed(seconds, "training"):
        return fit_rows(rows, plan.config, graph, known=known, **options)


def _fit_disk(plan: RunPlan, options: dict[str, Any], seconds: dict[str, float]) -> Fit:
    with _timed(seconds, "training"):
        return distil_run(plan, options)


def _draw_exemplars(plan: RunPlan, assigner: Assigner) -> Exemplars | None:
    """Draw rows to compare others with, where those that belong nowhere are to be found."""
    config = plan.config
    if config.outliers is None:
        return None
    numbers, rows = draw_rows(plan.source, MAX_EXEMPLARS, [config.seed, 3])
    labels = find_clusters(plan.folder / "partition", numbers, rows, assigner)
    return Exemplars.draw(rows, labels, assigner.column_scales, config)


def _graph_stage(plan: RunPlan, rows: np.ndarray) -> ChosenGraph:
    """Return the graph, mapped from the folder, where it is saved."""
    folder = plan.folder / "graph"
    chosen = None
    if not folder.is_sealed(GRAPH_RECORD, plan.key):
        chosen = choose_graph(rows, plan.config)
        made = plan.graph._replace(n_neighbors=chosen.n_neighbors or plan.graph.n_neighbors)
        save_graph(folder, chosen.graph, {"key": plan.key, **made._asdict()})
    record = folder.read_record(GRAPH_RECORD) or {}
    graph = load_graph(folder, verify=False)
    if chosen is None:  # an earlier call built it
        scales = choose_scales(rows, plan.config)
        return ChosenGraph(graph, record.get("n_neighbors"), scales=scales)
    return chosen._replace(graph=graph)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    seconds[stage] = round(time.monotonic() - start, 3)
