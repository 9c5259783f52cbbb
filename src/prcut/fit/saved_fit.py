"""Save and load a fitted estimator: a model folder with the labels and the history beside it.

``model.safetensors`` and ``config.json`` are all that prediction needs; ``fit.safetensors`` holds
the arrays of the fit. A model may come from a stranger: whatever is read is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from prcut.errors import CorruptFileError
from prcut.fit.assign import Lazy, Start
from prcut.fit.clusters import ClusterIds
from prcut.fit.config import check_fraction
from prcut.fit.outliers import Exemplars, OutlierRule
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
# the attributes that config.json may set on an estimator, and how their values are read
_FIGURES: dict[str, Callable[[Any], Any]] = {
    "n_steps_": whole_number,
    "n_neighbors_": whole_number,
    "n_features_in_": whole_number,
    "_is_weighted": whole_number,
    "objective_": finite_number,
    "ratio_cut_": finite_number,
    "balance_weight_": finite_number,
}
# arrays of the fit: attribute of the estimator, if it is one, kind of numbers, and shape, with n
# rows, k clusters, and other letters of any size
_ARRAYS = {
    "labels": ("labels_", "cluster", "n"),
    "clusters": ("clusters_", "cluster", "n"),
    "probabilities": ("probabilities_", "float", "n"),
    "keys": ("", "int", "n"),
    "stability": ("cluster_stability_", "float", "k"),
    "violated_links": ("violated_links_", "int", "p", "2"),
    "graph_features": ("_graph_features", "float", "r", "d"),
    "count.tried": ("", "int", "c"),
    "count.agreement": ("", "float", "c"),
    "count.entropy": ("", "float", "c"),
    "reasons.cluster": ("", "cluster", "n"),
    "reasons.runner_up": ("", "cluster", "n"),
    "reasons.n_neighbors": ("", "int", "n"),
    "reasons.n_inside": ("", "int", "n"),
    "reasons.n_in_runner_up": ("", "int", "n"),
    "reasons.change": ("", "float or NaN", "n"),
}
_ATTRIBUTES = {name: row[0] for name, row in _ARRAYS.items() if row[0]}


class SavedFit(NamedTuple):
    """Content of a model folder, of an estimator or of a run, whose settings have equal names."""

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
    """Save an assigner with the description and the arrays of its fit."""
    from safetensors.torch import save

    arrays, described = dict(arrays or {}), dict(description)
    if exemplars is not None:
        arrays |= _with_prefix("exemplars.", exemplars.to_arrays())
    if arrays:
        content = save({name: torch.tensor(value) for name, value in arrays.items()})
        described["files"] = {_FIT_FILE: Folder(path).write_bytes(_FIT_FILE, iter([content]))}
    save_model(path, assigner, described)


def load_fit(path: str | Path, loaded: LoadedModel | None = None) -> SavedFit:
    """Load what :func:`save_fit` saved, or the model of a run; ``loaded`` is its assigner."""
    from safetensors.torch import load

    loaded = loaded or load_model(path)
    fit = parse_fit(loaded)
    folder, files = Folder(path), _mapping(loaded.description, "files")
    if _FIT_FILE not in files:
        return fit
    folder.verify({"files": {_FIT_FILE: files[_FIT_FILE]}})
    with parsing(f"{folder.path}/{_FIT_FILE}"):
        tensors = load(folder.read_bytes(_FIT_FILE))
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        _check_arrays(arrays, fit.assigner.n_clusters)
    return fit._replace(arrays=arrays)


def _check_arrays(arrays: Mapping[str, np.ndarray], n_clusters: int) -> None:
    """Compare the arrays with their kinds and shapes; raise ValueError where one differs."""
    if "labels" not in arrays and len(_under("exemplars.", arrays)) < len(arrays):
        raise ValueError("no labels, which only a run keeps elsewhere")
    sizes = {"k": n_clusters, "2": 2}
    for name, (_, kind, *letters) in _ARRAYS.items():
        if name not in arrays:
            continue
        values = arrays[name]
        shape = tuple(map(sizes.setdefault, letters, values.shape))
        is_right = values.shape == shape and values.ndim == len(letters)
        if kind.startswith("float"):
            is_right &= values.dtype.kind == "f"
            is_right = is_right and ("NaN" in kind or bool(np.isfinite(values).all()))
        else:
            is_right &= values.dtype == np.int64
        if is_right and kind == "cluster" and values.size:
            is_right = -1 <= values.min() <= values.max() < n_clusters
        if not is_right:
            raise ValueError(f"{name} of shape {values.shape} is no array of {kind} numbers")


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
            name: read(given[name])
            for name, read in _FIGURES.items()
            if given.get(name) is not None
        }
        if (features := given.get("feature_names_in_")) is not None:
            if not isinstance(features, list) or not all(isinstance(one, str) for one in features):
                raise ValueError("feature_names_in_ are not names")
            fitted["feature_names_in_"] = np.array(features, dtype=object)
        names = ClusterIds.parse(description, assigner.n_clusters)
        if "merge_tree" in description:
            fitted["merge_tree_"] = _parse_tree(description["merge_tree"], assigner.n_clusters)
            layers = description.get("layers", [assigner.n_clusters])
            fitted["layer_sizes_"] = _parse_layers(layers, assigner.n_clusters)
    return SavedFit(assigner.float(), parameters, fitted, {}, names)


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


# -- what the command line asks of a model ---------------------------------------------------------


def read_rule(path: str | Path, loaded: Any) -> OutlierRule | None:
    """Return which rows a saved model rejects; None where it was not fitted to reject any."""
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


def coarse_labels(loaded: Any) -> dict[int, np.ndarray]:
    """Return the cluster that every finest cluster belongs to, by the sizes of coarser layers."""
    if "layers" not in loaded.description:
        return {}
    fitted = parse_fit(loaded).fitted
    return {size: fitted["merge_tree_"].labels(size) for size in fitted.get("layer_sizes_", [])[1:]}


def read_ids(loaded: Any) -> np.ndarray | None:
    """Return the ids of a model's clusters; None where they are those of a first fit."""
    return parse_fit(loaded).names.ids if "cluster_ids" in loaded.description else None


def describe_tree(tree: MergeTree | None) -> dict[str, Any]:
    """Describe a merge tree in JSON's types."""
    if tree is None:
        return {}
    return {"merge_tree": {"children": tree.children.tolist(), "costs": tree.costs.tolist()}}


# -- estimators ------------------------------------------------------------------------------------


def save_estimator(path: str | Path, model: Any) -> None:
    """Save a fitted estimator: the files for prediction, and the arrays of its fit."""
    found = {name: getattr(model, attribute, None) for name, attribute in _ATTRIBUTES.items()}
    arrays = {name: values for name, values in found.items() if values is not None}
    if model._seen is not None:
        arrays["keys"] = model._seen.in_order()
    if hasattr(model, "cluster_count_"):
        counted = model.cluster_count_._asdict()
        del counted["n_clusters"]
        arrays |= _with_prefix("count.", counted)
    if model._reasons is not None:
        arrays |= _with_prefix("reasons.", model._reasons()._asdict())
    arrays |= _with_prefix("history.", model._start().state.history)
    save_fit(path, model.assigner_, _describe_fit(model), model._exemplars, arrays)


def push_estimator(model: Any, repo_id: str, **options: Any) -> str:
    """Upload the files for prediction to the Hugging Face Hub; return the commit's URL."""
    with TemporaryDirectory() as folder:
        save_model(folder, model.assigner_, _describe_fit(model))
        return hub.push_to_hub(folder, repo_id, **options)


def _describe_fit(model: Any) -> dict[str, Any]:
    """Describe a fitted estimator in JSON's types: its parameters and its figures."""
    parameters = model.get_params(deep=False)
    if callable(parameters["similarity"]):
        parameters["similarity"] = "function"
    if not isinstance(parameters["random_state"], int | np.integer | None):
        parameters["random_state"] = None
    figures = {name: getattr(model, name, None) for name in _FIGURES}
    names = getattr(model, "feature_names_in_", None)
    figures["feature_names_in_"] = None if names is None else list(map(str, names))
    return {
        "layers": list(model.layer_sizes_),
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


def load_estimator(path: str | Path, kind: type[Estimator]) -> Estimator:
    """Load what :func:`save_estimator` saved, or the model of a run."""
    fit = load_fit(path)
    model: Any = make_estimator(fit, kind)
    arrays = fit.arrays
    shape = arrays["graph_features"].shape if "graph_features" in arrays else None
    if model._is_precomputed and shape != (model.n_features_in_, fit.assigner.n_features):
        raise CorruptFileError(
            f"{path} was fitted to a matrix and has graph_features of shape {shape}."
        )
    with parsing(f"{path}/{_FIT_FILE}"):
        model._exemplars = _parse_exemplars(fit)
        for name in arrays.keys() & _ATTRIBUTES.keys():
            setattr(model, _ATTRIBUTES[name], arrays[name])
        if "labels" in arrays and "clusters" not in arrays:
            model.clusters_ = model.labels_.copy()
        if "keys" in arrays:
            model._seen = RowIndex.of(arrays["keys"])
        if counted := _under("count.", arrays):
            model.cluster_count_ = ClusterCount(model.n_clusters_, **counted)
        if reasons := _under("reasons.", arrays):
            model._reasons = Lazy.of(Reasons(**reasons))
        if history := _under("history.", arrays):
            tensors = {name: torch.from_numpy(values) for name, values in history.items()}
            model._start().state.records = parse_records(tensors, model.n_clusters_)
    return model  # type: ignore[no-any-return]


def make_estimator(fit: SavedFit, kind: type[Estimator]) -> Estimator:
    """Return an estimator with the parameters and figures of a saved fit."""
    estimator: Any = kind
    known = estimator._get_param_names()
    given = {name: value for name, value in fit.parameters.items() if name in known}
    n_clusters, n_features = fit.assigner.n_clusters, fit.assigner.n_features
    with parsing("the description of the model"):
        model = estimator(**given)
        model.set_params(n_clusters=n_clusters, bottleneck=fit.assigner.bottleneck)
        model.n_clusters_ = n_clusters
        config = model._config()
        if config.layers != fit.assigner.hidden:
            model.set_params(hidden=fit.assigner.hidden)
        assigner = fit.assigner.to(choose_device(model.device))
    fitted = {"n_features_in_": n_features, "layer_sizes_": [n_clusters], **fit.fitted}
    fitted |= {"cluster_stability_": None, "changes_": (), "_given_names": fit.names}
    state = TrainState.start(assigner, config.train, fitted.pop("n_steps_", 0))
    model._start = Lazy.of(Start(assigner, state))
    for name, value in fitted.items():
        setattr(model, name, value)
    names = getattr(model, "feature_names_in_", None)
    if model.n_features_in_ != n_features and not model._is_precomputed:
        raise CorruptFileError(
            f"the model says n_features_in_={model.n_features_in_}, its assigner has {n_features}."
        )
    if names is not None and len(names) != model.n_features_in_:
        raise CorruptFileError("the model's feature_names_in_ are not one for each feature.")
    return model  # type: ignore[no-any-return]


def _parse_exemplars(fit: SavedFit) -> Exemplars | None:
    arrays = _under("exemplars.", fit.arrays)
    return Exemplars.of_arrays(arrays, fit.assigner.n_features) if arrays else None


def _mapping(description: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a section of a description, empty where a stranger's model has none."""
    section = description.get(name)
    return section if isinstance(section, dict) else {}


def _with_prefix(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{prefix}{name}": values for name, values in arrays.items()}


def _under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays with a prefix, by their names without it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
