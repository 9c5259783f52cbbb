"""What a path holds: data, a graph, blocks, pairs, labels, a model or a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prcut.blocks import open_blocks
from prcut.errors import InvalidInputError
from prcut.graph_folder import GRAPH_RECORD
from prcut.label_files import STATE_FOLDER
from prcut.level_folder import LEVELS_FILE, load_levels
from prcut.memory import readable_bytes
from prcut.model_folder import load_model
from prcut.pair_shards import open_pair_shards
from prcut.run_folder import read_plan
from prcut.sources import ParquetSource, open_source
from prcut.status import read_status
from prcut.storage import Folder, parsing, whole_number

__all__ = ["describe_path"]

# starts listed at most, whatever a plan says
_SHOWN_STARTS = 100
# names and values, in the order to show them
_Rows = list[tuple[str, str]]


def describe_path(path: str | Path) -> _Rows:
    """Names and values that say what ``path`` holds.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", np.zeros((10, 3), np.float32))
    ...     rows = describe_path(f"{folder}/rows.npy")
    >>> rows[0], rows[1]
    (('kind', 'data'), ('rows', '10'))
    """
    where = str(path)
    folder = Folder(where)
    info = folder.filesystem.get_file_info(folder.path)
    if info.type.name == "NotFound":
        raise InvalidInputError(f"{path} does not exist.")
    if info.is_file:
        return _data(where)
    with parsing(f"a file in {where}"):
        for describe, is_it in _kinds():
            if is_it(folder):
                return [(_printable(name), _printable(value)) for name, value in describe(where)]
    try:
        return _data(where)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{path} is not a run, model, graph, blocks, pairs, labels or data folder."
        ) from error


def _printable(text: str) -> str:
    r"""Text of a stranger's file as one line, which tells the terminal nothing.

    >>> _printable("a\x1b[2J\nb")
    'a�[2J�b'
    """
    return "".join(one if one.isprintable() else "\ufffd" for one in text)


def _kinds() -> list[tuple[Callable[[str], _Rows], Callable[[Folder], bool]]]:
    def manifest_of(name: str) -> Callable[[Folder], bool]:
        return lambda folder: (
            folder.exists("manifest.json") and name in folder.read_json("manifest.json")
        )

    def plan_of(kind: str) -> Callable[[Folder], bool]:
        return lambda folder: (
            folder.exists("plan.json") and folder.read_json("plan.json").get("kind") == kind
        )

    return [
        (_run, plan_of("run")),
        (_levels, plan_of("levels")),
        (_model_of_levels, lambda folder: folder.exists(LEVELS_FILE)),
        (_model, lambda folder: folder.exists("config.json")),
        (_graph, lambda folder: folder.exists(GRAPH_RECORD)),
        (_blocks, manifest_of("blocks")),
        (_pairs, manifest_of("shards")),
        (_labels, lambda folder: (folder / STATE_FOLDER).exists("plan.json")),
    ]


def _run(path: str) -> _Rows:
    folder = Folder(path)
    plan = read_plan(folder)
    result = folder.read_json("result.json") if folder.exists("result.json") else None
    rows = [
        ("kind", "run"),
        ("state", "finished" if result else "begun; finish it by `prcut fit … --resume`"),
        ("data", str(plan["data"] or "an array")),
        ("rows", f"{plan['n_samples']:,}"),
        ("features", f"{plan['n_features']:,}"),
        ("clusters", str(plan["n_clusters"])),
        ("graph", "in memory" if plan["mode"] == "memory" else "on disk, in blocks"),
    ]
    rows += [(f"stage {name}", state) for name, state in _stages(folder, plan)]
    if result:
        rows += [
            ("objective", f"{result['objective']:.6g}"),
            ("ratio cut", f"{result['ratio_cut']:.6g}"),
            ("clusters in use", f"{result['used_clusters']} of {result['n_clusters']}"),
            ("steps", f"{result['n_steps']:,}"),
            *((f"seconds of {name}", f"{value:.1f}") for name, value in result["seconds"].items()),
        ]
    return rows


def _levels(path: str) -> _Rows:
    folder = Folder(path)
    plan = read_plan(folder)
    rows = [
        ("kind", "levels"),
        ("state", "begun; finish it by `prcut fit … --resume`"),
        ("rows", f"{plan['n_samples']:,}"),
        ("features", f"{plan['n_features']:,}"),
        ("levels", " × ".join(map(str, plan["levels"]))),
        *((f"stage {one.stage}", one.state) for one in read_status(folder)),
    ]
    if folder.exists("result.json"):
        result = folder.read_json("result.json")
        rows[1] = ("state", "finished")
        rows += [
            ("clusters", f"{result['n_clusters']:,}"),
            ("cut between the first", f"{result['cut_share']:.4f} of the weight"),
        ]
    return rows


def _model_of_levels(path: str) -> _Rows:
    tree = load_levels(path).assigner
    return [
        ("kind", "model of levels"),
        ("features", f"{tree.n_features:,}"),
        ("clusters", f"{tree.n_clusters:,}"),
    ]


def _stages(folder: Folder, plan: dict[str, Any]) -> _Rows:
    ends = {"graph": GRAPH_RECORD, "blocks": "manifest.json", "pairs": "manifest.json"}
    names = ("graph",) if plan["mode"] == "memory" else ("blocks", "pairs")
    stages = [(name, _state(folder / name, ends[name])) for name in names]
    n_starts = 1 if plan["solver"] == "search" else whole_number(plan["n_init"])
    for start in range(min(n_starts, _SHOWN_STARTS)):
        saved = folder / "checkpoint" / f"start-{start}"
        step = saved.read_json("checkpoint.json")["step"] if saved.exists("checkpoint.json") else 0
        stages.append((f"start {start + 1}", f"step {step:,} of at most {plan['max_steps']:,}"))
    stages.append(("model", _state(folder / "model", "config.json")))
    labels = folder / "labels" / STATE_FOLDER
    state = "done" if labels.exists("manifest.json") else "not done"
    return [*stages, ("labels", state)]


def _state(folder: Folder, last: str) -> str:
    size = readable_bytes(_size(folder))
    if folder.exists(last):
        return f"done, {size}"
    return f"begun, {size}" if _size(folder) else "not begun"


def _size(folder: Folder) -> int:
    from pyarrow import fs

    everything = fs.FileSelector(folder.path, allow_not_found=True, recursive=True)
    found = folder.filesystem.get_file_info(everything)
    return sum(int(info.size) for info in found if info.is_file)


def _model(path: str) -> _Rows:
    assigner, description = load_model(path)
    rows = [("kind", "model")]
    for name in ("n_features", "n_samples", "n_clusters", "hidden", "bottleneck"):
        if value := getattr(assigner, name, None):
            text = ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value:,}"
            rows.append((name.removeprefix("n_"), text))
    n_parameters = sum(parameter.numel() for parameter in assigner.parameters())
    rows.append(("parameters", f"{n_parameters:,}"))
    result = description.get("result")
    if isinstance(result, dict):
        rows += [
            (name.replace("_", " "), str(result[name]))
            for name in ("objective", "ratio_cut", "used_clusters", "n_samples", "n_steps")
            if name in result
        ]
    return rows


def _graph(path: str) -> _Rows:
    folder = Folder(path)
    record = folder.read_record(GRAPH_RECORD) or {}
    names = ("n_samples", "n_edges", "n_neighbors", "metric", "similarity")
    found = [(name.removeprefix("n_"), record[name]) for name in names if name in record]
    rows = [(name, f"{value:,}" if type(value) is int else str(value)) for name, value in found]
    return [("kind", "graph"), *rows, ("size", readable_bytes(_size(folder)))]


def _blocks(path: str) -> _Rows:
    blocks = open_blocks(path)
    sizes = (record["n_core"] + record["n_halo"] for record in blocks.records)
    largest = max(sizes, default=0)
    return [
        ("kind", "blocks"),
        ("rows", f"{blocks.n_samples:,}"),
        ("features", f"{blocks.n_features:,}"),
        ("blocks", f"{len(blocks):,}, the largest of {largest:,} rows with its halo"),
        ("metric", blocks.metric),
        ("size", readable_bytes(_size(blocks.folder))),
    ]


def _pairs(path: str) -> _Rows:
    shards = open_pair_shards(path)
    return [
        ("kind", "pairs"),
        ("pairs", f"{shards.n_pairs:,}"),
        ("shards", f"{len(shards.sizes):,}"),
        ("size", readable_bytes(_size(shards.folder))),
    ]


def _labels(path: str) -> _Rows:
    folder = Folder(path)
    state = folder / STATE_FOLDER
    plan = state.read_json("plan.json")
    is_done = state.exists("manifest.json")
    rows = [
        ("kind", "labels"),
        ("state", "finished" if is_done else "begun; finish it by the same command"),
    ]
    if is_done:
        rows.append(("rows", f"{state.read_json('manifest.json')['n_samples']:,}"))
    return [
        *rows,
        ("files", f"{len(plan['files']):,}"),
        ("id", str(plan["id_column"] or "row")),
        ("size", readable_bytes(_size(folder))),
    ]


def _data(path: str) -> _Rows:
    source = open_source(path)
    rows = [
        ("kind", "data"),
        ("rows", f"{source.n_samples:,}"),
        ("features", f"{source.n_features:,}"),
        ("dtype", source.dtype.name),
    ]
    if isinstance(source, ParquetSource):
        rows += [("column", source.column), ("files", f"{len(source.files):,}")]
    return rows
