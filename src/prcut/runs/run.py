"""A fit as a folder: every stage writes its files and is skipped where they are valid.

::

    plan.json         what is fitted to what, and whether in memory or on disk
    blocks/           on disk: blocks of rows, with their neighbours
    graph/            the graph, mapped while it is searched
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.fit.assign import OnRecord, Start, distil
from prcut.fit.choose import ChosenGraph, choose_graph, choose_scales
from prcut.fit.clusters import score_labels
from prcut.fit.config import FitConfig
from prcut.fit.fit import fit_rows
from prcut.fit.known import Known, fraction_limits, search_known, warn_of_sizes
from prcut.fit.outliers import MAX_EXEMPLARS, Exemplars
from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.graph.blocks.join import (
    JOINED_RECORD,
    join_blocks,
    needs_features,
    open_joined,
    save_joined,
)
from prcut.graph.blocks.read import Blocks, open_blocks
from prcut.graph.rows import MEASURED_ROWS, divide_columns
from prcut.graph.similarity_graph import GRAPH_RECORD, load_graph, save_graph
from prcut.runs.folder import RunResult, read_result, save_result
from prcut.runs.plan import RunPlan, check_fit, describe_run, plan_run
from prcut.runs.row_labels import (
    SCORE_RECORD,
    RowLabels,
    find_clusters,
    read_score,
    save_row_labels,
    save_score,
)
from prcut.runtime.device import choose_device
from prcut.runtime.engine import Engine, LocalEngine
from prcut.runtime.folder import Folder, absolute_path, plan_key
from prcut.runtime.progress import Progress, StatusWriter, training_progress
from prcut.runtime.sources import Source, draw_rows, open_source, read_all, sample_rows
from prcut.search.balance import Resampled
from prcut.search.fragments import CoarseGraph
from prcut.search.votes import Votes
from prcut.training.assigner.network import Assigner
from prcut.training.batches import LabelledRows
from prcut.training.state import Record

_LOG = logging.getLogger(__name__)
# partitions of the resampled graph, beside the graph
_RESAMPLED = "resampled.npy"
# written when the rows to distil are whole
_LESSON_RECORD = "lesson.json"


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
    plan = plan_run(where, source, config, memory, on_disk=not is_local, device=device)
    if (earlier := read_result(where)) is not None:
        _LOG.info("%s is finished already", where)
        return earlier
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


# -- on disk: blocks, and their partition ----------------------------------------------------------


def _search_disk(
    plan: RunPlan,
    engine: Engine,
    on_progress: Callable[[Progress], None],
    seconds: dict[str, float],
) -> None:
    """Build the blocks and search their partition."""
    # errors in classes and weights are found before the blocks are built
    Known.of_source(plan.source, plan.config).check(plan.config, plan.source.n_samples)
    config = plan.config
    with _timed(seconds, "graph"):
        sample = sample_rows(plan.source, MEASURED_ROWS, [config.seed, 10])
        scales = choose_scales(sample, config)
        blocks = build_blocks(
            plan.source,
            f"{plan.path}/blocks",
            BlockConfig(
                n_neighbors=plan.n_neighbors,
                metric=config.metric,
                block_rows=plan.block_rows,
                seed=config.seed,
                scales=None if scales is None else tuple(scales.tolist()),
                # a similarity of the rows themselves needs the features of all
                kept=None if needs_features(config.similarity, config.metric) else _n_seen(config),
            ),
            engine=engine,
            on_progress=on_progress,
        )
    with _timed(seconds, "search"):
        search_run(plan, blocks, engine, on_progress)


def _n_seen(config: FitConfig) -> int:
    """Return the rows that a distillation looks at."""
    return config.distil.max_steps * config.distil.batch_size


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
    if plan.mode == "memory":
        start, balance_weight = _fit_memory(plan, options, seconds)
    else:
        with _timed(seconds, "training"):
            start, balance_weight = distil_run(plan, options)
    about, exemplars = describe_run(plan.source, config), _draw_exemplars(plan, start.assigner)
    result = RunResult.of(plan.path, plan.mode, plan.source, start, balance_weight, seconds)
    save_result(result, start, about, exemplars)
    speed = start.state.step / max(seconds["training"], 1e-9)
    status.on_progress(training_progress(*planned, planned[0], 0, speed))


def _fit_memory(
    plan: RunPlan, options: dict[str, Any], seconds: dict[str, float]
) -> tuple[Start, float]:
    known = Known.of_source(plan.source, plan.config)
    with _timed(seconds, "graph"):
        rows = read_all(plan.source)
        graph = _graph_stage(plan, rows)
    with _timed(seconds, "training"):
        fit = fit_rows(rows, plan.config, graph, known=known, **options)
    save_row_labels(plan.folder / "partition", plan.key, fit.labels)
    return fit.start()._replace(score=fit.score), fit.balance_weight


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
        about: dict[str, Any] = {"n_neighbors": chosen.n_neighbors or plan.n_neighbors}
        about |= {name: getattr(plan.config, name) for name in ("metric", "similarity", "seed")}
        if chosen.resampled is not None:
            about |= {"balance_weight": chosen.resampled.balance_weight}
            folder.write_array(_RESAMPLED, np.stack(chosen.resampled.partitions))
        save_graph(folder, chosen.graph, {"key": plan.key, **about})
    record = folder.read_record(GRAPH_RECORD) or {}
    graph = load_graph(folder, verify=False)
    if chosen is not None:
        return chosen._replace(graph=graph)
    # an earlier call built it, and chose it by these partitions, which are starts of the search
    resampled = None
    if folder.exists(_RESAMPLED):
        partitions = tuple(folder.read_array(_RESAMPLED))
        resampled = Resampled(record["balance_weight"], partitions)
    scales = choose_scales(rows, plan.config)
    return ChosenGraph(graph, record.get("n_neighbors"), resampled, scales)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    seconds[stage] = round(time.monotonic() - start, 3)


def search_run(
    plan: RunPlan, blocks: Blocks, engine: Engine, on_progress: Callable[[Progress], None]
) -> None:
    """Search the partition of all rows, or finish what an earlier call began."""
    # the lesson is the last to be sealed
    key = plan_key([blocks.key, describe_run(plan.source, plan.config)])
    stages = {"join": _join, "search": _search, "lesson": _write_lesson}
    if not (plan.folder / "lesson").is_sealed(_LESSON_RECORD, key):
        for stage, task in stages.items():
            run = partial(task, plan, blocks, key)
            engine.run(stage, run, 1, total=blocks.n_samples, on_progress=on_progress)
    score, _ = read_score(plan.folder / "partition")
    is_whole = plan.config.weight_column is None
    limits = plan.config.limits(float(score.cluster_sizes.sum()), is_whole=is_whole)
    warn_of_sizes(score.cluster_sizes, limits)


def distil_run(plan: RunPlan, options: dict[str, Any]) -> tuple[Start, float]:
    """Distil the partition that was found; ``options`` are those of training."""
    score, balance_weight = read_score(plan.folder / "partition")
    scales = open_blocks(f"{plan.path}/blocks").scales
    start = distil(
        _open_lesson(plan.folder / "lesson", scales),
        plan.config,
        balance_weight,
        scales=scales,
        fractions=fraction_limits(plan.config, plan.source.n_samples),
        **options,
    )
    return start._replace(score=score), balance_weight


# -- tasks: each skips what is sealed already ------------------------------------------------------


def _join(plan: RunPlan, blocks: Blocks, key: str, _: int, advance: Callable[[int], None]) -> None:
    """Join the edges of all blocks into one graph."""
    folder = plan.folder / "graph"
    if folder.is_sealed(JOINED_RECORD, key):
        advance(blocks.n_samples)
        return
    similarity: Any = plan.config.similarity
    graph = join_blocks(blocks, similarity, advance)
    if not len(graph.indices):
        raise InvalidInputError(
            f"the graph of n_samples={blocks.n_samples} rows has no edges, so there is nothing "
            "to cut; raise n_neighbors or check the similarities."
        )
    save_joined(folder, graph, key)


def _search(
    plan: RunPlan, blocks: Blocks, key: str, _: int, advance: Callable[[int], None]
) -> None:
    """Search the partition of the rows that have an edge."""
    folder, config = plan.folder / "partition", plan.config
    if not folder.is_sealed(SCORE_RECORD, key):
        joined = open_joined(plan.folder / "graph")
        known = Known.of_source(plan.source, config, np.asarray(joined.rows))
        graph = known.weigh(CoarseGraph.of_arrays(*joined[1:]))
        partition = search_known(graph, config, known, keep_starts=False)
        labels = np.full(blocks.n_samples, -1, np.int32)
        labels[joined.rows] = partition.labels
        if config.label_column is not None:
            labels = _keep_classes(labels, plan.source, config)
        save_row_labels(folder, key, labels)
        balance_weight = partition.balance_weight
        cost = config.n_clusters, balance_weight, config.layer_sizes
        score = score_labels(graph, partition.labels, *cost, known.weights)
        save_score(folder, key, score, balance_weight)
    advance(blocks.n_samples)


def _keep_classes(labels: np.ndarray, source: Source, config: FitConfig) -> np.ndarray:
    """Give the rows without an edge whose class is known their cluster."""
    known = Known.of_source(source, config)
    if known.classes is None:
        return labels
    return np.where(labels < 0, known.classes, labels).astype(np.int32)


def _write_lesson(
    plan: RunPlan, blocks: Blocks, key: str, _: int, advance: Callable[[int], None]
) -> None:
    """Draw rows that the blocks have kept, with votes for their clusters."""
    folder, config, joined = plan.folder / "lesson", plan.config, open_joined(plan.folder / "graph")
    rng = np.random.default_rng([config.seed, 9])
    node_of = np.full(blocks.n_samples, -1, np.int32)
    node_of[joined.rows] = np.arange(len(joined.rows), dtype=np.int32)
    drawn, nodes = [], [np.empty(0, np.int64)]
    for number in range(len(blocks)):
        block = blocks.open(number, with_features=False)
        core = node_of[block.rows[: block.n_core]]
        held = core if block.kept is None else core[block.kept]
        # blocks that keep some rows keep no more than are looked at
        fraction = _n_seen(config) / blocks.n_samples if block.kept is None else 1.0
        # a row without an edge has no cluster to learn
        drawn.append(np.flatnonzero((held >= 0) & (rng.random(len(held)) < fraction)))
        nodes.append(held[drawn[-1]].astype(np.int64))

    def read_features() -> Iterator[np.ndarray]:
        for record, positions in zip(blocks.records, drawn, strict=True):
            yield (blocks.folder / record["name"]).map_array("features.npy")[positions]

    labels = RowLabels(plan.folder / "partition").read(0, blocks.n_samples)[joined.rows]
    # independent starts are not kept: they would take as much memory as the graph
    votes = Votes(CoarseGraph.of_arrays(*joined[1:]).links, labels, labels[None])
    found = votes.draw(np.concatenate(nodes), rng).astype(np.int32)
    shape = len(found), blocks.n_features
    files = {
        "features.npy": folder.write_arrays(
            "features.npy", shape, np.dtype(blocks.dtype), read_features()
        ),
        "labels.npy": folder.write_array("labels.npy", found),
    }
    folder.write_json(_LESSON_RECORD, {"key": key, "files": files})
    advance(blocks.n_samples)


def _open_lesson(folder: Folder, scales: np.ndarray | None) -> LabelledRows:
    """Open the rows; their features are mapped, not read, unless columns are divided."""
    labels = folder.read_array("labels.npy").astype(np.int64)
    features = divide_columns(folder.map_array("features.npy"), scales)
    return LabelledRows(features, torch.from_numpy(labels))
