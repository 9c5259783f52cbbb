"""What a run folder holds for those that come later: its plan, its result, its history."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import prcut
from prcut.assigner import Assigner
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.model_folder import load_model, save_model
from prcut.storage import Folder, check_format
from prcut.train_state import Record, TrainState

__all__ = [
    "RUN_FORMAT",
    "Mode",
    "RunResult",
    "absolute_path",
    "check_finished",
    "read_history",
    "read_plan",
    "read_result",
    "save_result",
]

_LOG = logging.getLogger(__name__)
RUN_FORMAT = 1
_HISTORY = "history.parquet"
Mode = Literal["memory", "disk"]


class RunResult(NamedTuple):
    """What a run ended with; ``result.json`` holds all but path and assigner.

    Attributes
    ----------
    path : str
    assigner : Assigner
    mode : {"memory", "disk"}
        Where the graph was.
    n_samples, n_features, n_clusters : int
    used_clusters : int
        That have rows.
    objective, ratio_cut : float
        Of the hard assignment.
    balance_weight : float
        That was given, or chosen.
    n_steps : int
        Of the start that was kept.
    seconds : dict
        Per stage, of the call that finished it.
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


def absolute_path(path: str | Path) -> str:
    """A path that means the same in every folder; a URI stays as it is."""
    return str(path).rstrip("/") if "://" in str(path) else str(Path(path).absolute())


def read_plan(folder: Folder) -> dict[str, Any]:
    """The plan of a run that was begun; refused where there is none, or one of a later format."""
    if not folder.exists("plan.json"):
        raise InvalidInputError(f"{folder.path} is not a run folder (no plan.json).")
    plan = folder.read_json("plan.json")
    if not isinstance(plan, dict) or plan.get("kind") not in ("run", "levels"):
        raise InvalidInputError(f"{folder.path} is not a run folder; its plan.json is another's.")
    if not isinstance(plan.get("format"), int):
        raise CorruptFileError(f"{folder.path}/plan.json lacks 'format'.")
    check_format(folder.path, plan["format"], RUN_FORMAT)
    return plan


def check_finished(folder: Folder) -> None:
    """Refuse a run that has no result yet."""
    if not folder.exists("result.json"):
        raise InvalidInputError(
            f"{folder.path} is a run that is not finished; go on with it by `prcut fit … --resume`."
        )


def save_result(
    result: RunResult, state: TrainState, about: Mapping[str, Any], solver: str
) -> None:
    """Model, history and, last, the result; ``solver`` is the one that was kept."""
    folder = Folder(result.path)
    figures = result._asdict()
    del figures["assigner"], figures["path"]
    save_model(f"{result.path}/model", result.assigner, {"run": dict(about), "result": figures})
    _save_history(folder, state)
    extra = {"format": RUN_FORMAT, "history": _HISTORY, "prcut": prcut.__version__}
    folder.write_json("result.json", {**figures, **extra, "solver": solver})


def read_result(path: str) -> RunResult | None:
    """What an earlier call ended with, or None where it did not end or its model is not whole."""
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
    return RunResult(path, assigner, **fields)  # type: ignore[arg-type]


def read_history(folder: Folder) -> dict[str, np.ndarray]:
    """The records of training, without the sizes, which may be a large table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not folder.exists(_HISTORY):
        return {}
    content = pa.BufferReader(folder.read_bytes(_HISTORY))
    names = [name for name in Record._fields if name != "cluster_sizes"]
    try:
        table = pq.ParquetFile(content).read(names)
        history = {name: table.column(name).to_numpy() for name in names}
        if not all(np.isfinite(values).all() for values in history.values()):
            raise ValueError("it holds NaN or infinity")
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        reason = str(error).strip()[:200]
        raise CorruptFileError(f"{folder.path}/{_HISTORY} cannot be read: {reason}.") from error
    return history


def _save_history(folder: Folder, state: TrainState) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    history = state.history
    sizes = pa.array(history.pop("cluster_sizes").astype(np.float32).ravel())
    columns = {name: pa.array(values) for name, values in history.items()}
    columns["cluster_sizes"] = pa.FixedSizeListArray.from_arrays(sizes, state.n_clusters)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    folder.write_bytes(_HISTORY, iter([memoryview(sink.getvalue())]))
