"""A fit as a folder: every stage writes its files and is skipped where they are valid.

::

    plan.json         what is fitted to what, and whether in memory or on disk
    blocks/           on disk: blocks of rows, with their neighbours
    graph/            the graph, mapped while it is searched
    partition/        the cluster of every row
    lesson/           on disk: rows to distil the partition from
    checkpoint/       every restart as it is trained
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

from prcut.errors import InvalidInputError
from prcut.fit.assign import OnRecord, Start, distil
from prcut.fit.choose import ChosenGraph, choose_graph, choose_scales
from prcut.fit.clusters import score_labels
from prcut.fit.config import FitConfig
from prcut.fit.fit import fit_rows
from prcut.fit.known import Known, fraction_limits, search_known, warn_of_sizes
from prcut.fit.outliers import MAX_EXEMPLARS, Exemplars
from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.graph.blocks.read import (
    JOINED_RECORD,
    Blocks,
    join_blocks,
    needs_features,
    open_joined,
    save_joined,
)
from prcut.graph.rows import MEASURED_ROWS, divide_columns
from prcut.graph.similarity_graph import GRAPH_RECORD, load_graph, save_graph
from prcut.runs.folder import (
    RunPlan,
    RunResult,
    check_fit,
    describe_run,
    plan_run,
    read_result,
    save_result,
)
from prcut.runs.labels import (
    SCORE_RECORD,
    RowLabels,
    find_clusters,
    read_score,
    save_row_labels,
    save_score,
)
from prcut.runtime.device import choose_device
from prcut.runtime.engine import Engine, LocalEngine, sealed_task
from prcut.runtime.folder import absolute_path, plan_key
from prcut.runtime.progress import OnProgress, Progress, StatusWriter, training_progress
from prcut.runtime.sources import draw_rows, open_source, read_all, sample_rows
from prcut.search.balance import Resampled
from prcut.search.fragments import CoarseGraph
from prcut.search.votes import Votes
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
        Called with the :class:`~prcut.runtime.Progress` of a stage, and with the number of a
        restart and its newest training record.

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
    status, seconds = StatusWriter(where), dict[str, float]()
    n_starts = 1 if config.solver == "search" else config.n_starts
    planned, begin = (n_starts, config.in_use.max_steps), time.monotonic()

    def note(start: int, record: Record) -> None:
        if on_record is not None:
            on_record(start, record)
        trained = time.monotonic() - begin - sum(seconds.values())
        speed = record.step / max(trained, 1e-9)
        status.on_progress(training_progress(*planned, start, record.step, speed))

    training = {
        "device": choose_device(device),
        "checkpoint": plan.folder / "checkpoint",
        "on_record": note,
    }
    if plan.mode == "memory":
        start, balance_weight = _fit_memory(plan, seconds, training)
    else:
        report = status.also(on_progress)
        start, balance_weight = _fit_disk(plan, engine or LocalEngine(), report, seconds, training)
    exemplars = None
    if config.outliers is not None:
        numbers, rows = draw_rows(source, MAX_EXEMPLARS, [config.seed, 3])
        labels = find_clusters(plan.folder / "partition", numbers, rows, start.assigner)
        exemplars = Exemplars.draw(rows, labels, start.assigner.column_scales, config)
    figures = start, balance_weight, seconds
    result = save_result(where, plan.mode, source, config, *figures, exemplars=exemplars)
    speed = start.state.step / max(seconds["training"], 1e-9)
    status.on_progress(training_progress(*planned, n_starts, 0, speed))
    plan.folder.clear_unfinished()  # of nodes that were killed
    return result


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    seconds[stage] = round(time.monotonic() - start, 3)


# -- in memory -------------------------------------------------------------------------------------


def _fit_memory(
    plan: RunPlan, seconds: dict[str, float], training: dict[str, Any]
) -> tuple[Start, float]:
    known = Known.of_source(plan.source, plan.config)
    with _timed(seconds, "graph"):
        rows = read_all(plan.source)
        graph = _graph_stage(plan, rows)
    with _timed(seconds, "training"):
        fit = fit_rows(rows, plan.config, graph, known=known, **training)
    save_row_labels(plan.folder / "partition", plan.key, fit.labels)
    return fit.start()._replace(score=fit.score), fit.balance_weight


def _graph_stage(plan: RunPlan, rows: np.ndarray) -> ChosenGraph:
    """Return the graph, mapped from the folder, where it is saved."""
    folder, scales = plan.folder / "graph", None
    is_made = folder.is_sealed(GRAPH_RECORD, plan.key)
    if is_made:
        scales = choose_scales(rows, plan.config)
    else:
        chosen = choose_graph(rows, plan.config)
        scales = chosen.scales
        about: dict[str, Any] = {"n_neighbors": chosen.n_neighbors or plan.n_neighbors}
        about |= {name: getattr(plan.config, name) for name in ("metric", "similarity", "seed")}
        if chosen.resampled is not None:
            about |= {"balance_weight": chosen.resampled.balance_weight}
            folder.write_array(_RESAMPLED, np.stack(chosen.resampled.partitions))
        save_graph(folder, chosen.graph, {"key": plan.key, **about})
    record, resampled = folder.read_record(GRAPH_RECORD) or {}, None
    if folder.exists(_RESAMPLED):  # the graph was chosen by these; the search begins with them
        resampled = Resampled(record["balance_weight"], tuple(folder.read_array(_RESAMPLED)))
    graph = load_graph(folder, verify=False)
    return ChosenGraph(graph, record.get("n_neighbors"), resampled, scales)


# -- on disk ---------------------------------------------------------------------------------------


def _fit_disk(
    plan: RunPlan,
    engine: Engine,
    on_progress: Callable[[Progress], None],
    seconds: dict[str, float],
    training: dict[str, Any],
) -> tuple[Start, float]:
    """Build the blocks, search their graph, and distil the partition."""
    config, source = plan.config, plan.source
    # errors in classes and weights are found before the blocks are built
    Known.of_source(source, config).check(config, source.n_samples)
    with _timed(seconds, "graph"):
        scales = choose_scales(sample_rows(source, MEASURED_ROWS, [config.seed, 10]), config)
        block_config = BlockConfig(
            n_neighbors=plan.n_neighbors,
            metric=config.metric,
            block_rows=plan.block_rows,
            seed=config.seed,
            scales=None if scales is None else tuple(scales.tolist()),
            # a similarity of the rows themselves needs the features of all
            kept=None if needs_features(config.similarity, config.metric) else _n_seen(config),
        )
        how: dict[str, Any] = {"engine": engine, "on_progress": on_progress}
        blocks = build_blocks(source, f"{plan.path}/blocks", block_config, **how)
    with _timed(seconds, "search"):
        search_run(plan, blocks, engine, on_progress)
    with _timed(seconds, "training"):
        score, balance_weight = read_score(plan.folder / "partition")
        lesson = plan.folder / "lesson"
        # the features are mapped, not read, unless columns are divided
        features = divide_columns(lesson.map_array("features.npy"), blocks.scales)
        labels = torch.from_numpy(lesson.read_array("labels.npy").astype(np.int64))
        start = distil(
            LabelledRows(features, labels),
            config,
            balance_weight,
            scales=blocks.scales,
            fractions=fraction_limits(config, source.n_samples),
            **training,
        )
    return start._replace(score=score), balance_weight


def search_run(plan: RunPlan, blocks: Blocks, engine: Engine, on_progress: OnProgress) -> None:
    """Search the partition of all rows and draw a lesson, or finish what an earlier call began."""
    key = plan_key([blocks.key, describe_run(plan.source, plan.config)])
    for stage, folder, record, make in (
        ("join", "graph", JOINED_RECORD, _join),
        ("search", "partition", SCORE_RECORD, _search),
        ("lesson", "lesson", _LESSON_RECORD, _write_lesson),
    ):
        done = partial((plan.folder / folder).is_sealed, record, key)
        task = sealed_task(done, partial(make, plan, blocks, key), blocks.n_samples)
        engine.run(stage, task, 1, total=blocks.n_samples, on_progress=on_progress)
    score, _ = read_score(plan.folder / "partition")
    is_whole = plan.config.weight_column is None
    limits = plan.config.limits(float(score.cluster_sizes.sum()), is_whole=is_whole)
    warn_of_sizes(score.cluster_sizes, limits)


def _n_seen(config: FitConfig) -> int:
    """Return the rows that a distillation looks at."""
    return config.distil.max_steps * config.distil.batch_size


def _join(plan: RunPlan, blocks: Blocks, key: str, _: int) -> None:
    """Join the edges of all blocks into one graph."""
    similarity: Any = plan.config.similarity
    graph = join_blocks(blocks, similarity)
    if not len(graph.indices):
        raise InvalidInputError(
            f"the graph of n_samples={blocks.n_samples} rows has no edges, so there is nothing "
            "to cut; raise n_neighbors or check the similarities."
        )
    save_joined(plan.folder / "graph", graph, key)


def _search(plan: RunPlan, blocks: Blocks, key: str, _: int) -> None:
    """Search the partition of the rows that have an edge; the others keep their class, if any."""
    folder, config = plan.folder / "partition", plan.config
    joined = open_joined(plan.folder / "graph")
    known = Known.of_source(plan.source, config, np.asarray(joined.rows))
    graph = known.weigh(CoarseGraph.of_arrays(*joined[1:]))
    partition = search_known(graph, config, known, keep_starts=False)
    labels = np.full(blocks.n_samples, -1, np.int32)
    if config.label_column is not None:
        classes = Known.of_source(plan.source, config).classes
        labels = labels if classes is None else classes.astype(np.int32)
    labels[joined.rows] = partition.labels
    save_row_labels(folder, key, labels)
    balance_weight = partition.balance_weight
    cost = config.n_clusters, balance_weight, config.layer_sizes
    score = score_labels(graph, partition.labels, *cost, known.weights)
    save_score(folder, key, score, balance_weight)


def _write_lesson(plan: RunPlan, blocks: Blocks, key: str, _: int) -> None:
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

    labels = RowLabels(plan.folder / "partition").read()[joined.rows]
    # independent starts are not kept: they would take as much memory as the graph
    votes = Votes(CoarseGraph.of_arrays(*joined[1:]).links, labels, labels[None])
    found = votes.draw(np.concatenate(nodes), rng).astype(np.int32)
    shape = len(found), blocks.n_features
    features = folder.write_arrays("features.npy", shape, np.dtype(blocks.dtype), read_features())
    files = {"features.npy": features, "labels.npy": folder.write_array("labels.npy", found)}
    folder.write_json(_LESSON_RECORD, {"key": key, "files": files})
