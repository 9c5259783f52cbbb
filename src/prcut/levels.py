"""Clusters inside clusters: the same program inside every cluster of the level above.

::

    plan.json            what is fitted to what
    root/                a run on a sample of the rows, which finds the clusters of the first level
    exchange/            rows on their way to their cluster; removed at the end
    cluster-00000/ …     a run, or levels again, on the rows of one cluster
    model/               the tree of assigners
    result.json          written last

A level looks at a sample: a few hundred rows a cluster tell where it is. So k = k₁·k₂ clusters cost
what k₁ and k₂ do, and the clusters of a level are independent tasks.
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

from prcut.assigner import Assigner
from prcut.assignment import assign_labels
from prcut.cuts import cluster_cuts
from prcut.engine import Engine, Here
from prcut.errors import InvalidInputError
from prcut.exchange import bucket_counts, gather, is_scattered, scatter
from prcut.fitting import FitConfig
from prcut.graph_folder import load_graph
from prcut.level_assigner import LevelAssigner
from prcut.level_folder import load_levels, save_levels
from prcut.memory import SAMPLE_PER_CLUSTER
from prcut.model_folder import load_model
from prcut.progress import Progress
from prcut.run_folder import absolute_path
from prcut.runs import fit_run
from prcut.sources import Source, cut_pieces, open_source, piece_rows, sample_rows
from prcut.status import StatusWriter
from prcut.storage import Folder, plan_key
from prcut.validation import check_positive_int

__all__ = ["LevelsResult", "fit_levels"]

_LOG = logging.getLogger(__name__)
_FORMAT = 1
# steps in which a level learns its clusters
_TEACHING_STEPS = 300


class LevelsResult(NamedTuple):
    """What :func:`fit_levels` ended with.

    Attributes
    ----------
    path : str
    assigner : LevelAssigner
    n_samples, n_clusters : int
        Rows, and leaves.
    cut_share : float
        Share of the weight of the first level's graph that lies between its clusters, which no
        later level sees.
    seconds : float
        Of the call that finished it.
    """

    path: str
    assigner: LevelAssigner
    n_samples: int
    n_clusters: int
    cut_share: float
    seconds: float


class _Plan(NamedTuple):
    path: str
    source: Source
    levels: tuple[int, ...]
    config: FitConfig
    sample_per_cluster: int
    cuts: np.ndarray
    device: str

    @property
    def n_pieces(self) -> int:
        return len(self.cuts) - 1

    def piece(self, piece: int) -> tuple[int, int]:
        return int(self.cuts[piece]), int(self.cuts[piece + 1])

    def describe(self) -> dict[str, Any]:
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
            "config": asdict(self.config),
            "cuts": plan_key(self.cuts.tolist()),
        }

    @property
    def key(self) -> str:
        return plan_key(self.describe())


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
    data : array, or path or URI of a .npy file, a Parquet file, or a folder of Parquet files
        See :func:`prcut.sources.open_source`, also for ``column`` and ``id_column``. It is
        streamed; a task holds the rows of one cluster of the first level.
    path : str or path
        A folder of its own, local or a URI.
    levels : sequence of int
        Clusters of every level, such as ``(100, 100)``.
    config : FitConfig, optional
        Of every level; its ``n_clusters`` is not looked at.
    sample_per_cluster : int
        Rows that a level looks at, for each of its clusters.
    device : str
        ``"auto"`` is CUDA where there is one.
    engine : Engine, optional
        Where rows are split and clusters fitted; by default here.
    on_progress : callable, optional
        Called with a :class:`prcut.progress.Progress`.

    Examples
    --------
    >>> import tempfile
    >>> rng = np.random.default_rng(0)
    >>> places = np.array([[0, 0], [0, 4], [30, 0], [30, 4]])[np.arange(400) % 4]
    >>> rows = (places + rng.normal(0, 1, (400, 2))).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = fit_levels(rows, folder, (2, 2))
    >>> labels = assign_labels(found.assigner, rows)
    >>> found.n_clusters, bool(np.mean(labels == labels[np.arange(400) % 4]) > 0.9)
    (4, True)
    """
    began = time.monotonic()
    source = open_source(data, column=column, id_column=id_column)
    levels = tuple(check_positive_int("levels", n_clusters) for n_clusters in levels)
    if len(levels) < 2:
        raise InvalidInputError(f"{levels=} must name two or more; for one use fit_run.")
    check_positive_int("sample_per_cluster", sample_per_cluster)
    if source.n_samples < levels[0]:
        raise InvalidInputError(
            f"n_samples={source.n_samples} should be >= n_clusters={levels[0]} of the first level."
        )
    config = config or FitConfig.of("default", levels[0])
    cuts = cut_pieces(source, piece_rows(source))
    plan = _Plan(str(path).rstrip("/"), source, levels, config, sample_per_cluster, cuts, device)
    folder = Folder(path)
    folder.start(plan.describe())
    if folder.exists("result.json"):
        return _finished(plan, folder)
    engine = engine or Here()
    options: dict[str, Any] = {
        "total": source.n_samples,
        "on_progress": StatusWriter(folder).also(on_progress),
    }
    root, cut_share = _root(plan)
    exchange = folder / "exchange"
    engine.run("split", partial(_split_piece, plan, exchange, root), plan.n_pieces, **options)
    counts = bucket_counts(exchange, plan.n_pieces)
    engine.run("clusters", partial(_fit_cluster, plan, exchange), levels[0], **options)
    children = [_load_child(plan, number, int(size)) for number, size in enumerate(counts)]
    tree = LevelAssigner(root, children)
    save_levels(f"{plan.path}/model", tree, {"run": plan.describe()})
    seconds = round(time.monotonic() - began, 3)
    result = {"format": _FORMAT, "cut_share": cut_share, "n_clusters": tree.n_clusters}
    sizes = {"n_samples": source.n_samples, "rows_of_first_level": counts.tolist()}
    where = None if isinstance(data, np.ndarray) else absolute_path(data)
    folder.write_json("result.json", {**result, **sizes, "data": where, "seconds": seconds})
    exchange.delete()
    return LevelsResult(plan.path, tree, source.n_samples, tree.n_clusters, cut_share, seconds)


def _finished(plan: _Plan, folder: Folder) -> LevelsResult:
    content = folder.read_json("result.json")
    tree = load_levels(f"{plan.path}/model").assigner
    figures = plan.source.n_samples, tree.n_clusters, content["cut_share"], content["seconds"]
    return LevelsResult(plan.path, tree, *figures)


def _config(plan: _Plan, n_clusters: int) -> FitConfig:
    """That of one fit: there are many, so each is made with half the care of one that is alone."""
    config = plan.config
    teach = replace(config.teach, max_steps=min(config.teach.max_steps, _TEACHING_STEPS))
    return replace(config, n_clusters=n_clusters, n_init=config.n_init or 1, teach=teach)


# -- the first level -------------------------------------------------------------------------


def _root(plan: _Plan) -> tuple[Assigner, float]:
    """The assigner of the first level, and the share of the weight that it cuts."""
    n_rows = plan.sample_per_cluster * plan.levels[0]
    sample = sample_rows(plan.source, n_rows, [plan.config.train.seed, 5])
    run = fit_run(sample, f"{plan.path}/root", _config(plan, plan.levels[0]), device=plan.device)
    graph = load_graph(f"{plan.path}/root/graph")
    labels = torch.from_numpy(assign_labels(run.assigner, sample))
    cuts = cluster_cuts(graph.weight, labels, plan.levels[0])
    share = float(cuts.sum() / graph.weight.values().double().sum())
    _LOG.info("the first level cuts %.4f of the weight", share)
    return run.assigner, share


def _split_piece(
    plan: _Plan, exchange: Folder, root: Assigner, piece: int, advance: Callable[[int], None]
) -> None:
    """Send every row of a piece to its cluster."""
    start, stop = plan.piece(piece)
    if not is_scattered(exchange, piece, plan.key):
        rows = plan.source.read(start, stop)
        labels = assign_labels(root, rows)
        places = np.arange(stop - start)
        scatter(exchange, piece, {"features": rows}, places, labels, plan.levels[0], plan.key)
    advance(stop - start)


# -- inside its clusters ---------------------------------------------------------------------


def _fit_cluster(
    plan: _Plan, exchange: Folder, number: int, advance: Callable[[int], None]
) -> None:
    """Fit the next level to the rows of one cluster."""
    rows = gather(exchange, plan.n_pieces, ["features"], number)["features"]
    n_clusters, *deeper = plan.levels[1:]
    if _is_split(plan, len(rows)):
        path = _child_path(plan, number)
        if deeper:
            fit_levels(
                rows,
                path,
                plan.levels[1:],
                plan.config,
                sample_per_cluster=plan.sample_per_cluster,
                device=plan.device,
            )
        else:
            n_rows = plan.sample_per_cluster * n_clusters
            rng = np.random.default_rng([plan.config.train.seed, 6, number])
            chosen = np.sort(rng.choice(len(rows), min(n_rows, len(rows)), replace=False))
            fit_run(rows[chosen], path, _config(plan, n_clusters), device=plan.device)
    advance(len(rows))


def _load_child(plan: _Plan, number: int, size: int) -> Assigner | LevelAssigner | None:
    """What was fitted to a cluster of so many rows; one with too few is not split."""
    if not _is_split(plan, size):
        return None
    path = f"{_child_path(plan, number)}/model"
    if len(plan.levels) > 2:
        return load_levels(path).assigner
    assigner = load_model(path).assigner
    assert isinstance(assigner, Assigner)  # noqa: S101
    return assigner


def _is_split(plan: _Plan, n_rows: int) -> bool:
    """Whether a cluster has enough rows for the next level."""
    return n_rows >= 2 * plan.levels[1]


def _child_path(plan: _Plan, number: int) -> str:
    return f"{plan.path}/cluster-{number:05d}"
