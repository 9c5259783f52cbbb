"""What a run folder holds for those that come later: its plan, its result, its history."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import prcut
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.fit.assign import Start
from prcut.fit.outliers import Exemplars
from prcut.fit.saved_fit import describe_tree, load_estimator, save_fit
from prcut.runs.labels import STATE_FOLDER
from prcut.runs.row_labels import RowLabels
from prcut.runtime.folder import Folder, check_format, finite_number, parsing
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
        cls,
        path: str,
        mode: Mode,
        source: Source,
        start: Start,
        balance_weight: float,
        seconds: dict[str, float],
    ) -> RunResult:
        """Return what a fit of the rows of a source ended with; its start has a score."""
        assert start.score is not None  # noqa: S101
        return cls(
            path,
            start.assigner,
            mode,
            n_samples=source.n_samples,
            n_features=source.n_features,
            n_clusters=start.assigner.n_clusters,
            used_clusters=int((start.score.cluster_sizes > 0).sum()),
            objective=start.score.objective,
            ratio_cut=start.score.ratio_cut,
            balance_weight=balance_weight,
            n_steps=start.state.step,
            seconds=seconds,
        )


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
    start: Start,
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
    tree = None if start.score is None else start.score.merge_tree
    description = {"run": dict(about), "result": figures, **describe_tree(tree), **update}
    count = folder.read_json(COUNT) if folder.exists(COUNT) else {}
    # a call that was killed may have left another number
    if count.get("n_clusters") == result.n_clusters and tree is not None:
        description["layers"] = count["layers"]
    save_fit(f"{result.path}/model", result.assigner, description, exemplars)
    _save_history(folder, start.state)
    extra = {"format": RUN_FORMAT, "history": _HISTORY, "prcut": prcut.__version__}
    folder.write_json("result.json", {**figures, **extra, **update, "solver": about["solver"]})


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

    from prcut.runtime.parquet import encode_parquet

    columns = {
        name: pa.array(values)
        if values.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        for name, values in state.history.items()
    }
    table = pa.table(columns)
    folder.write_bytes(_HISTORY, encode_parquet(table.schema, table.to_batches(), len(table)))


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
        model.labels_ = RowLabels(folder / "partition").read(0, n_samples).astype(np.int64)
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
