"""Continue a finished run with new data, in a run folder of its own; the earlier one stays.

::

    plan.json         what is continued, with what
    graph/            the graph of the new rows
    partition/        the cluster of every new row that was compared, −1 for others
    renamed.parquet   earlier rows that changed their id
    model/            the assigner, with the ids of its clusters
    result.json       written last: also births, merges and deaths
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prcut.errors import InvalidInputError
from prcut.fit.config import FitConfig
from prcut.fit.known import refuse_known
from prcut.fit.outliers import Exemplars
from prcut.fit.saved_fit import SavedFit, parse_fit
from prcut.fit.update import stack_rows, update_rows
from prcut.graph.similarity_graph import SimilarityGraph, save_graph
from prcut.runs.folder import (
    RunResult,
    check_finished,
    describe_run,
    planned_neighbors,
    read_plan,
    read_result,
    save_result,
)
from prcut.runs.labels import find_clusters, save_row_labels
from prcut.runtime.device import choose_device
from prcut.runtime.folder import Folder, absolute_path, parsing
from prcut.runtime.sources import Source, draw_rows, open_source
from prcut.training.assigner.saved import load_model

# rows of either run that are compared; more new rows are given the clusters of the assigner
_MOST_OLD, _MOST_NEW = 20_000, 200_000
_RENAMED = "renamed.parquet"


class FinishedRun(NamedTuple):
    """A run that others build upon: its plan, its model, and the rows that it was fitted to."""

    folder: Folder
    plan: dict[str, Any]
    fit: SavedFit
    source: Source

    @classmethod
    def open(cls, path: str | Path, data: Any = None) -> FinishedRun:
        """Open a finished run; ``data`` says where its rows are now, if they have moved."""
        folder = Folder(path)
        plan = read_plan(folder)
        check_finished(folder)
        data = data if data is not None else plan.get("data")
        if data is None:
            raise InvalidInputError(
                f"{path} does not record where its data are: pass data (--data PATH)."
            )
        with parsing(f"{path}/plan.json"):
            source = open_source(data, column=plan["column"], id_column=plan["id_column"])
            fingerprint = plan["fingerprint"]
        if source.fingerprint != fingerprint:
            raise InvalidInputError(
                f"{data if isinstance(data, str | Path) else 'data'} is not what {path} was fitted "
                "to; pass the original rows as data (--data PATH)."
            )
        fit = parse_fit(load_model(f"{str(path).rstrip('/')}/model"))
        return cls(folder, plan, fit, source)

    @property
    def config(self) -> FitConfig:
        """The settings of the run, for a search."""
        with parsing(f"{self.folder.path}/plan.json"):
            names = ["n_neighbors", "metric", "similarity", "hidden", "bottleneck", "standardize"]
            names += ["min_size", "max_size", "weight_column", "label_column", "outliers"]
            given = {name: self.plan[name] for name in names if self.plan.get(name) is not None}
            if "hidden" in given:
                given["hidden"] = tuple(given["hidden"])
            n_clusters = self.fit.assigner.n_clusters
            return FitConfig.of("default", n_clusters, seed=int(self.plan["seed"]), **given)

    @property
    def balance_weight(self) -> float:
        """The balance weight that was given or chosen."""
        return float(self.fit.fitted["balance_weight_"])

    @property
    def n_neighbors(self) -> int:
        """Neighbours that the graph was built with."""
        record = (self.folder / "graph").read_record("graph.json") or {}
        planned = planned_neighbors(self.config, self.source.n_samples)
        return int(record.get("n_neighbors") or planned)

    def labels(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the clusters of some rows, in order: the partition's, or else the assigner's."""
        return find_clusters(self.folder / "partition", numbers, rows, self.fit.assigner)


def update_run(
    run: str | Path,
    data: Any,
    path: str | Path,
    *,
    column: str | None = None,
    id_column: str | None = None,
    old_data: Any = None,
    stickiness: float = 0.1,
    device: str = "auto",
) -> RunResult:
    """Continue ``run`` with the rows of ``data`` in the folder ``path``, or finish doing so.

    Up to 20,000 rows of the run and 200,000 new ones are compared: see
    :func:`prcut.fit.update.update_rows`. A cluster with no rows in either sample is removed.
    """
    before = FinishedRun.open(run, old_data)
    refuse_known(before.config, "update, which gives rows equal weight and leaves sizes free")
    plan, where = before.plan, absolute_path(path)
    names = {"column": column or plan["column"], "id_column": id_column or plan["id_column"]}
    source = open_source(data, **names)
    if source.n_features != before.source.n_features:
        raise InvalidInputError(
            f"{data} has n_features={source.n_features} columns, {run} was fitted to "
            f"{before.source.n_features}."
        )
    decided = {"data": source.path, "mode": "memory", "block_rows": 0}
    continued = {"continues": before.folder.path, "stickiness": stickiness, **decided}
    Folder(where).start(describe_run(source, before.config) | continued)
    if (earlier := read_result(where)) is not None:
        return earlier
    begin, config, folder = time.monotonic(), before.config, Folder(where)
    old_numbers, old_rows = draw_rows(before.source, _MOST_OLD, [config.seed, 12])
    new_numbers, new_rows = draw_rows(source, _MOST_NEW, [config.seed, 13])
    old_labels = before.labels(old_numbers, old_rows)
    found = update_rows(
        old_rows,
        old_labels,
        new_rows,
        before.fit.assigner,
        config,
        before.fit.names,
        n_neighbors=before.n_neighbors,
        balance_weight=before.balance_weight,
        stickiness=stickiness,
        device=choose_device(device),
    )
    fit, n_old = found.fit, len(old_rows)
    between = fit.graph.to_scipy()[n_old:][:, n_old:]
    about = {"key": source.fingerprint, "n_neighbors": fit.n_neighbors}
    save_graph(folder / "graph", SimilarityGraph.from_scipy(between), about)
    labels = np.full(source.n_samples, -1, np.int32)
    labels[new_numbers] = fit.labels[n_old:]
    save_row_labels(folder / "partition", source.fingerprint, labels)
    ids = {"before": before.fit.names.ids[old_labels], "after": found.names.ids[fit.labels[:n_old]]}
    moved = ids["before"] != ids["after"]
    columns = {"row": old_numbers, **ids}
    folder.write_table(_RENAMED, {name: values[moved] for name, values in columns.items()})
    start = fit.start()._replace(score=fit.score)
    seconds = {"update": round(time.monotonic() - begin, 3)}
    changes = [change._asdict() for change in found.changes]
    update = {**found.names.describe(), "changes": changes, "n_renamed": found.n_renamed}
    exemplars = None
    if config.outliers is not None:
        rows = stack_rows(old_rows, new_rows)
        exemplars = Exemplars.draw(rows, fit.labels, fit.scales, config)
    figures = start, fit.balance_weight, seconds
    how: dict[str, Any] = {"exemplars": exemplars, "update": update}
    return save_result(where, "memory", source, config, *figures, **how)
