"""Describe a path: data, a graph, blocks, labels, a model or a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prcut.errors import InvalidInputError
from prcut.graph.saved import GRAPH_RECORD
from prcut.pipeline.labels import STATE_FOLDER
from prcut.pipeline.names import read_names
from prcut.pipeline.outofcore.blocks import open_blocks
from prcut.pipeline.run_folder import read_plan
from prcut.runtime.folder import Folder, finite_number, parsing, whole_number
from prcut.runtime.memory import readable_bytes
from prcut.runtime.parquet_source import ParquetSource
from prcut.runtime.sources import open_source
from prcut.training.assigner.saved import load_model

# starts listed at most, whatever a plan says
_SHOWN_STARTS = 100
# names listed at most of a layer
_SHOWN_NAMES = 100
_UNFINISHED = "unfinished; resume it with `prcut fit … --resume`"
_WITH_SIZE = "graph", "blocks", "labels", "embeddings"
# names and values, in the order to show them
_Rows = dict[str, Any]


def describe_path(path: str | Path) -> _Rows:
    """Return names and values that describe what ``path`` holds, in the order to show them."""
    where = str(path)
    folder = Folder(where)
    info = folder.filesystem.get_file_info(folder.path)
    if info.type.name == "NotFound":
        raise InvalidInputError(f"{path} does not exist.")
    with parsing(f"a file in {where}"):
        kind, describe = ("data", _data) if info.is_file else _kind_of(folder)
        try:
            rows = {"kind": kind, **describe(where)}
        except InvalidInputError as error:
            if info.is_file or kind != "data":
                raise
            raise InvalidInputError(
                f"{path} is not a run, model, graph, blocks, labels or data folder."
            ) from error
    if kind in _WITH_SIZE:
        rows["size"] = readable_bytes(_size(folder))
    return {
        _printable(name): _printable(value) if isinstance(value, str) else value
        for name, value in rows.items()
    }


def show_rows(rows: _Rows) -> str:
    """Format what :func:`describe_path` found, one line for each name."""
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {_printable(_text(value))}" for name, value in rows.items())


def find_kind(folder: Folder) -> str:
    """Return what a folder holds: ``"run"``, ``"labels"``, ``"graph"``, …, or else ``"data"``."""
    return _kind_of(folder)[0]


def _kind_of(folder: Folder) -> tuple[str, Callable[[str], _Rows]]:
    """Return the kind of a folder, by the files it holds, and what describes it."""
    manifest = folder.read_json("manifest.json") if folder.exists("manifest.json") else ()
    plan = folder.read_json("plan.json") if folder.exists("plan.json") else {}
    kinds = [
        (plan.get("kind") == "run", "run", _run),
        (folder.exists("config.json"), "model", _model),
        (folder.exists(GRAPH_RECORD), "graph", _graph),
        ("blocks" in manifest, "blocks", _blocks),
        (_is_embedding(folder / STATE_FOLDER), "embeddings", _embeddings),
        ((folder / STATE_FOLDER).exists("plan.json"), "labels", _labels),
        (True, "data", _data),
    ]
    return next((kind, describe) for is_it, kind, describe in kinds if is_it)


def _text(value: Any) -> str:
    if type(value) is int:
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _printable(text: str) -> str:
    """Return the text of a stranger's file as one line without control characters."""
    return "".join(one if one.isprintable() else "\ufffd" for one in text)


def _run(path: str) -> _Rows:
    folder = Folder(path)
    plan = read_plan(folder)
    result = folder.read_json("result.json") if folder.exists("result.json") else None
    rows: _Rows = {"state": "finished" if result else _UNFINISHED}
    sizes = {"rows": whole_number(plan["n_samples"]), "features": whole_number(plan["n_features"])}
    rows |= {
        "data": plan["data"] or "an array",
        **sizes,
        "clusters": whole_number(plan["n_clusters"]),
        "graph": "in memory" if plan["mode"] == "memory" else "on disk, in blocks",
        **{f"stage {name}": state for name, state in _stages(folder, plan).items()},
    }
    if result:
        rows |= {
            "objective": finite_number(result["objective"]),
            "ratio cut": finite_number(result["ratio_cut"]),
            "clusters in use": f"{result['used_clusters']} of {result['n_clusters']}",
            "steps": whole_number(result["n_steps"]),
            **{f"seconds of {name}": f"{value:.1f}" for name, value in result["seconds"].items()},
        }
    return rows | _names(folder)


def _names(folder: Folder) -> _Rows:
    """Return the names of clusters and layers, the first of many."""
    names = read_names(folder)
    if names is None:
        return {}
    rows: _Rows = {}
    for size, clusters in {0: names.clusters, **names.layers}.items():
        layer = f" of {size}" if size else ""
        for number, one in enumerate(clusters[:_SHOWN_NAMES]):
            rows[f"cluster {number}{layer}"] = f"{one.name} ({one.size:,} rows)"
        if len(clusters) > _SHOWN_NAMES:
            rows[f"further clusters{layer}"] = f"{len(clusters) - _SHOWN_NAMES:,} in names.json"
    return rows


def _stages(folder: Folder, plan: dict[str, Any]) -> _Rows:
    if plan["mode"] == "memory":
        stages = {"graph": _state(folder / "graph", GRAPH_RECORD)}
    else:
        stages = {name: _state(folder / name, "manifest.json") for name in ("blocks", "partition")}
    n_starts = 1 if plan["solver"] == "search" else whole_number(plan["n_init"])
    for start in range(min(n_starts, _SHOWN_STARTS)):
        saved = folder / "checkpoint" / f"start-{start}"
        step = saved.read_json("checkpoint.json")["step"] if saved.exists("checkpoint.json") else 0
        stages[f"start {start + 1}"] = f"step {step:,} of at most {plan['max_steps']:,}"
    stages["model"] = _state(folder / "model", "config.json")
    is_done = (folder / "labels" / STATE_FOLDER).exists("manifest.json")
    return {**stages, "labels": "done" if is_done else "not done"}


def _state(folder: Folder, last_file: str) -> str:
    size = _size(folder)
    if folder.exists(last_file):
        return f"done, {readable_bytes(size)}"
    return f"unfinished, {readable_bytes(size)}" if size else "not started"


def _size(folder: Folder) -> int:
    from pyarrow import fs

    everything = fs.FileSelector(folder.path, allow_not_found=True, recursive=True)
    found = folder.filesystem.get_file_info(everything)
    return sum(int(info.size) for info in found if info.is_file)


def _model(path: str) -> _Rows:
    assigner, description = load_model(path)
    rows: _Rows = {}
    for name in ("n_features", "n_samples", "n_clusters", "hidden", "bottleneck"):
        if value := getattr(assigner, name, None):
            is_list = isinstance(value, tuple)
            rows[name.removeprefix("n_")] = ", ".join(map(str, value)) if is_list else value
    rows["parameters"] = sum(parameter.numel() for parameter in assigner.parameters())
    result = description.get("result")
    if isinstance(result, dict):
        for name in ("objective", "ratio_cut", "used_clusters", "n_samples", "n_steps"):
            if name in result:
                rows[name.replace("_", " ")] = result[name]
    return rows


def _graph(path: str) -> _Rows:
    record = Folder(path).read_record(GRAPH_RECORD) or {}
    names = ("n_samples", "n_edges", "n_neighbors", "metric", "similarity")
    return {name.removeprefix("n_"): record[name] for name in names if name in record}


def _blocks(path: str) -> _Rows:
    blocks = open_blocks(path)
    largest = max((record["n_core"] + record["n_halo"] for record in blocks.records), default=0)
    return {
        "rows": blocks.n_samples,
        "features": blocks.n_features,
        "blocks": f"{len(blocks):,}, the largest of {largest:,} rows with its halo",
        "metric": blocks.metric,
    }


def _labels(path: str) -> _Rows:
    state = Folder(path) / STATE_FOLDER
    plan = state.read_json("plan.json")
    rows: _Rows = {"state": "unfinished; resume it with the same command"}
    if state.exists("manifest.json"):
        n_samples = state.read_json("manifest.json")["n_samples"]
        rows = {"state": "finished", "rows": whole_number(n_samples)}
    return {**rows, "files": len(plan["files"]), "id": plan["id_column"] or "row"}


def _is_embedding(state: Folder) -> bool:
    plan = state.read_json("plan.json") if state.exists("plan.json") else {}
    return bool(plan.get("kind") == "embeddings")


def _embeddings(path: str) -> _Rows:
    rows, state = _labels(path), Folder(path) / STATE_FOLDER
    if state.exists("manifest.json"):
        rows["features"] = whole_number(state.read_json("manifest.json")["n_features"])
    return {**rows, "model": state.read_json("plan.json")["model"]}


def _data(path: str) -> _Rows:
    source = open_source(path)
    rows: _Rows = {"rows": source.n_samples, "features": source.n_features}
    rows["dtype"] = source.dtype.name
    if isinstance(source, ParquetSource):
        rows |= {"column": source.column, "files": len(source.files)}
    return rows
