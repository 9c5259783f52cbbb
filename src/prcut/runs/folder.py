"""What a run folder holds: its plan, written first, its result, written last, and its history."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

import prcut
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.fit.assign import Start
from prcut.fit.choose import choose_n_neighbors
from prcut.fit.config import FitConfig, check_n_samples
from prcut.fit.known import columns_of
from prcut.fit.outliers import Exemplars
from prcut.fit.saved_fit import describe_tree, load_estimator, save_fit
from prcut.graph.blocks.build import BlockConfig, bytes_in_memory, choose_block_rows
from prcut.graph.build import Similarity
from prcut.graph.neighbors import Metric
from prcut.runs.labels import STATE_FOLDER, RowLabels
from prcut.runtime.device import available_memory, readable_bytes
from prcut.runtime.folder import Folder, check_format, finite_number, parsing, plan_key
from prcut.runtime.sources import Source
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.saved import load_model
from prcut.training.state import TrainState

_LOG = logging.getLogger(__name__)
RUN_FORMAT = 1
# how the number of clusters was found, where it was not given
COUNT = "count.json"
_HISTORY = "history.parquet"
Mode = Literal["memory", "disk"]
# fraction of the free memory that a run may use by default
_USABLE_MEMORY = 0.6
# neighbours on disk, where no other number is tried: few follow the shape of clusters closely
_SEARCHED_NEIGHBORS = 15
_DECIDED_ONCE = ("data", "mode", "block_rows")


# -- the plan --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunPlan:
    """The data and the settings of a run, which every stage needs."""

    path: str
    source: Source
    config: FitConfig
    device: str
    mode: Mode
    block_rows: int

    @property
    def folder(self) -> Folder:
        """The folder of the run."""
        return Folder(self.path)

    @property
    def n_neighbors(self) -> int:
        """Neighbours of a row, as far as they are known before the fit."""
        return planned_neighbors(self.config, self.source.n_samples)

    @property
    def key(self) -> str:
        """A digest that changes with whatever changes the graph."""
        config = self.config
        settings = [self.n_neighbors, config.metric, config.similarity, config.seed]
        return plan_key([self.source.fingerprint, *settings, config.n_clusters])


def planned_neighbors(config: FitConfig, n_samples: int) -> int:
    """Return the neighbours of a row, as far as they are known before the fit."""
    chosen = choose_n_neighbors(n_samples, config.n_clusters)
    if config.solver == "search":
        chosen = min(chosen, _SEARCHED_NEIGHBORS)
    return config.n_neighbors or chosen


def plan_run(
    path: str,
    source: Source,
    config: FitConfig,
    memory: int | None,
    *,
    on_disk: bool = False,
    device: str = "auto",
) -> RunPlan:
    """Write ``plan.json``, or check that the plan of an earlier call is the same.

    ``on_disk`` says that the engine cannot work in memory.
    """
    folder = Folder(path)
    if folder.exists("plan.json"):
        earlier = read_plan(folder)
        decided = {name: earlier[name] for name in _DECIDED_ONCE if name in earlier}
    else:
        usable = usable_memory(memory, is_shared=on_disk)
        n_neighbors = planned_neighbors(config, source.n_samples)
        mode, block_rows = choose_mode(source, n_neighbors, usable, on_disk=on_disk)
        decided = {"data": source.path, "mode": mode, "block_rows": block_rows}
    if decided.get("mode") == "disk" and config.solver == "train":
        remedy = "leave out the engine" if on_disk else "raise memory"
        raise InvalidInputError(
            f"solver='train' needs the graph in memory, and this run has it on disk; {remedy}, "
            "train batch by batch with PRCut.partial_fit, or use solver='search'."
        )
    folder.start(describe_run(source, config) | decided)
    return RunPlan(path, source, config, device, decided["mode"], decided["block_rows"])


def describe_run(source: Source, config: FitConfig) -> dict[str, Any]:
    """Describe a run, one name for each setting, so that an error can say which one differs."""
    is_searched = config.solver == "search"
    # threads decide nothing, and a search neither projects nor refines
    left_out = {"train", "distil", "n_jobs"} | (
        {"n_components", "refine"} if is_searched else set()
    )
    own = {name: value for name, value in asdict(config).items() if name not in left_out}
    return {
        "kind": "run",
        "format": RUN_FORMAT,
        "fingerprint": source.fingerprint,
        "column": getattr(source, "column", None),
        "id_column": getattr(source, "id_column", None),
        "n_samples": source.n_samples,
        "n_features": source.n_features,
        **asdict(config.in_use),
        **own,
        "balance_weight": config.balance_weight if is_searched else config.training_balance,
        "n_init": config.n_starts,
        "hidden": config.layers,
    }


def check_fit(source: Source, config: FitConfig) -> None:
    """Refuse what cannot be fitted, before a folder is made."""
    check_n_samples(source.n_samples, config)
    if source.n_features == 0:
        raise InvalidInputError("data has n_features=0 columns, expected at least one.")
    # a function has no name that a folder could hold
    for name, known in (("metric", get_args(Metric)), ("similarity", get_args(Similarity))):
        if (given := getattr(config, name)) not in known:
            raise InvalidInputError(f"{name}={given!r} must be one of {', '.join(known)}.")
    for column in (config.label_column, config.weight_column):
        if column is not None:  # none of its rows: says so where there is no such column
            columns_of(source, column).read_values(column, np.empty(0, np.int64))
    if config.weight_column is None:
        config.limits(source.n_samples)  # refuses what cannot hold


def usable_memory(memory: int | None, *, is_shared: bool = False) -> int:
    """Return the bytes that were given, or a fraction of the free ones.

    ``is_shared`` says that every CPU of the node runs a task of its own.
    """
    if memory is not None:
        return memory
    usable = int(_USABLE_MEMORY * available_memory())
    return usable // (os.cpu_count() or 1) if is_shared else usable


def choose_mode(
    source: Source, n_neighbors: int, usable: int, *, on_disk: bool = False
) -> tuple[Mode, int]:
    """Choose memory where rows and graph fit, else blocks on disk; return the rows of a block."""
    sizes = source.n_samples, source.n_features, source.dtype.itemsize, n_neighbors
    needed = bytes_in_memory(*sizes)
    mode: Mode = "disk" if on_disk or needed > usable else "memory"
    _LOG.info(
        "%s rows of %s features with %d neighbours need about %s, %s may be used: the graph is "
        "built %s",
        *(f"{source.n_samples:,}", f"{source.n_features:,}", n_neighbors),
        *map(readable_bytes, (needed, usable)),
        "in memory" if mode == "memory" else "on disk, block by block",
    )
    return mode, choose_block_rows(usable, *sizes, halo=BlockConfig.halo)


def read_plan(folder: Folder) -> dict[str, Any]:
    """Return the plan of a run that was begun; refuse a folder without one, or a later format."""
    if not folder.exists("plan.json"):
        raise InvalidInputError(f"{folder.path} is not a run folder (no plan.json).")
    plan = folder.read_json("plan.json")
    if not isinstance(plan, dict) or plan.get("kind") != "run":
        raise InvalidInputError(f"{folder.path} is not a run folder; its plan.json is another's.")
    if not isinstance(plan.get("format"), int):
        raise CorruptFileError(f"{folder.path}/plan.json lacks 'format'.")
    check_format(folder.path, plan["format"], RUN_FORMAT)
    return plan


def check_finished(folder: Folder) -> None:
    """Refuse a run that has no result yet."""
    if not folder.exists("result.json"):
        raise InvalidInputError(
            f"{folder.path} is a run that is not finished; resume it with `prcut fit … --resume`."
        )


# -- the result ------------------------------------------------------------------------------------


class RunResult(NamedTuple):
    """What a run ended with; ``result.json`` holds all but path and assigner.

    ``objective`` and ``ratio_cut`` are those of the hard assignment, ``n_steps`` those of the start
    that was kept, ``seconds`` those of each stage, in the call that finished it.
    """

    path: str
    assigner: Assigner
    mode: Mode
    n_samples: int
    n_features: int
    n_clusters: int
    used_clusters: int
    objective: float
    ratio_cut: float
    balance_weight: float
    n_steps: int
    seconds: dict[str, float]


def save_result(
    path: str,
    mode: Mode,
    source: Source,
    config: FitConfig,
    start: Start,
    balance_weight: float,
    seconds: dict[str, float],
    *,
    exemplars: Exemplars | None = None,
    update: Mapping[str, Any] | None = None,
) -> RunResult:
    """Write the model of a fit that has a score, its history and, last, its result.

    ``exemplars`` are the rows that others are compared with to find outliers; ``update`` are the
    ids of the clusters and how they changed, of a run that continues another.
    """
    folder, score, update = Folder(path), start.score, update or {}
    assert score is not None  # noqa: S101
    result = RunResult(
        path,
        start.assigner,
        mode,
        n_samples=source.n_samples,
        n_features=source.n_features,
        n_clusters=start.assigner.n_clusters,
        used_clusters=int((score.cluster_sizes > 0).sum()),
        objective=score.objective,
        ratio_cut=score.ratio_cut,
        balance_weight=balance_weight,
        n_steps=start.state.step,
        seconds=seconds,
    )
    figures = {name: getattr(result, name) for name in RunResult._fields[2:]}
    about, tree = describe_run(source, config), score.merge_tree
    description = {"run": about, "result": figures, **describe_tree(tree), **update}
    count = folder.read_json(COUNT) if folder.exists(COUNT) else {}
    # a call that was killed may have left another number
    if count.get("n_clusters") == result.n_clusters and tree is not None:
        description["layers"] = count["layers"]
    save_fit(f"{path}/model", start.assigner, description, exemplars)
    _save_history(folder, start.state)
    extra = {"format": RUN_FORMAT, "history": _HISTORY, "prcut": prcut.__version__}
    folder.write_json("result.json", {**figures, **extra, **update, "solver": about["solver"]})
    return result


def read_result(path: str) -> RunResult | None:
    """Return the result of an earlier call; None where there is none or its model is not whole."""
    folder = Folder(path)
    if not folder.exists("result.json"):
        return None
    try:
        content = folder.read_json("result.json")
        assigner, _ = load_model(f"{path}/model")
        fields = {name: content[name] for name in RunResult._fields[2:]}
    except (CorruptFileError, InvalidInputError, KeyError, TypeError) as error:
        _LOG.warning("the result in %s is made again: %s", path, error)
        return None
    return RunResult(path, assigner, **fields)


def _save_history(folder: Folder, state: TrainState) -> None:
    import pyarrow as pa

    columns = {
        name: pa.array(values)
        if values.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        for name, values in state.history.items()
    }
    folder.write_table(_HISTORY, columns)


def is_run(path: str | Path) -> bool:
    """Whether a folder is that of a run."""
    return Folder(path).exists("plan.json")


def open_run(path: str | Path, kind: Any) -> Any:
    """Return an estimator of a kind with the model of a finished run, and the labels of its rows.

    ``labels_`` are those of the partition it found, if it holds them; rows that belong nowhere are
    −1 where labels were written.
    """
    folder = Folder(path)
    n_samples = read_plan(folder)["n_samples"]
    check_finished(folder)
    model = load_estimator(f"{str(path).rstrip('/')}/model", kind)
    with parsing(f"{path}/result.json"):
        result = folder.read_json("result.json")
        for name in ("objective", "ratio_cut"):
            setattr(model, f"{name}_", finite_number(result[name]))
    if (folder / "labels" / STATE_FOLDER).exists("manifest.json"):
        table = _read_labels(folder / "labels")
        model.labels_ = table["label"].astype(np.int64)
        model.clusters_ = table.get("cluster", table["label"]).astype(np.int64)
        model.probabilities_ = table["confidence"]
    elif (folder / "partition").exists("manifest.json"):
        model.labels_ = RowLabels(folder / "partition").read().astype(np.int64)
        model.clusters_ = model.labels_.copy()
    if hasattr(model, "labels_") and model.labels_.shape != (n_samples,):
        raise CorruptFileError(f"{path} has labels_ of shape {model.labels_.shape}.")
    return model


def _read_labels(folder: Folder) -> dict[str, np.ndarray]:
    """Read the labels that a run has written of its own rows, and how sure the assigner is."""
    import pyarrow as pa
    from pyarrow import dataset

    try:
        found = dataset.dataset(folder.path, filesystem=folder.filesystem, format="parquet")
        names = {"label", "confidence"} | ({"cluster"} & {*found.schema.names})
        table = found.to_table(sorted(names))
        return {name: table[name].to_numpy() for name in table.schema.names}
    except (pa.ArrowException, OSError, LookupError, ValueError) as error:
        raise CorruptFileError(f"{folder.path} cannot be read: {error}") from error
