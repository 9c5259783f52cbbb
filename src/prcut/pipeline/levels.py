"""Clusters inside clusters: every cluster of a level is itself clustered on the next one.

::

    plan.json            what is fitted to what
    root/                a run on a sample of the rows, which finds the clusters of the first level
    exchange/            rows on their way to their cluster; removed at the end
    cluster-00000/ …     a run, or levels again, on the rows of one cluster
    model/               the tree of assigners
    result.json          written last

A level is fitted to a sample: a few hundred rows per cluster show where it is. So k = k₁·k₂
clusters cost as much as k₁ and k₂ do, and the clusters of a level are independent tasks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from prcut.errors import InvalidInputError
from prcut.graph.saved import load_graph
from prcut.numerics.cuts import cluster_cuts
from prcut.numerics.validation import check_positive_int
from prcut.pipeline.config import FitConfig
from prcut.pipeline.known import KNOWN_SETTINGS, refuse_known
from prcut.pipeline.outofcore.sizes import SAMPLE_PER_CLUSTER
from prcut.pipeline.run import fit_run
from prcut.runtime.engine import Engine, LocalEngine
from prcut.runtime.folder import Folder, absolute_path, plan_key
from prcut.runtime.progress import Progress, StatusWriter
from prcut.runtime.shuffle import bucket_counts, gather, is_scattered, scatter
from prcut.runtime.sources import Source, cut_row_ranges, open_source, rows_per_read, sample_rows
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels
from prcut.training.assigner.saved import load_model
from prcut.training.assigner.saved_tree import load_levels, save_levels
from prcut.training.assigner.tree import LevelAssigner

_LOG = logging.getLogger(__name__)
_FORMAT = 1
# steps in which the assigner of a level learns its partition
_DISTILLING_STEPS = 300


class LevelsResult(NamedTuple):
    """Result of :func:`fit_levels`; ``n_clusters`` counts the leaves.

    ``cut_share`` is the fraction of the weight of the first level's graph that lies between its
    clusters, which no later level sees.
    """

    path: str
    assigner: LevelAssigner
    n_samples: int
    n_clusters: int
    cut_share: float
    seconds: float


def fit_levels(
    data: Any,
    path: str | Path,
    levels: Sequence[int],
    config: FitConfig | None = None,
    *,
    column: str | None = None,
    id_column: str | None = None,
    sample_per_cluster: int = SAMPLE_PER_CLUSTER,
    device: str = "auto",
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> LevelsResult:
    """Fit k₁ clusters, k₂ inside each of them, and so on, or finish what an earlier call began.

    Parameters
    ----------
    data : array, path or URI of a .npy file, a Parquet file or a folder of them, or Source
        See :func:`prcut.runtime.sources.open_source`, also for ``column`` and ``id_column``. It is
        streamed; a task holds the rows of one cluster of the first level.
    path : str or path
        A folder of its own, local or a URI.
    levels : sequence of int
        Number of clusters of every level, such as ``(100, 100)``.
    config : FitConfig, optional
        Options of every level; its ``n_clusters`` is ignored.
    sample_per_cluster : int
        Rows that a level is fitted to, for each of its clusters.
    device : str
        ``"auto"`` is CUDA where there is one.
    engine : Engine, optional
        Where tasks run; by default in this process.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress`.

    Examples
    --------
    >>> import tempfile
    >>> rng = np.random.default_rng(0)
    >>> centers = np.array([[0, 0], [0, 4], [30, 0], [30, 4]])[np.arange(400) % 4]
    >>> rows = (centers + rng.normal(0, 1, (400, 2))).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = fit_levels(rows, folder, (2, 2))
    >>> labels = assign_labels(found.assigner, rows)
    >>> found.n_clusters, bool(np.mean(labels == labels[np.arange(400) % 4]) > 0.9)
    (4, True)
    """
    began = time.monotonic()
    source = open_source(data, column=column, id_column=id_column)
    levels = tuple(check_positive_int("levels", n_clusters) for n_clusters in levels)
    check_positive_int("sample_per_cluster", sample_per_cluster)
    _check_levels(levels, source)
    config = config or FitConfig.of("default", levels[0])
    refuse_known(config, "--levels", (*KNOWN_SETTINGS, "outliers"))
    cuts = cut_row_ranges(source, rows_per_read(source))
    plan = _Plan(str(path).rstrip("/"), source, levels, config, sample_per_cluster, cuts, device)
    folder = Folder(path)
    folder.start(plan.to_json())
    if not folder.exists("result.json"):
        report = StatusWriter(folder).also(on_progress)
        figures = _fit_tree(plan, folder, engine or LocalEngine(), report)
        where = absolute_path(data) if isinstance(data, str | Path) else None
        seconds = round(time.monotonic() - began, 3)
        folder.write_json("result.json", {**figures, "data": where, "seconds": seconds})
    (folder / "exchange").delete()
    result = folder.read_json("result.json")
    assigner = load_levels(f"{plan.path}/model").assigner
    return LevelsResult(plan.path, assigner, *map(result.get, LevelsResult._fields[2:]))


class _Plan(NamedTuple):
    """What every task needs to know; the key changes with whatever changes the result."""

    path: str
    source: Source
    levels: tuple[int, ...]
    config: FitConfig
    sample_per_cluster: int
    cuts: np.ndarray
    device: str

    @property
    def n_ranges(self) -> int:
        return len(self.cuts) - 1

    @property
    def key(self) -> str:
        return plan_key(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "levels",
            "format": _FORMAT,
            "fingerprint": self.source.fingerprint,
            "n_samples": self.source.n_samples,
            "n_features": self.source.n_features,
            "column": getattr(self.source, "column", None),
            "id_column": getattr(self.source, "id_column", None),
            "levels": list(self.levels),
            "sample_per_cluster": self.sample_per_cluster,
            "config": {k: v for k, v in asdict(self.config).items() if k != "outliers"},
            "cuts": plan_key(self.cuts.tolist()),
        }

    def level_config(self, n_clusters: int) -> FitConfig:
        """Return the options of one fit: few starts and steps by default, as there are many."""
        config = self.config
        distil = replace(config.distil, max_steps=min(config.distil.max_steps, _DISTILLING_STEPS))
        return replace(config, n_clusters=n_clusters, n_init=config.n_init or 1, distil=distil)

    def is_split(self, n_rows: int) -> bool:
        """Return whether a cluster has enough rows for the next level."""
        return n_rows >= 2 * self.levels[1]

    def child_path(self, number: int) -> str:
        return f"{self.path}/cluster-{number:05d}"


def _check_levels(levels: tuple[int, ...], source: Source) -> None:
    if len(levels) < 2:
        raise InvalidInputError(f"{levels=} must name two or more; for one use fit_run.")
    if source.n_samples < levels[0]:
        raise InvalidInputError(
            f"n_samples={source.n_samples} should be >= n_clusters={levels[0]} of the first level."
        )


def _fit_tree(
    plan: _Plan, folder: Folder, engine: Engine, on_progress: Callable[[Progress], None]
) -> dict[str, Any]:
    """Fit and save the tree of assigners; return what is to be written in the result."""
    options: dict[str, Any] = {"total": plan.source.n_samples, "on_progress": on_progress}
    exchange = folder / "exchange"
    root, cut_share = _fit_root(plan)
    engine.run("split", partial(_split_rows, plan, exchange, root), plan.n_ranges, **options)
    counts = bucket_counts(exchange, plan.n_ranges).tolist()
    engine.run("clusters", partial(_fit_cluster, plan, exchange), plan.levels[0], **options)
    children = [_load_child(plan, number, n_rows) for number, n_rows in enumerate(counts)]
    tree = LevelAssigner(root, children)
    save_levels(f"{plan.path}/model", tree, {"run": plan.to_json()})
    return {
        "format": _FORMAT,
        "cut_share": cut_share,
        "n_clusters": tree.n_clusters,
        "n_samples": plan.source.n_samples,
        "rows_of_first_level": counts,
    }


def _fit_root(plan: _Plan) -> tuple[Assigner, float]:
    """Fit the assigner of the first level; return it and the fraction of the weight it cuts."""
    n_rows = plan.sample_per_cluster * plan.levels[0]
    sample = sample_rows(plan.source, n_rows, [plan.config.train.seed, 5])
    config = plan.level_config(plan.levels[0])
    run = fit_run(sample, f"{plan.path}/root", config, device=plan.device)
    graph = load_graph(f"{plan.path}/root/graph")
    labels = torch.from_numpy(assign_labels(run.assigner, sample))
    cuts = cluster_cuts(graph.weight, labels, plan.levels[0])
    fraction = float(cuts.sum() / graph.weight.values().double().sum())
    _LOG.info("the first level cuts %.4f of the weight", fraction)
    return run.assigner, fraction


def _split_rows(
    plan: _Plan, exchange: Folder, root: Assigner, number: int, advance: Callable[[int], None]
) -> None:
    """Send every row of a row range to its cluster."""
    start, stop = plan.cuts[number : number + 2].tolist()
    if not is_scattered(exchange, number, plan.key):
        rows = plan.source.read(start, stop)
        labels, order = assign_labels(root, rows), np.arange(stop - start)
        scatter(exchange, number, {"features": rows}, order, labels, plan.levels[0], plan.key)
    advance(stop - start)


def _fit_cluster(
    plan: _Plan, exchange: Folder, number: int, advance: Callable[[int], None]
) -> None:
    """Fit the next level to the rows of one cluster."""
    rows = gather(exchange, plan.n_ranges, ["features"], number)["features"]
    path, levels = plan.child_path(number), plan.levels[1:]
    if plan.is_split(len(rows)) and len(levels) > 1:
        per_cluster = plan.sample_per_cluster
        options: dict[str, Any] = {"sample_per_cluster": per_cluster, "device": plan.device}
        fit_levels(rows, path, levels, plan.config, **options)
    elif plan.is_split(len(rows)):
        n_rows = min(plan.sample_per_cluster * levels[0], len(rows))
        rng = np.random.default_rng([plan.config.train.seed, 6, number])
        chosen = np.sort(rng.choice(len(rows), n_rows, replace=False))
        fit_run(rows[chosen], path, plan.level_config(levels[0]), device=plan.device)
    advance(len(rows))


def _load_child(plan: _Plan, number: int, n_rows: int) -> Assigner | LevelAssigner | None:
    """Load what was fitted to a cluster of ``n_rows``; None for a cluster too small to be split."""
    if not plan.is_split(n_rows):
        return None
    path = f"{plan.child_path(number)}/model"
    if len(plan.levels) > 2:
        return load_levels(path).assigner
    assigner = load_model(path).assigner
    assert isinstance(assigner, Assigner)  # noqa: S101
    return assigner
