"""Save and load a fitted estimator: a model folder with the labels and the history beside it.

``model.safetensors`` and ``config.json`` are all that prediction needs; ``fit.safetensors`` holds
the arrays of the fit. A model may come from a stranger: whatever is read is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from prcut.errors import CorruptFileError
from prcut.fit.assign import Lazy, Start
from prcut.fit.config import check_fraction
from prcut.fit.outliers import Exemplars, OutlierRule
from prcut.fit.update import ClusterIds
from prcut.graph.rows import RowIndex
from prcut.runtime.device import choose_device
from prcut.runtime.folder import Folder, finite_number, parsing, whole_number
from prcut.search.count import ClusterCount
from prcut.search.explain import Reasons
from prcut.search.merge import MergeTree
from prcut.training.assigner import hub
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.saved import LoadedModel, load_model, save_model
from prcut.training.checkpoint import parse_records
from prcut.training.state import TrainState

Estimator = TypeVar("Estimator")
_FIT_FILE = "fit.safetensors"
# what config.json may set on an estimator, and nothing else
_WHOLE = ("n_steps_", "n_neighbors_", "n_features_in_", "_is_weighted")
_FINITE = ("objective_", "ratio_cut_", "balance_weight_")
# what a start must be made for
_OF_START = ("assigner_", "n_steps_")
# arrays of a ClusterCount, in its order
_OF_COUNT = ("tried", "agreement", "entropy")


class SavedFit(NamedTuple):
    """What a model folder says of an estimator, or of a run, whose settings have the same names."""

    assigner: Assigner
    parameters: dict[str, Any]
    fitted: dict[str, Any]  # attributes that end with an underscore
    arrays: dict[str, np.ndarray]  # empty for the model of a run
    names: ClusterIds


def save_fit(
    path: str | Path,
    assigner: Assigner,
    description: Mapping[str, Any],
    exemplars: Exemplars | None,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Save an assigner with what describes its fit."""
    from safetensors.torch import save

    arrays, described = dict(arrays or {}), dict(description)
    if exemplars is not None:
        arrays |= {f"exemplars.{name}": values for name, values in exemplars.to_arrays().items()}
    if arrays:
        content = save({name: torch.tensor(value) for name, value in arrays.items()})
        described["files"] = {_FIT_FILE: Folder(path).write_bytes(_FIT_FILE, iter([content]))}
    save_model(path, assigner, described)


def load_fit(path: str | Path, loaded: LoadedModel | None = None) -> SavedFit:
    """Load what :func:`save_fit` saved, or the model of a run; ``loaded`` is its assigner."""
    loaded = loaded or load_model(path)
    fit = parse_fit(loaded)
    folder, files = Folder(path), _mapping(loaded.description, "files")
    if _FIT_FILE not in files:
        return fit
    folder.verify({"files": {_FIT_FILE: files[_FIT_FILE]}})
    return fit._replace(arrays=_read_arrays(folder))


def read_rule(path: str | Path, loaded: Any) -> OutlierRule | None:
    """Return which rows a saved model refuses; None where it was not fitted to refuse any."""
    # a model from the Hub has left its rows behind
    if "files" not in loaded.description or not Folder(path).exists(_FIT_FILE):
        return None
    fit = load_fit(path, loaded)
    with parsing(f"{path}/{_FIT_FILE}"):
        exemplars, fraction = _parse_exemplars(fit), fit.parameters.get("outliers")
        check_fraction(fraction)
    if exemplars is None or not fraction:
        return None
    metric = str(fit.parameters.get("metric"))
    return OutlierRule(exemplars, fraction, fit.assigner.column_scales, metric)


def parse_fit(loaded: LoadedModel) -> SavedFit:
    """Check the description of a model and return what it says of the fit."""
    assigner, description = loaded.assigner, loaded.description
    parameters = {**_mapping(description, "run"), **_mapping(description, "parameters")}
    parameters["n_init"] = parameters.get("n_init") or None  # a run of effort "fast" made none
    result = _mapping(description, "result")
    of_run = {f"{name}_": result.get(name) for name in ("balance_weight", "n_steps")}
    given = {**of_run, **_mapping(description, "fitted")}
    with parsing("the description of the model"):
        fitted = {
            name: _fitted_value(name, value)
            for name, value in given.items()
            if value is not None and name in (*_WHOLE, *_FINITE, "feature_names_in_")
        }
        names = ClusterIds.parse(description, assigner.n_clusters)
        if "merge_tree" in description:
            fitted["merge_tree_"] = _parse_tree(description["merge_tree"], assigner.n_clusters)
            layers = description.get("layers", [assigner.n_clusters])
            fitted["layer_sizes_"] = _parse_layers(layers, assigner.n_clusters)
    return SavedFit(assigner.float(), parameters, fitted, {}, names)


def coarse_labels(loaded: Any) -> dict[int, np.ndarray]:
    """Return what every cluster of a model is called in its coarser layers, by their sizes."""
    if "layers" not in loaded.description:
        return {}
    fitted = parse_fit(loaded).fitted
    return {size: fitted["merge_tree_"].labels(size) for size in fitted.get("layer_sizes_", [])[1:]}


def read_ids(loaded: Any) -> np.ndarray | None:
    """Return the ids of a model's clusters; None where they are those of a first fit."""
    if "cluster_ids" not in loaded.description:
        return None
    return parse_fit(loaded).names.ids


def describe_tree(tree: MergeTree | None) -> dict[str, Any]:
    """Describe a merge tree in JSON's types."""
    if tree is None:
        return {}
    return {"merge_tree": {"children": tree.children.tolist(), "costs": tree.costs.tolist()}}


def _parse_tree(content: Any, n_clusters: int) -> MergeTree:
    children = np.array(content["children"], np.int64).reshape(-1, 2)
    costs = np.array([finite_number(cost) for cost in content["costs"]], np.float64)
    n_merges = n_clusters - 1
    merged = np.arange(n_merges) + n_clusters
    if len(children) != n_merges or len(costs) != n_merges:
        raise ValueError(f"merge_tree has {len(children)} merges of {n_clusters} clusters")
    if (children < 0).any() or (children >= merged[:, None]).any():
        raise ValueError("merge_tree merges what does not exist")
    if not np.array_equal(np.sort(children, axis=None), np.arange(2 * n_merges)):
        raise ValueError("merge_tree merges a node twice")
    return MergeTree(children, costs)


def _parse_layers(content: Any, n_clusters: int) -> list[int]:
    sizes = [int(size) for size in content]
    if sizes[:1] != [n_clusters] or sizes[-1] < 1 or (np.diff(sizes) >= 0).any():
        raise ValueError(f"layers of {sizes} clusters")
    return sizes


def _mapping(description: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a section of a description, empty where a stranger's model has none."""
    section = description.get(name)
    return section if isinstance(section, dict) else {}


def _fitted_value(name: str, value: Any) -> Any:
    """Return a name, a whole number or a finite one, and nothing else."""
    if name == "feature_names_in_":
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ValueError("feature_names_in_ are not names")
        return np.array(value, dtype=object)
    return whole_number(value) if name in _WHOLE else finite_number(value)


def _read_arrays(folder: Folder) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    file = f"{folder.path}/{_FIT_FILE}"
    try:
        with parsing(file):
            arrays = {k: v.numpy() for k, v in load(folder.read_bytes(_FIT_FILE)).items()}
            if "labels" not in arrays and len(_under("exemplars.", arrays)) < len(arrays):
                raise ValueError("no labels, which only a run keeps elsewhere")
            labels = arrays.get("labels", np.empty(0, np.int64))
            if labels.ndim != 1 or labels.dtype != np.int64:
                raise ValueError(f"labels of shape {labels.shape}")
    except SafetensorError as error:
        raise CorruptFileError(f"{file} is not a safetensors file: {error}.") from error
    return arrays


def _parse_exemplars(fit: SavedFit) -> Exemplars | None:
    arrays = _under("exemplars.", fit.arrays)
    return Exemplars.of_arrays(arrays, fit.assigner.n_features) if arrays else None


def _under(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin so, without that."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _parse_reasons(arrays: dict[str, np.ndarray], n_samples: int, n_clusters: int) -> Reasons:
    """Return why rows are in their clusters; ValueError where it cannot be of these rows."""
    reasons = Reasons(**arrays)
    for name, values in arrays.items():
        if values.shape != (n_samples,) or (values.dtype.kind == "i") == (name == "change"):
            raise ValueError(f"reasons of shape {values.shape}")
    for named in (reasons.cluster, reasons.runner_up):
        if named.size and not -1 <= named.min() <= named.max() < n_clusters:
            raise ValueError("reasons name clusters that do not exist")
    return reasons


def describe_fit(model: Any) -> dict[str, Any]:
    """Describe a fitted estimator in JSON's types: its parameters and its figures."""
    parameters = model.get_params(deep=False)
    if callable(parameters["similarity"]):
        parameters["similarity"] = "function"
    if not isinstance(parameters["random_state"], int | np.integer | None):
        parameters["random_state"] = None
    figures = {name: getattr(model, name, None) for name in (*_FINITE, *_WHOLE)}
    names = getattr(model, "feature_names_in_", None)
    figures["feature_names_in_"] = None if names is None else list(map(str, names))
    return {
        "layers": list(getattr(model, "layer_sizes_", ())),
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "fitted": figures,
        **({} if model._names.are_first else model._names.describe()),
        **describe_tree(getattr(model, "merge_tree_", None)),
    }


def _plain(value: Any) -> Any:
    """Return a parameter as JSON holds it."""
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, tuple) else value


def save_estimator(path: str | Path, model: Any) -> None:
    """Save a fitted estimator: what prediction needs, and the arrays of its fit."""
    arrays: dict[str, np.ndarray] = {
        "labels": model.labels_,
        "probabilities": model.probabilities_,
    }
    if getattr(model, "cluster_stability_", None) is not None:
        arrays["stability"] = model.cluster_stability_
    if model._seen is not None:
        arrays["keys"] = model._seen.in_order()
    if hasattr(model, "violated_links_"):
        arrays["violated_links"] = model.violated_links_
    if hasattr(model, "cluster_count_"):
        _, *counted = model.cluster_count_
        arrays |= {f"count.{k}": v for k, v in zip(_OF_COUNT, counted, strict=True)}
    if model._exemplars is not None:
        arrays["clusters"] = model.clusters_
    if model._reasons is not None:
        arrays |= {f"reasons.{k}": v for k, v in model._reasons()._asdict().items()}
    history = model._start().state.history
    arrays |= {f"history.{name}": values for name, values in history.items()}
    if model._is_precomputed:
        arrays["graph_features"] = model._graph_features
    save_fit(path, model.assigner_, describe_fit(model), model._exemplars, arrays)


def load_estimator(path: str | Path, kind: type[Estimator]) -> Estimator:
    """Load what :func:`save_estimator` saved, or the model of a run."""
    fit = load_fit(path)
    model: Any = make_estimator(fit, kind)
    arrays = dict(fit.arrays)
    if model._is_precomputed:
        if "graph_features" not in arrays:
            raise CorruptFileError(f"{path} was fitted to a matrix, of which it holds no rows.")
        model._graph_features = rows = arrays.pop("graph_features")
        expected = model.n_features_in_, fit.assigner.n_features
        if rows.shape != expected or not np.isfinite(rows).all():
            raise CorruptFileError(f"{path} has graph_features of shape {rows.shape}.")
    with parsing(f"{path}/{_FIT_FILE}"):
        model._exemplars = _parse_exemplars(fit)
        if "labels" in arrays:
            _take_arrays(model, arrays)
    return model  # type: ignore[no-any-return]


def _take_arrays(model: Any, arrays: dict[str, np.ndarray]) -> None:
    """Give an estimator what its fit said of its own rows."""
    model.labels_ = arrays["labels"]
    model.clusters_ = arrays.get("clusters", model.labels_.copy())
    if "probabilities" in arrays:
        model.probabilities_ = arrays["probabilities"]
    if "stability" in arrays:
        model.cluster_stability_ = stability = arrays["stability"]
        if stability.shape != (model.n_clusters_,) or not np.isfinite(stability).all():
            raise ValueError(f"stability of shape {stability.shape}")
    if "keys" in arrays:
        if arrays["keys"].shape != model.labels_.shape or arrays["keys"].dtype != np.int64:
            raise ValueError(f"keys of shape {arrays['keys'].shape}")
        model._seen = RowIndex.of(arrays["keys"])
    if "violated_links" in arrays:
        model.violated_links_ = pairs = arrays["violated_links"]
        if pairs.dtype != np.int64 or pairs.shape != (len(pairs), 2):
            raise ValueError(f"violated_links of shape {pairs.shape}")
    if counted := _under("count.", arrays):
        model.cluster_count_ = ClusterCount(model.n_clusters_, *(counted[k] for k in _OF_COUNT))
        if len({values.shape for values in counted.values()}) > 1:
            raise ValueError("a count of arrays that differ in length")
    if reasons := _under("reasons.", arrays):
        model._reasons = Lazy.of(_parse_reasons(reasons, len(model.labels_), model.n_clusters_))
    history = {k: torch.from_numpy(v) for k, v in _under("history.", arrays).items()}
    model._start().state.records = parse_records(history, model.n_clusters_)


def push_estimator(model: Any, repo_id: str, **options: Any) -> str:
    """Upload what prediction needs to the Hugging Face Hub; return the commit's URL."""
    with TemporaryDirectory() as folder:
        save_model(folder, model.assigner_, describe_fit(model))
        return hub.push_to_hub(folder, repo_id, **options)


def make_estimator(fit: SavedFit, kind: type[Estimator]) -> Estimator:
    """Return an estimator with the parameters and figures of a saved fit."""
    estimator: Any = kind
    known = estimator._get_param_names()
    given = {name: value for name, value in fit.parameters.items() if name in known}
    with parsing("the description of the model"):
        model = estimator(**given)
        model.set_params(n_clusters=fit.assigner.n_clusters, bottleneck=fit.assigner.bottleneck)
        model.n_clusters_ = fit.assigner.n_clusters
        if model._config().layers != fit.assigner.hidden:
            model.set_params(hidden=fit.assigner.hidden)
        assigner = fit.assigner.to(choose_device(model.device))
    n_clusters, n_features = fit.assigner.n_clusters, fit.assigner.n_features
    fitted = {"n_features_in_": n_features, "layer_sizes_": [n_clusters], **fit.fitted}
    fitted |= {"cluster_stability_": None, "changes_": ()}
    state = TrainState.start(assigner, model._config().train, fitted.pop("n_steps_", 0))
    model._start = Lazy.of(Start(assigner, state))
    model._names = fit.names
    for name, value in fitted.items():
        setattr(model, name, value)
    n_features, names = model.n_features_in_, getattr(model, "feature_names_in_", None)
    if n_features != fit.assigner.n_features and not model._is_precomputed:
        raise CorruptFileError(
            f"the model says n_features_in_={n_features}, its assigner has "
            f"{fit.assigner.n_features}."
        )
    if names is not None and len(names) != n_features:
        raise CorruptFileError("the model's feature_names_in_ are not one for each feature.")
    return model  # type: ignore[no-any-return]
