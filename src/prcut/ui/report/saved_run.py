"""Inspect a finished run: its folder, the data it was fitted to, its graph or blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prcut.errors import InvalidInputError
from prcut.graph.saved import GRAPH_RECORD, load_graph
from prcut.numerics.cuts import cluster_links
from prcut.pipeline.labels import STATE_FOLDER
from prcut.pipeline.outofcore.blocks import open_blocks
from prcut.pipeline.outofcore.row_labels import RowLabels
from prcut.pipeline.run_folder import COUNT, check_finished, read_history, read_plan
from prcut.pipeline.saved_fit import coarse_labels
from prcut.runtime.folder import Folder, finite_number, parsing, whole_number
from prcut.runtime.progress import Progress
from prcut.runtime.sources import Source, open_source
from prcut.training.assigner.saved import load_model
from prcut.ui.report.inspect_rows import MOST_LINKED, inspect_assigner
from prcut.ui.report.inspection import Inspection

# rows inspected where the graph is on disk: more would not change what is shown
_MOST_ROWS = 10_000_000


def inspect_run(
    path: str | Path,
    *,
    data: Any = None,
    most_rows: int = _MOST_ROWS,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> Inspection:
    """Inspect a finished run.

    Parameters
    ----------
    path : str or path
        Run folder of :func:`prcut.pipeline.run.fit_run`.
    data : array, or path or URI, optional
        What was clustered, where the run does not record it or it has moved.
    most_rows : int
        Number of rows to inspect where the graph is on disk, spread over all.
    seed : int
        Seed of the map.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress`.
    """
    folder = Folder(path)
    plan = read_plan(folder)
    check_finished(folder)
    with parsing(f"{path}/result.json"):
        result = dict(folder.read_json("result.json"))
        _check_figures(result)
    with parsing(f"{path}/plan.json"):
        _check_settings(plan)
    source = open_data(path, data, plan)
    loaded = load_model(f"{str(path).rstrip('/')}/model")
    assigner = loaded.assigner
    # the result holds the settings that were chosen during the run
    about = {**plan, **result, "mode": plan["mode"], "hidden": assigner.hidden}
    # the result scores the partition, the report the labels that the model gives
    about = {name: about[name] for name in about if name not in ("objective", "ratio_cut")}
    if (state := folder / "labels" / STATE_FOLDER).exists("manifest.json"):
        with parsing(f"{state.path}/manifest.json"):
            n_outliers = state.read_json("manifest.json").get("n_outliers")
            about["n_outliers"] = None if n_outliers is None else whole_number(n_outliers)
    graph = None
    if about["mode"] == "memory":
        graph = load_graph(folder / "graph")
        with parsing(f"{path}/graph/{GRAPH_RECORD}"):
            record = (folder / "graph").read_json(GRAPH_RECORD)
            about["n_neighbors"] = whole_number(record["n_neighbors"])
    inspection = inspect_assigner(
        assigner,
        source,
        name=str(path).rstrip("/").rsplit("/", 1)[-1],
        about=about,
        graph=graph,
        history=read_history(folder),
        most_rows=None if graph is not None else most_rows,
        seed=seed,
        on_progress=on_progress,
    )
    inspection = replace(
        inspection,
        agreement=_read_agreement(folder),
        layers=tuple(coarse_labels(loaded).values()),
    )
    if about["mode"] != "disk" or inspection.n_clusters > MOST_LINKED:
        return inspection
    links = _links_of_blocks(str(path), assigner.n_clusters, plan["similarity"], most_rows)
    return replace(inspection, links=links)


def open_data(path: str | Path, data: Any, plan: dict[str, Any]) -> Source:
    """Open the rows that the run was fitted to; refuse others."""
    data = data if data is not None else plan.get("data")
    if data is None:
        raise InvalidInputError(
            f"{path} does not record where its data are: pass data (--data PATH)."
        )
    source = open_source(data, column=plan["column"], id_column=plan["id_column"])
    if source.fingerprint != plan["fingerprint"]:
        raise InvalidInputError(
            f"{data if isinstance(data, str | Path) else 'data'} is not what {path} was fitted to; "
            "pass the original rows as data (--data PATH)."
        )
    return source


def _read_agreement(folder: Folder) -> np.ndarray | None:
    """Read how well searches agreed, where the number of clusters was looked for."""
    if not folder.exists(COUNT):
        return None
    with parsing(f"{folder.path}/{COUNT}"):
        count = folder.read_json(COUNT)
        curve: np.ndarray = np.array([count["tried"], count["agreement"]], np.float64).T
        if curve.ndim != 2 or not np.isfinite(curve).all() or (curve[:, 0] < 1).any():
            raise ValueError("no curve")
    return curve


def _check_figures(result: dict[str, Any]) -> None:
    """Check that the figures of a result, which a stranger may have written, are numbers."""
    seconds = result["seconds"]
    for value in seconds.values() if isinstance(seconds, dict) else [seconds]:
        finite_number(value)
    for name in ("objective", "ratio_cut", "balance_weight", "n_steps"):
        if name in result:
            finite_number(result[name])


def _check_settings(plan: dict[str, Any]) -> None:
    """Check the types of what is read or shown of a plan."""
    for name in ("column", "id_column", "data"):
        if not isinstance(plan.get(name), str | None):
            raise TypeError(f"{name} is not a name")
    for name in ("seed", "balance_weight", "max_steps"):
        if plan.get(name) is not None:
            finite_number(plan[name])
    for size in plan.get("hidden") or ():
        whole_number(size)


def _links_of_blocks(path: str, n_clusters: int, similarity: Any, most_rows: int) -> np.ndarray:
    """Sum the links between clusters over all blocks, or over some spread evenly."""
    blocks, found = open_blocks(f"{path}/blocks"), RowLabels(Folder(path) / "partition")
    links = torch.zeros(n_clusters, n_clusters, dtype=torch.float64)
    n_blocks = max(1, len(blocks) * min(most_rows, blocks.n_samples) // blocks.n_samples)
    for number in np.unique(np.linspace(0, len(blocks) - 1, n_blocks).astype(int)).tolist():
        block = blocks[number]
        order, labels = np.argsort(block.rows), np.empty(len(block.rows), np.int64)
        labels[order] = found.take(block.rows[order]).clip(0)  # -1 is a row without an edge
        weight = block.graph(similarity).weight
        links += cluster_links(weight, torch.from_numpy(labels), n_clusters)
    return np.asarray(links)
