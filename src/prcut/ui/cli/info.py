"""Describe a path: data, labels, a model or a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prcut.curate.names import read_names
from prcut.errors import InvalidInputError
from prcut.runs.folder import read_plan
from prcut.runs.labels import STATE_FOLDER
from prcut.runtime.folder import Folder, finite_number, parsing, whole_number
from prcut.runtime.parquet import ParquetSource
from prcut.runtime.progress import read_status
from prcut.runtime.sources import open_source
from prcut.training.assigner.saved import load_model

# names of clusters that are listed; all of them are in names.json
_SHOWN_NAMES = 100


def describe_path(path: str | Path) -> dict[str, Any]:
    """Return names and values that describe what ``path`` holds, in the order to print them."""
    folder = Folder(path)
    info = folder.filesystem.get_file_info(folder.path)
    if info.type.name == "NotFound":
        raise InvalidInputError(f"{path} does not exist.")
    kind = "data" if info.is_file else find_kind(folder)
    describe = {"run": _describe_run, "model": _describe_model, "labels": _describe_labels}
    with parsing(f"a file in {path}"):
        try:
            rows = {"kind": kind, **describe.get(kind, _describe_data)(str(path))}
        except InvalidInputError as error:
            if info.is_file or kind != "data":
                raise
            raise InvalidInputError(
                f"{path} is not a run, model, labels or data folder."
            ) from error
    return rows


def find_kind(folder: Folder) -> str:
    """Return what a folder holds: ``"run"``, ``"model"``, ``"labels"``, or else ``"data"``."""
    with parsing(f"{folder.path}/plan.json"):
        if folder.exists("plan.json") and folder.read_json("plan.json").get("kind") == "run":
            return "run"
    if folder.exists("config.json"):
        return "model"
    return "labels" if (folder / STATE_FOLDER).exists("plan.json") else "data"


def _describe_run(path: str) -> dict[str, Any]:
    folder = Folder(path)
    plan = read_plan(folder)
    result = folder.read_json("result.json") if folder.exists("result.json") else None
    rows: dict[str, Any] = {
        "state": "finished" if result else "unfinished; resume it with `prcut fit … --resume`",
        "data": plan["data"] or "an array",
        "rows": whole_number(plan["n_samples"]),
        "features": whole_number(plan["n_features"]),
        "clusters": whole_number(plan["n_clusters"]),
        "graph": "in memory" if plan["mode"] == "memory" else "on disk, in blocks",
        **{
            f"stage_{one.progress.stage.replace(' ', '_')}": one.state
            for one in read_status(folder)
        },
    }
    if result:
        rows |= {
            "objective": finite_number(result["objective"]),
            "ratio_cut": finite_number(result["ratio_cut"]),
            "used_clusters": whole_number(result["used_clusters"]),
            "steps": whole_number(result["n_steps"]),
            **{f"seconds_of_{name}": round(value, 1) for name, value in result["seconds"].items()},
        }
    names = read_names(folder)
    layers: dict[int, Any] = {} if names is None else {0: names.clusters, **names.layers}
    for size, clusters in layers.items():
        for number, one in enumerate(clusters[:_SHOWN_NAMES]):
            layer = f"_of_{size}" if size else ""
            rows[f"cluster_{number}{layer}"] = f"{one.name} ({one.size:,} rows)"
    return rows


def _describe_model(path: str) -> dict[str, Any]:
    assigner, description = load_model(path)
    rows: dict[str, Any] = {
        "features": assigner.n_features,
        "clusters": assigner.n_clusters,
        "hidden": ", ".join(map(str, assigner.hidden)) or "none: linear",
        "parameters": sum(parameter.numel() for parameter in assigner.parameters()),
    }
    result = description.get("result")
    if isinstance(result, dict):
        shown = ("objective", "ratio_cut", "used_clusters", "n_samples", "n_steps")
        rows |= {name: result[name] for name in shown if name in result}
    return rows


def _describe_labels(path: str) -> dict[str, Any]:
    state = Folder(path) / STATE_FOLDER
    plan = state.read_json("plan.json")
    rows: dict[str, Any] = {"state": "unfinished; resume it with the same command"}
    if state.exists("manifest.json"):
        n_samples = state.read_json("manifest.json")["n_samples"]
        rows = {"state": "finished", "rows": whole_number(n_samples)}
    return {**rows, "files": len(plan["files"]), "id": plan["id_column"] or "row"}


def _describe_data(path: str) -> dict[str, Any]:
    source = open_source(path)
    rows: dict[str, Any] = {
        "rows": source.n_samples,
        "features": source.n_features,
        "dtype": source.dtype.name,
    }
    if isinstance(source, ParquetSource):
        rows |= {"column": source.column, "files": len(source.files)}
    return rows
