"""The scikit-learn face: ``PRCut(n_clusters=10).fit_predict(X)``."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import ClassifierTags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Generator

from prcut.assigner import Assigner
from prcut.assignment import assign_labels, assign_probs, represent_rows
from prcut.batches import GatheredPairs
from prcut.display import FitDisplay
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.export import export_onnx
from prcut.fitting import (
    FitConfig,
    Preset,
    Solver,
    choose_device,
    choose_graph,
    choose_n_neighbors,
    fit_graph,
    measure_features,
    new_assigner,
)
from prcut.graph import SimilarityGraph
from prcut.graph_features import graph_features
from prcut.memory import release_memory
from prcut.model_folder import (
    LoadedModel,
    load_from_hub,
    load_model,
    push_to_hub,
    save_model,
)
from prcut.neighbors import Metric
from prcut.notebook import History, results_html
from prcut.objective import hard_objective
from prcut.pairs import WalkPairs
from prcut.partition import tree_of_clusters
from prcut.similarity import PairSimilarity, Similarity, build_graph
from prcut.storage import Folder, finite_number, parsing, whole_number
from prcut.train_state import TrainState
from prcut.training import train

__all__ = ["PRCut"]

_FIT_FILE = "fit.safetensors"
# what config.json may set on an estimator, and nothing else
_FITTED = {
    *("objective_", "ratio_cut_", "balance_weight_", "n_steps_", "n_neighbors_"),
    *("n_features_in_", "feature_names_in_"),
}
# partial_fit: pairs drawn per row of a call, and at least so many steps
_PAIRS_PER_ROW, _MIN_STEPS = 10, 10


class PRCut(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clustering by the probabilistic ratio cut of the neighbour graph.

    The partition of the neighbour graph with the lowest ratio cut (and balanced sizes) is searched
    and taught to a small neural assigner, which gives cluster probabilities to new rows; or the
    assigner is trained by stochastic gradients on the expected ratio cut, as in the paper. Memory
    does not grow with n².

    Parameters
    ----------
    n_clusters : int
    preset : {"default", "paper"}
        Where the parameters left at None come from: ours, or the published experiments (uniform
        pairs, Adam at 1e-4 for 25,000 steps, entropy weight 100, one start).
    n_neighbors : int, optional
        By default 10, or 30 or 100 where independent starts do not find the same clusters with
        fewer (:func:`prcut.fitting.choose_graph`).
    affinity : {"nearest_neighbors", "precomputed"}
        ``"precomputed"``: X is a symmetric matrix of similarities, dense or sparse.
    metric : {"euclidean", "cosine", "inner_product"}
    similarity : {"mean", "binary", "self_tuning", "cosine"} or callable, optional
        Weight of an edge, ``"mean"`` by default: see :func:`prcut.build_graph`.
    solver : {"search", "train"}, optional
        How the clusters are found: by a search on the graph (the default), or by training the
        assigner on pairs.
    hidden : sequence of int, optional
        Widths of hidden layers, () for a linear assigner; by default one of 256 to learn what was
        searched, none to be trained.
    bottleneck : int, optional
        Width of one more layer, whose activations :meth:`transform` returns.
    balance_weight : float, optional
        What an empty cluster costs, in units of what a cluster that ignores the graph adds to the
        cut. It means the same at every ``n_clusters``; 0 lets sizes be what they will. By default
        a search takes what suits the graph (:func:`prcut.partition.choose_balance`).
    walk_length : int, optional
        A pair is both ends of a walk of so many steps along the edges.
    max_steps, batch_size, learning_rate
        Of training, optional: see :class:`prcut.train_state.TrainConfig`.
    n_init : int, optional
        Starts, of which the one with the lowest ``objective_`` is kept, 2 to search and 4 to train
        by default; labels take no part.
    store_probs : bool
        Keep ``probs_`` of the training rows.
    random_state : int, RandomState or None
    device : str
        ``"auto"`` is CUDA where there is one.
    precision : {"float32", "bfloat16"}
        Of the assigner's products in training.
    verbose : bool
        Show a progress bar with the cut and the clusters in use.

    Attributes
    ----------
    labels_ : int64 array, shape (n_samples,)
        The partition that was found; :meth:`predict` gives what the assigner has learned of it,
        nearly the same.
    merge_tree_ : MergeTree
        How the clusters merge further, and what each merge adds to the objective; None where
        training left a cluster empty.
    probs_ : float32 array, shape (n_samples, n_clusters)
        With ``store_probs``.
    ratio_cut_ : float
        Of ``labels_`` on the graph (with the definition's ½).
    objective_ : float
        What training minimises, of ``labels_``: :func:`prcut.objective.hard_objective`.
    history_ : dict of arrays, which a notebook shows as curves
        Per ten steps: step, objective, cut, imbalance, confidence, cluster_sizes.
    balance_weight_ : float
        That was given, or chosen.
    n_neighbors_ : int
        Neighbours that were used, where they were searched for.
    n_steps_ : int
        Steps made by the start that was kept.
    assigner_ : Assigner
    n_features_in_ : int
    feature_names_in_ : array of str
        Where X had names of columns.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(300, centers=3, cluster_std=0.5, random_state=0)
    >>> model = PRCut(n_clusters=3, random_state=0).fit(X)
    >>> sorted(np.bincount(model.labels_).tolist())
    [100, 100, 100]
    >>> bool((model.predict(X) == model.labels_).all())
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        preset: Preset = "default",
        n_neighbors: int | None = None,
        affinity: Literal["nearest_neighbors", "precomputed"] = "nearest_neighbors",
        metric: Metric = "euclidean",
        similarity: Similarity | PairSimilarity | None = None,
        solver: Solver | None = None,
        hidden: tuple[int, ...] | None = None,
        bottleneck: int | None = None,
        balance_weight: float | None = None,
        walk_length: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        n_init: int | None = None,
        store_probs: bool = False,
        random_state: Any = None,
        device: str = "auto",
        precision: Literal["float32", "bfloat16"] = "float32",
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.preset = preset
        self.n_neighbors = n_neighbors
        self.affinity = affinity
        self.metric = metric
        self.similarity = similarity
        self.solver = solver
        self.hidden = hidden
        self.bottleneck = bottleneck
        self.balance_weight = balance_weight
        self.walk_length = walk_length
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_init = n_init
        self.store_probs = store_probs
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.verbose = verbose

    # -- fitting -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, graph: Any = None) -> PRCut:  # noqa: ARG002, N803
        """Cluster the rows of X.

        Parameters
        ----------
        X : array or SciPy sparse matrix, shape (n_samples, n_features)
            float16 to float64, also memory-mapped; other numbers become float32. With
            ``affinity="precomputed"`` the similarities, shape (n_samples, n_samples).
        y : ignored
        graph : SimilarityGraph or SciPy sparse matrix, shape (n_samples, n_samples), optional
            Used in place of the neighbours of X.
        """
        config, device = self._config(), choose_device(self.device)
        rows = self._check(X, reset=True)
        n_samples = rows.shape[0]
        if n_samples < config.n_clusters:
            raise InvalidInputError(f"{n_samples=} should be >= n_clusters={config.n_clusters}.")
        partition = None
        self.__dict__.pop("n_neighbors_", None)  # of an earlier fit
        if graph is not None:
            graph = _as_graph(graph, n_samples)
        elif config.solver == "search" and not self._is_precomputed:
            self.n_neighbors_, graph, partition = choose_graph(
                partial(self._neighbor_graph, rows, config), n_samples, config
            )
        else:
            graph = self._graph(rows, config)
        if self._is_precomputed:
            generator = Generator().manual_seed(config.train.seed)
            rows = np.ascontiguousarray(graph_features(graph, generator=generator).numpy())
            self._graph_features = rows
        with FitDisplay(config, enabled=bool(self.verbose)) as display:
            fit = fit_graph(
                graph,
                rows,
                config,
                device=device,
                on_record=display.on_record,
                partition=partition,
            )
        self._keep(fit.assigner, fit.state)
        assert fit.labels is not None  # noqa: S101  # they are, of rows in memory
        self.labels_, self.objective_, self.ratio_cut_ = fit.labels, fit.objective, fit.ratio_cut
        self.balance_weight_ = fit.config.in_use.balance_weight
        self.merge_tree_ = None
        if fit.cluster_sizes.all():
            self.merge_tree_ = tree_of_clusters(
                graph, fit.labels, balance_weight=self.balance_weight_
            )
        if self.store_probs:
            self.probs_ = assign_probs(fit.assigner, rows)
        release_memory()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> PRCut:  # noqa: ARG002, N803
        """Go on training with the rows of X, one part of a stream.

        Neighbours are looked for among the rows of the call, so they should be a fair sample, a
        few hundred at least. Clusters keep their numbers from call to call; ``labels_`` are those
        of the last. Goes on where :meth:`fit`, :meth:`load` or the last call ended.
        """
        if self._is_precomputed:
            raise InvalidInputError("partial_fit needs features, not affinity='precomputed'.")
        config = replace(self._config(), solver="train")
        is_first = not hasattr(self, "assigner_")
        rows = self._check(X, reset=is_first)
        graph = self._graph(rows, config)
        if is_first:
            measured = measure_features(rows, config.train.seed)
            generator = Generator().manual_seed(config.train.seed)
            assigner = new_assigner(*measured, config, generator).to(choose_device(self.device))
        else:
            assigner = self.assigner_
        state = self.__dict__.pop("_state", None) or TrainState.start(
            assigner, config.train, getattr(self, "n_steps_", 0)
        )
        n_steps = max(_MIN_STEPS, _PAIRS_PER_ROW * rows.shape[0] // config.train.batch_size)
        train_config = replace(
            config.train, max_steps=state.step + n_steps, schedule="constant", patience=None
        )
        pairs = GatheredPairs(WalkPairs(graph, n_steps=config.walk_length), rows)
        self._keep(assigner, train(pairs, assigner, train_config, state=state))
        self.labels_ = assign_labels(assigner, rows)
        return self

    def _keep(self, assigner: Assigner, state: TrainState) -> None:
        self.assigner_, self._state, self.n_steps_ = assigner, state, state.step
        self.__dict__.pop("history_", None)

    @cached_property
    def history_(self) -> History:
        """Not made before somebody asks: a stream would make a longer one with every part."""
        return History(self._state.history)

    # -- using -------------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Cluster of every row of X, int64, shape (n_samples,).

        With ``affinity="precomputed"``, X are the similarities of new rows to those of ``fit``,
        shape (n_samples, n_samples_of_fit).
        """
        return assign_labels(*self._ready(X))

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Cluster probabilities of every row of X, float32, shape (n_samples, n_clusters)."""
        return assign_probs(*self._ready(X))

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """The bottleneck's activations, or the logits of the clusters where there is none."""
        return represent_rows(*self._ready(X))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """How much better than by chance X is cut, without labels: 1 is perfect, 0 is chance.

        ``1 - J / (n_clusters - 1)``, where J is the objective of the predicted labels on the
        neighbour graph of X and ``n_clusters - 1`` its value for labels drawn at random.
        """
        config = self._config()
        assigner, rows = self._ready(X)
        if assigner.n_clusters == 1:
            return 0.0
        labels = torch.from_numpy(assign_labels(assigner, rows))
        graph = self._graph(X if self._is_precomputed else rows, config)
        objective = hard_objective(
            graph.weight,
            labels,
            assigner.n_clusters,
            balance_weight=getattr(self, "balance_weight_", config.in_use.balance_weight),
        )
        return float(1 - objective / (assigner.n_clusters - 1))

    def report(self, path: str | Path, X: Any, **options: Any) -> None:  # noqa: N803
        """Write what :meth:`predict` makes of X as one HTML file: see :mod:`prcut.report`.

        Parameters
        ----------
        path : str or path
        X : array or SciPy sparse matrix, shape (n_samples, n_features)
            The rows of ``fit``, or others.
        **options
            ``texts``, ``images`` and ``labels`` of the rows, as for
            :func:`prcut.report.write_report`.
        """
        from prcut.report import write_report

        write_report(self, path, data=X, **options)

    def _html_repr(self) -> str:
        """What a notebook shows: scikit-learn's diagram, and below it the results."""
        diagram = str(super()._html_repr())
        return diagram + results_html(self) if hasattr(self, "labels_") else diagram

    @property
    def _n_features_out(self) -> int:
        return int(self.assigner_.bottleneck or self.assigner_.n_clusters)

    # -- saving ------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Save as a folder of safetensors and JSON, which :meth:`load` reads on any machine.

        ``model.safetensors`` and ``config.json`` are all that prediction needs;
        ``fit.safetensors`` has the labels and the history. A ``similarity`` that is a function is
        not saved.
        """
        from safetensors.torch import save

        check_is_fitted(self)
        arrays: dict[str, np.ndarray] = {"labels": self.labels_}
        arrays |= {f"history.{name}": values for name, values in self.history_.items()}
        if self._is_precomputed:
            arrays["graph_features"] = self._graph_features
        content = save({name: torch.as_tensor(value) for name, value in arrays.items()})
        files = {_FIT_FILE: Folder(path).write_bytes(_FIT_FILE, iter([content]))}
        save_model(path, self.assigner_, {**self._description(), "files": files})

    @classmethod
    def load(cls, path: str | Path) -> PRCut:
        """The estimator that :meth:`save` saved, or the model of a run of the command line."""
        loaded = load_model(path)
        model = cls._from_model(loaded)
        folder, files = Folder(path), _mapping(loaded.description, "files")
        if _FIT_FILE in files:
            folder.verify({"files": files})
            model._take(folder.read_bytes(_FIT_FILE), f"{folder.path}/{_FIT_FILE}")
        if model._is_precomputed and not hasattr(model, "_graph_features"):
            raise CorruptFileError(f"{path} was fitted to a matrix, of which it holds no rows.")
        return model

    def _take(self, content: bytes, file: str) -> None:
        """What :meth:`save` put beside the model."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            with parsing(file):
                arrays = {name: value.numpy() for name, value in load(content).items()}
                self.labels_ = arrays.pop("labels")
                if self.labels_.ndim != 1 or self.labels_.dtype != np.int64:
                    raise ValueError(f"labels of shape {self.labels_.shape}")
                if self._is_precomputed:
                    self._graph_features = rows = arrays.pop("graph_features")
                    expected = self.n_features_in_, self.assigner_.n_features
                    if rows.shape != expected or not np.isfinite(rows).all():
                        raise ValueError(f"graph_features of shape {rows.shape}")
                self.history_ = History(
                    {name.removeprefix("history."): v for name, v in arrays.items()}
                )
        except SafetensorError as error:
            raise CorruptFileError(f"{file} is not a safetensors file: {error}.") from error

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload what prediction needs to the Hugging Face Hub; return the commit's URL.

        Labels and history stay here. Options are those of :func:`prcut.model_folder.push_to_hub`.
        """
        self._check_has_features()
        with TemporaryDirectory() as folder:
            save_model(folder, self.assigner_, self._description())
            return push_to_hub(folder, repo_id, **options)

    @classmethod
    def from_pretrained(cls, repo_id: str, **options: Any) -> PRCut:
        """A model from the Hugging Face Hub, or from a folder.

        Options are those of :func:`prcut.model_folder.load_from_hub`.
        """
        return cls._from_model(load_from_hub(repo_id, **options))

    def export_onnx(self, path: str | Path) -> None:
        """Write the assigner, with its softmax, as an ONNX file."""
        self._check_has_features()
        export_onnx(path, self.assigner_)

    def _check_has_features(self) -> None:
        check_is_fitted(self)
        if self._is_precomputed:
            raise InvalidInputError(
                "affinity='precomputed' predicts by the rows of fit, which cannot be exported; "
                "use save."
            )

    def _description(self) -> dict[str, Any]:
        """What a model folder says of the estimator, in JSON's types."""
        parameters = self.get_params(deep=False)
        if callable(self.similarity):
            parameters["similarity"] = "function"
        if not isinstance(self.random_state, int | np.integer | None):
            parameters["random_state"] = None
        found = {
            name: getattr(self, name, None)
            for name in ("objective_", "ratio_cut_", "balance_weight_", "n_neighbors_")
        }
        names = getattr(self, "feature_names_in_", None)
        return {
            "parameters": {name: _plain(value) for name, value in parameters.items()},
            "fitted": {
                **found,
                "n_steps_": self.n_steps_,
                "n_features_in_": self.n_features_in_,
                "feature_names_in_": None if names is None else list(map(str, names)),
            },
        }

    @classmethod
    def _from_model(cls, loaded: LoadedModel) -> PRCut:
        description, assigner = loaded.description, loaded.assigner
        if not isinstance(assigner, Assigner):
            raise InvalidInputError("the model is a table of logits, not an assigner of features.")
        known = cls._get_param_names()
        with parsing("the description of the model"):
            return cls._described(assigner, description, known)

    @classmethod
    def _described(cls, assigner: Assigner, description: dict[str, Any], known: list[str]) -> PRCut:
        """An estimator with the parameters and scores that a stranger's model may set."""
        # a run of the command line calls its settings by the same names
        parameters = {**_mapping(description, "run"), **_mapping(description, "parameters")}
        model = cls(**{name: value for name, value in parameters.items() if name in known})
        model.set_params(n_clusters=assigner.n_clusters)
        if model._config().layers != assigner.hidden:
            model.set_params(hidden=assigner.hidden)
        # rows are read as float32, whatever the weights were saved as
        model.assigner_ = assigner.float().to(choose_device(model.device))
        model.n_features_in_ = assigner.n_features
        of_run = {"balance_weight_": _mapping(description, "result").get("balance_weight")}
        for name, value in {**of_run, **_mapping(description, "fitted")}.items():
            if name in _FITTED and value is not None:
                setattr(model, name, _fitted_value(name, value))
        n_features = model.n_features_in_
        if n_features != assigner.n_features and not model._is_precomputed:
            raise ValueError(f"n_features_in_={n_features}, the assigner has {assigner.n_features}")
        if len(getattr(model, "feature_names_in_", range(n_features))) != n_features:
            raise ValueError("feature_names_in_ are not one for each feature")
        return model

    # -- what the methods share --------------------------------------------------------------

    @property
    def _is_precomputed(self) -> bool:
        if self.affinity not in ("nearest_neighbors", "precomputed"):
            raise InvalidInputError(
                f"affinity={self.affinity!r} must be 'nearest_neighbors' or 'precomputed'."
            )
        return self.affinity == "precomputed"

    def _config(self) -> FitConfig:
        return FitConfig.of(
            self.preset,
            self.n_clusters,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            n_neighbors=self.n_neighbors,
            metric=self.metric,
            similarity=self.similarity,
            solver=self.solver,
            hidden=None if self.hidden is None else tuple(self.hidden),
            bottleneck=self.bottleneck,
            balance_weight=self.balance_weight,
            walk_length=self.walk_length,
            max_steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            n_init=self.n_init,
            precision=self.precision,
        )

    def _check(self, X: Any, *, reset: bool) -> Any:  # noqa: N803
        """X as scikit-learn checks it, copied only where its dtype must change."""
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float32, np.float64, np.float16],
            ensure_min_samples=2 if reset else 1,
        )

    def _graph(self, rows: Any, config: FitConfig) -> SimilarityGraph:
        if self._is_precomputed:
            return SimilarityGraph.from_scipy(rows)
        n_samples = rows.shape[0]
        n_neighbors = config.n_neighbors or getattr(self, "n_neighbors_", None)
        if n_neighbors is None:
            n_neighbors = choose_n_neighbors(n_samples, config.n_clusters)
        elif config.n_neighbors is None:  # those of fit, of rows that may be fewer
            n_neighbors = max(1, min(n_neighbors, n_samples - 1))
        return self._neighbor_graph(rows, config, n_neighbors)

    def _neighbor_graph(self, rows: Any, config: FitConfig, n_neighbors: int) -> SimilarityGraph:
        return build_graph(
            rows,
            n_neighbors,
            metric=config.metric,
            similarity=config.similarity,
            max_components=config.n_clusters,
            seed=config.train.seed,
        )

    def _ready(self, X: Any) -> tuple[Assigner, Any]:  # noqa: N803
        """The assigner and the rows it is to see."""
        check_is_fitted(self)
        rows = self._check(X, reset=False)
        if self._is_precomputed:
            # a new row is what its neighbours are, as in graph_features
            degree = np.asarray(rows.sum(1)).reshape(-1, 1)
            rows = (rows @ self._graph_features) / np.maximum(degree, np.finfo(np.float32).tiny)
        return self.assigner_, rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.affinity == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float32"]
        # scikit-learn's checks look for them wherever there is predict_proba
        tags.classifier_tags = ClassifierTags()
        return tags


def _mapping(description: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of a description, empty where a stranger's model has none."""
    part = description.get(name)
    return part if isinstance(part, dict) else {}


def _fitted_value(name: str, value: Any) -> Any:
    """What a description says of a fit: names, whole numbers or finite ones, and nothing else."""
    if name == "feature_names_in_":
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ValueError("feature_names_in_ are not names")
        return np.array(value, dtype=object)
    if name in ("n_steps_", "n_neighbors_", "n_features_in_"):
        return whole_number(value)
    return finite_number(value)


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it."""
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, tuple) else value


def _as_graph(graph: Any, n_samples: int) -> SimilarityGraph:
    if not isinstance(graph, SimilarityGraph):
        graph = SimilarityGraph.from_scipy(graph)
    if graph.n_samples != n_samples:
        raise InvalidInputError(
            f"graph has n_samples={graph.n_samples} rows, X has {n_samples}; they must agree."
        )
    return graph  # type: ignore[no-any-return]
