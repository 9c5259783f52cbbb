"""What a run folder holds for those that come later: its plan, its result, its history."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

import prcut
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.pipeline.fit import Fit
from prcut.pipeline.outliers import Exemplars
from prcut.pipeline.saved_fit import describe_tree, save_fit
from prcut.runtime.folder import Folder, check_format
from prcut.runtime.sources import Source
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.saved import load_model
from prcut.training.state import OF_GRAPH, Record, TrainState

_LOG = logging.getLogger(__name__)
RUN_FORMAT = 1
# how the number of clusters was found, where it was not given
COUNT = "count.json"
_HISTORY = "history.parquet"
Mode = Literal["memory", "disk"]


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

    @classmethod
    def of(
        cls, path: str, mode: Mode, source: Source, fit: Fit, seconds: dict[str, float]
    ) -> RunResult:
        """Return what a fit of the rows of a source ended with."""
        n_used = int((fit.cluster_sizes > 0).sum())
        figures: list[Any] = [source.n_samples, source.n_features, fit.assigner.n_clusters, n_used]
        figures += [fit.objective, fit.ratio_cut, fit.balance_weight, fit.state.step, seconds]
        return cls(path, fit.assigner, mode, *figures)


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


def save_result(
    result: RunResult,
    fit: Fit,
    about: Mapping[str, Any],
    exemplars: Exemplars | None = None,
    update: Mapping[str, Any] | None = None,
) -> None:
    """Write the model, the history and, last, the result.

    ``exemplars`` are what rows are compared with to find those that belong nowhere; ``update`` are
    the ids of the clusters and how they changed, of a run that continues another.
    """
    folder = Folder(result.path)
    figures = result._asdict()
    del figures["assigner"], figures["path"]
    update = update or {}
    description = {"run": dict(about), "result": figures, **describe_tree(fit.merge_tree), **update}
    count = folder.read_json(COUNT) if folder.exists(COUNT) else {}
    # a call that was killed may have left another number
    if count.get("n_clusters") == result.n_clusters and fit.merge_tree is not None:
        description["layers"] = count["layers"]
    save_fit(f"{result.path}/model", result.assigner, description, exemplars)
    _save_history(folder, fit.state)
    extra = {"format": RUN_FORMAT, "history": _HISTORY, "prcut": prcut.__version__}
    folder.write_json("result.json", {**figures, **extra, **update, "solver": fit.solver})


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


def read_history(folder: Folder) -> dict[str, np.ndarray]:
    """Read the records of training, without those of clusters and heads: large tables."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not folder.exists(_HISTORY):
        return {}
    content = pa.BufferReader(folder.read_bytes(_HISTORY))
    try:
        file = pq.ParquetFile(content)
        left_out = set(OF_GRAPH) - set(file.schema_arrow.names)  # of a distillation
        left_out |= {"cluster_sizes", "head_objectives"}
        names = [name for name in Record._fields if name not in left_out]
        table = file.read(names)
        history = {name: table.column(name).to_numpy() for name in names}
        if not all(np.isfinite(values).all() for values in history.values()):
            raise ValueError("it holds NaN or infinity")
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        reason = str(error).strip()[:200]
        raise CorruptFileError(f"{folder.path}/{_HISTORY} cannot be read: {reason}.") from error
    return history


def _save_history(folder: Folder, state: TrainState) -> None:
    import pyarrow as pa

    from prcut.runtime.parquet_bytes import encode_parquet

    columns = {
        name: pa.array(values)
        if values.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        for name, values in state.history.items()
    }
    table = pa.table(columns)
    folder.write_bytes(_HISTORY, encode_parquet(table.schema, table.to_batches(), len(table)))
