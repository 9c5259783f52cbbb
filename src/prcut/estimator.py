"""The scikit-learn estimator: ``PRCut(n_clusters=10).fit_predict(X)``."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import ClassifierTags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Generator

from prcut.errors import InvalidInputError
from prcut.fit import saved_fit
from prcut.fit.assign import Lazy, Start, train_further
from prcut.fit.choose import as_graph, build_neighbor_graph, choose_n_clusters, choose_scales
from prcut.fit.clusters import ClusterIds, Layers, score_labels
from prcut.fit.config import Effort, FitConfig, Preset, Solver
from prcut.fit.fit import Fit, fit_rows, keep_some
from prcut.fit.known import Known
from prcut.fit.outliers import Exemplars, OutlierRule, OutlierScores, comparable
from prcut.fit.update import find_positions, stack_rows, update_rows
from prcut.graph.build import PairSimilarity, Similarity, graph_features
from prcut.graph.neighbors import Metric
from prcut.graph.rows import RowIndex, divide_columns, row_keys, subtract_origin
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runs.folder import is_run, open_run
from prcut.runtime.device import choose_device, release_memory
from prcut.runtime.progress import Step
from prcut.runtime.sources import as_rows
from prcut.search.explain import Reasons, check_rows, find_reasons
from prcut.search.follow import Change
from prcut.training.assigner import hub, onnx_export, predict
from prcut.training.assigner.network import Assigner
from prcut.training.settings import check_choice
from prcut.ui.notebook import History, results_html
from prcut.ui.progress_bars import FitDisplay
from prcut.ui.report.inspection import Inspection

# attributes that scikit-learn sets, which an update and a partial fit keep
_OF_INPUT = ("n_features_in_", "feature_names_in_")
# attributes for which the assigner is distilled
_OF_START = ("assigner_", "n_steps_")


class PRCut(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Cluster rows by the probabilistic ratio cut of their neighbour graph.

    A heuristic search minimises the ratio cut of the graph with balanced sizes. A small neural
    assigner, which labels new rows, is distilled from the partition when first needed, from a copy
    of some 100,000 rows. Or the assigner is trained on the expected ratio cut, as in the paper.

    Parameters
    ----------
    n_clusters : int, "auto" or (int, int)
        ``"auto"`` chooses the number on which independent searches agree most; a pair limits it.
    preset : {"default", "paper-pixels", "paper-representations"}
        Source of the parameters left at None: our defaults, or the paper's settings.
    n_neighbors : int, optional
        By default 15, or 50 or 100 where independent restarts disagree with fewer.
    affinity : {"nearest_neighbors", "precomputed"}
        ``"precomputed"``: X is a symmetric matrix of similarities, dense or sparse.
    metric : {"euclidean", "cosine", "inner_product"}
        Distance between rows; see the guide for columns of unlike units.
    similarity : {"mean", "binary", "self_tuning", "cosine"} or callable, optional
        Weight of an edge, ``"mean"`` by default: see :func:`prcut.build_graph`.
    solver : {"search", "train"}, optional
        Search the graph for the clusters (the default), or train the assigner on pairs.
    hidden : sequence of int, optional; widths of hidden layers, by default (256,)
    bottleneck : int, optional; width of one more layer, whose output :meth:`transform` returns
    balance_weight : float, optional
        Penalty for an empty cluster, in units of what a cluster of random rows adds to the cut; 0
        leaves the sizes free. By default 0.3 or 0.01, whichever the graph supports.
    min_size, max_size : float, optional
        Limits of the cluster sizes: numbers of rows, or fractions below 1; ``max_size="equal"``
        makes sizes equal. ``labels_`` obeys the limits exactly, :meth:`predict` approximately.
    walk_length : int, optional
        Steps along the edges between the rows of a pair, halved after every quarter of training.
    max_steps, batch_size, learning_rate : see :class:`prcut.training.TrainConfig`
    effort : {"default", "fast", "best"}
        ``"fast"`` uses 15 neighbours and no restarts; ``"best"`` makes sixteen restarts and, for
        20,000 rows or more, one that is trained.
    n_init : int, optional
        Restarts, by default 4, or 1 of training's 16 heads; the lowest ``objective_`` is kept.
    outliers : float, optional
        Label outliers −1, at most this fraction of rows like those of ``fit``, of which up to
        10,000 are kept for comparison. 0 only scores rows: :meth:`score_outliers`.
    n_jobs : int, optional; threads of the search, by default torch's; labels stay the same
    refine : bool, optional; move single rows of a trained partition while ``objective_`` falls
    store_probs : bool; store training probabilities; ``fit`` then distils immediately
    random_state : int, RandomState or None
    device : str, such as ``"cpu"``; ``"auto"`` is CUDA or MPS where available
    precision : {"float32", "bfloat16"}; of matrix products in training
    verbose : bool; show the progress of search and training; ``fit`` then distils immediately

    Attributes
    ----------
    labels_ : int64 array, shape (n_samples,)
        The partition, with −1 for outliers; ``clusters_`` holds the clusters of outliers too.
        :meth:`predict` gives rows of the same values these labels.
    probabilities_ : float32 array, shape (n_samples,)
        Confidence in the label of every row: 0.6, plus 0.4 times the fraction of independent
        restarts that agree on the row and its neighbours. 0 for outliers.
    objective_, ratio_cut_ : float
        Of the partition: :func:`prcut.numerics.hard_objective`, :func:`prcut.ratio_cut`.
    merge_tree_ : MergeTree
        How the clusters merge further; None where one is empty, or above 4,096 clusters.
    probs_ : float32 array, shape (n_samples, n_clusters), with ``store_probs``
    history_ : dict of arrays
        One entry per ten training steps: the fields of :class:`prcut.training.Record`.
        ``history_.steps`` lists the steps of the search with their seconds and objectives.
    n_clusters_, balance_weight_, n_neighbors_ : int, float, int; given or chosen
    cluster_count_ : ClusterCount, where the number was not given
        The numbers that were tried, and the agreement of searches on each.
    cluster_stability_ : float64 array, shape (n_clusters,); how well restarts reproduce each
    cluster_ids_ : int64 array, shape (n_clusters,); ids of the clusters, stable under updates
    changes_ : tuple of Change; clusters added, merged and removed by the last :meth:`update`
    layer_sizes_, cluster_layers_, cluster_tree_ : list of int, list of int64 arrays, dict
        Numbers of clusters of the layers, the finest first (one where the number was given), labels
        in every layer, and the clusters inside each coarser cluster.
    violated_links_ : int64 array, shape (n_violated, 2); pairs of ``cannot_link`` in one cluster
    assigner_, n_steps_ : Assigner, int; the assigner and its number of training steps

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
        n_clusters: int | tuple[int, int] | Literal["auto"] = 8,
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
        min_size: float | None = None,
        max_size: float | Literal["equal"] | None = None,
        walk_length: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        effort: Effort = "default",
        n_init: int | None = None,
        outliers: float | None = None,
        n_jobs: int | None = None,
        refine: bool | None = None,
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
        self.min_size = min_size
        self.max_size = max_size
        self.walk_length = walk_length
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.effort = effort
        self.n_init = n_init
        self.outliers = outliers
        self.n_jobs = n_jobs
        self.refine = refine
        self.store_probs = store_probs
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.verbose = verbose

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        sample_weight: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
        graph: Any = None,
    ) -> PRCut:
        """Cluster the rows of X.

        Parameters
        ----------
        X : array or SciPy sparse matrix, shape (n_samples, n_features)
            float16 to float64, also memory-mapped; other numbers become float32. With
            ``affinity="precomputed"`` the similarities, shape (n_samples, n_samples).
        y : int array, shape (n_samples,), optional
            Known classes from 0, and −1 elsewhere: the clusters of known rows have their numbers.
        sample_weight : array, shape (n_samples,), optional
            Number of times that a row counts, in the sizes and the cuts of clusters.
        must_link, cannot_link : int arrays, shape (n_pairs, 2), optional
            Pairs of rows that belong to one cluster, or to two; see ``violated_links_``.
        graph : SimilarityGraph or SciPy sparse matrix, shape (n_samples, n_samples), optional
            Used in place of the neighbours of X.
        """
        wanted: Any = self.n_clusters
        is_counted = isinstance(wanted, str | tuple | list)
        config = self._config(1 if is_counted else wanted)
        device, found = choose_device(self.device), None
        rows = self._check(X, reset=True)
        seen = RowIndex.of(row_keys(rows))  # before the caller may change them
        known = Known.of(rows.shape[0], y, sample_weight, must_link, cannot_link)
        graph = None if graph is None else as_graph(graph, rows.shape[0])
        self._clear()
        if self._is_precomputed:
            graph = SimilarityGraph.from_scipy(rows) if graph is None else graph
            generator = Generator().manual_seed(config.seed)
            rows = np.ascontiguousarray(graph_features(graph, generator=generator).numpy())
            self._graph_features = rows
        if is_counted:
            self.cluster_count_, found = choose_n_clusters(rows, graph, config, wanted)
            config = self._config(*self.cluster_count_.layers())
        self.n_clusters_ = config.n_clusters
        with FitDisplay(config) if self.verbose else nullcontext() as display:
            fit = fit_rows(
                rows,
                config,
                graph,
                device=device,
                neighbors=found,
                known=known,
                lazy=not (self.store_probs or self.verbose),
                on_record=None if display is None else display.on_record,
                on_step=None if display is None else display.on_step,
            )
        self._take_fit(rows, fit, config, seen, known.weights)
        self.violated_links_ = known.violated(self.clusters_)
        self.balance_weight_ = fit.balance_weight
        if is_counted and fit.score.merge_tree is not None:
            self.layer_sizes_ = self.cluster_count_.layers()
        if fit.n_neighbors is not None:
            self.n_neighbors_ = fit.n_neighbors
        if self.store_probs:
            probs = predict.assign_probs(fit.assigner, rows)
            self.probs_ = predict.keep_labels(probs, self.clusters_, self.probabilities_)
        release_memory()
        return self

    def update(
        self,
        X_new: Any,  # noqa: N803
        X_old_sample: Any = None,  # noqa: N803
        *,
        old_ids: Any = None,
        stickiness: float = 0.1,
    ) -> PRCut:
        """Continue the fit with new rows; clusters keep their ids, and may split, merge or vanish.

        Parameters
        ----------
        X_new : array or SciPy sparse matrix, shape (n_new, n_features)
        X_old_sample : array or SciPy sparse matrix, shape (n_old, n_features), optional
            Earlier rows, by default up to 10,000 rows that the fit has kept. A cluster with no rows
            in either sample is removed.
        old_ids : int array, shape (n_old,), optional
            Ids of the earlier rows, by default those of their predicted clusters. A row whose id is
            −1, or no longer exists, is treated as new.
        stickiness : float
            Penalty for moving an earlier row to another cluster, as a fraction of the largest fall
            of the objective by the move of one row.

        Returns
        -------
        self
            ``labels_`` are those of the earlier rows, then of the new ones: the last ``n_new``.
            ``changes_`` lists the clusters that were added, merged or removed, by their ids.
        """
        check_is_fitted(self)
        if self._is_precomputed or self._is_weighted:
            raise InvalidInputError(
                "update needs features, not affinity='precomputed', and counts every row once: "
                "after a fit with sample_weight, fit all rows again."
            )
        new_rows = self._check(X_new, reset=False)
        assigner, config = self.assigner_, self._config()
        if X_old_sample is not None:
            old_rows = self._check(X_old_sample, reset=False)
            labels = find_positions(self._names, assigner, old_rows, old_ids)
        elif self._kept is not None:
            old_rows, labels = self._kept
        else:
            raise InvalidInputError(
                "the rows of fit are not kept by save and partial_fit; pass earlier rows as "
                "X_old_sample."
            )
        found = update_rows(
            *(old_rows, labels, new_rows, assigner, config, self._names),
            n_neighbors=getattr(self, "n_neighbors_", None),
            balance_weight=self._balance_weight,
            stickiness=stickiness,
            device=choose_device(self.device),
            lazy=True,
        )
        rows = stack_rows(old_rows, new_rows)
        self._clear("balance_weight_", "n_neighbors_")
        self.n_clusters_ = len(found.names.ids)
        self._take_fit(rows, found.fit, config, RowIndex.of(row_keys(rows)))
        self._given_names, self.changes_ = found.names, found.changes
        return self

    def partial_fit(self, X: Any, y: Any = None) -> PRCut:  # noqa: ARG002, N803
        """Train further with the rows of X, one part of a stream.

        Neighbours are looked for among these rows: a fair sample, a few hundred at least. Clusters
        keep their numbers from call to call; ``labels_`` are those of the last call. Training
        continues where :meth:`fit`, :meth:`load` or the last call stopped.
        """
        if self._is_precomputed or self.outliers is not None:
            raise InvalidInputError(
                "partial_fit needs features, not affinity='precomputed', and keeps no rows to "
                "compare outliers with."
            )
        config = replace(self._config(), solver="train")
        before = self._start() if hasattr(self, "_start") else None
        rows = self._check(X, reset=before is None)
        scales = choose_scales(rows, config) if before is None else before.assigner.column_scales
        used = getattr(self, "n_neighbors_", None)
        graph = build_neighbor_graph(divide_columns(rows, scales), used, config)
        start = train_further(rows, graph, config, before, choose_device(self.device), scales)
        self._clear("_given_names", "n_neighbors_")
        self._start = Lazy.of(start)
        ranked = predict.rank_clusters(start.assigner, rows)
        self.labels_, self.clusters_ = ranked.labels, ranked.labels.copy()
        self.probabilities_, self.n_clusters_ = ranked.confidence, config.n_clusters
        self.layer_sizes_ = [config.n_clusters]
        self.cluster_stability_, self.changes_ = None, ()
        return self

    def predict(self, X: Any, level: int = 0) -> np.ndarray:  # noqa: N803
        """Return the cluster of every row of X, int64, shape (n_samples,), in one of the layers.

        Rows of ``fit`` keep their labels; the assigner labels all others. With
        ``affinity="precomputed"``, X are the similarities of new rows to those of ``fit``, shape
        (n_samples, n_samples_of_fit).
        """
        rows, seen = self._read(X)
        names, is_new = self._layers.names(level), seen < 0
        labels = np.empty(len(seen), np.int64)
        if not is_new.all():
            known = self.labels_[seen[~is_new]]
            labels[~is_new] = np.where(known < 0, -1, names[known])
        if is_new.any():  # else nothing needs to be distilled
            assigner, rows = self.assigner_, rows[np.flatnonzero(is_new)]
            clusters = names[predict.assign_labels(assigner, rows)]
            rows = subtract_origin(rows, assigner.far_origin)
            labels[is_new] = self._reject_outliers(rows, clusters, assigner.column_scales)
        return labels

    def predict_proba(self, X: Any, level: int = 0) -> np.ndarray:  # noqa: N803
        """Return the cluster probabilities, float32, shape (n_samples, n_clusters), in a layer.

        They are learned from independent restarts and neighbours, as ``probabilities_`` are.
        """
        rows, seen = self._read(X)
        probs = predict.assign_probs(self.assigner_, rows)
        if (old := np.flatnonzero(seen >= 0)).size:  # a loaded model may have no labels
            known = self.clusters_[seen[old]], self.probabilities_[seen[old]]
            probs[old] = predict.keep_labels(probs[old], *known)
        return self._layers.sum_probs(probs, level)

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the bottleneck's activations, or the logits of the clusters without one."""
        rows, _ = self._read(X)
        return predict.represent_rows(self.assigner_, rows)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """Return how much better than chance X is cut, without labels: 1 is perfect, 0 is chance.

        ``1 - J / (n_clusters - 1)``, where J is the objective of the predicted labels on the
        neighbour graph of X and ``n_clusters - 1`` its value for labels drawn at random.
        """
        rows, seen = self._read(X)
        if self.n_clusters_ == 1:
            return 0.0
        graph = self._graph(X, rows)
        labels = predict.assign_labels(self.assigner_, rows)
        if (seen >= 0).any():
            labels[seen >= 0] = self.clusters_[seen[seen >= 0]]
        score = score_labels(graph, labels, self.n_clusters_, self._balance_weight)
        return 1 - score.objective / (self.n_clusters_ - 1)

    def score_outliers(self, X: Any) -> OutlierScores:  # noqa: N803
        """Score how far the rows of X lie from clusters, or between them.

        This needs a fit with ``outliers``, which may be 0; p-values are compared with it.
        """
        rows, _ = self._read(X)
        if self._exemplars is None:
            raise InvalidInputError("score_outliers needs a fit with outliers=0 or more.")
        near = subtract_origin(rows, self.assigner_.far_origin)
        return self._exemplars.score(comparable(near, self.assigner_.column_scales, self.metric))

    def explain(self, rows: Any) -> Reasons:
        r"""Return why rows of the fit, given by their numbers, are in their clusters.

        ``print("\n".join(model.explain([0, 1]).explain()))`` says it in words, with the clusters'
        ids. An outlier is explained by the cluster that it would be in.
        """
        check_is_fitted(self)
        if self._reasons is None:
            raise InvalidInputError(
                "explain needs a fit in memory, or one that was saved after it: partial_fit and "
                "runs keep no graph; use `prcut explain` for a run."
            )
        reasons = self._reasons().take(check_rows(rows, len(self.labels_)))
        return reasons.named(self.cluster_ids_)

    def inspect(self, X: Any, **options: Any) -> Inspection:  # noqa: N803
        """Measure the predictions for X: labels, confidence, sizes, cut, map.

        Options are ``only`` ("map" needs no graph, "cut" makes no map), ``seed`` of the map, and
        ``on_progress``. :func:`prcut.ui.inspect_run` returns the same for a run folder.
        """
        from prcut.ui.report.inspection import inspect_fitted

        rows, _ = self._read(X)
        graph = None if options.get("only") == "map" else self._graph(X, rows)
        return inspect_fitted(self, self._config(), self.assigner_, rows, graph, **options)

    def report(self, path: str | Path, X: Any, **options: Any) -> None:  # noqa: N803
        """Write the predictions for X, the rows of ``fit`` or others, as one HTML file.

        Options are ``texts``, ``images`` and ``labels`` of the rows: see
        :func:`prcut.ui.write_report`.
        """
        from prcut.ui.report.report import write_report

        write_report(self, path, data=X, **options)

    def save(self, path: str | Path) -> None:
        """Save as a folder of safetensors and JSON, which :meth:`load` reads on any machine.

        ``model.safetensors`` and ``config.json`` are all that prediction needs; labels and history
        are in ``fit.safetensors``. A ``similarity`` that is a function is not saved.
        """
        check_is_fitted(self)
        saved_fit.save_estimator(path, self)

    @classmethod
    def load(cls, path: str | Path) -> PRCut:
        """Load a model that :meth:`save` saved, or a finished run of ``prcut fit``.

        For a run, ``labels_`` are those of its partition, if stored, with −1 for outliers where
        labels were written. The folder ``model`` of a run holds its model alone.
        """
        return open_run(path, cls) if is_run(path) else saved_fit.load_estimator(path, cls)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the files for prediction to the Hugging Face Hub; return the commit's URL.

        Labels and history are not uploaded. Options are ``private``, ``token`` and ``message``.
        """
        self._check_has_features()
        return saved_fit.push_estimator(self, repo_id, **options)

    @classmethod
    def from_pretrained(cls, repo_id: str, **options: Any) -> PRCut:
        """Load a model from the Hugging Face Hub, or from a folder."""
        loaded = hub.load_from_hub(repo_id, **options)
        return saved_fit.make_estimator(saved_fit.parse_fit(loaded), cls)

    def export_onnx(self, path: str | Path) -> None:
        """Write the assigner, with its softmax, as an ONNX file."""
        self._check_has_features()
        onnx_export.export_onnx(path, self.assigner_)

    # -- fitted attributes that are computed -----------------------------------------------------

    @property
    def history_(self) -> History:
        """Steps of the search, and records of training if the assigner has been made."""
        records = self._start().state.history if self._start.is_made else {}
        return History(records, steps=self._steps)

    @property
    def assigner_(self) -> Assigner:
        """The assigner that was distilled or trained."""
        return self._start().assigner

    @property
    def n_steps_(self) -> int:
        """Number of training steps of the assigner."""
        return self._start().state.step

    @property
    def cluster_ids_(self) -> np.ndarray:
        """Id of every cluster; ``cluster_ids_[labels_]`` are comparable from week to week."""
        return self._names.ids

    @property
    def cluster_layers_(self) -> list[np.ndarray]:
        """Labels of the rows of ``fit`` in every layer, the finest first; −1 stays −1."""
        return self._layers.labels(self.labels_)

    @property
    def cluster_tree_(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """The clusters in every cluster of the layer above, as (layer, cluster); the root is last.

        ``{(1, 0): [(0, 0), (0, 3)], …, (n_layers, 0): […]}``
        """
        return self._layers.tree()

    # -- what is fitted -----------------------------------------------------------------------

    labels_: np.ndarray
    clusters_: np.ndarray
    probabilities_: np.ndarray
    cluster_stability_: np.ndarray | None
    changes_: tuple[Change, ...]
    _start: Lazy[Start]
    _steps: tuple[Step, ...] = ()
    # None where clusters have the ids of a first fit
    _given_names: ClusterIds | None = None
    # rows to compare others with, where outliers are rejected
    _exemplars: Exemplars | None = None
    # up to 10,000 rows, with their clusters, for the next update
    _kept: tuple[Any, np.ndarray] | None = None
    # the rows of the fit, None after partial_fit
    _seen: RowIndex | None = None
    _reasons: Lazy[Reasons] | None = None
    _is_weighted: int = 0
    # rows for a matrix of similarities
    _graph_features: np.ndarray

    def _take_fit(
        self,
        rows: Any,
        fit: Fit,
        config: FitConfig,
        seen: RowIndex,
        weights: np.ndarray | None = None,
    ) -> None:
        """Set the attributes that a fit of these rows gives."""
        self._start, self._steps, self._seen = fit.start, fit.steps, seen
        self.cluster_stability_, self.changes_ = fit.stability, ()
        self.labels_, self.clusters_ = fit.labels, fit.labels.copy()
        self.objective_, self.ratio_cut_ = fit.score.objective, fit.score.ratio_cut
        self.merge_tree_, self.layer_sizes_ = fit.score.merge_tree, [self.n_clusters_]
        if self.outliers is not None:
            near = subtract_origin(rows, fit.origin)
            self._exemplars = Exemplars.draw(near, fit.labels, fit.scales, config)
            self.labels_ = self._reject_outliers(near, fit.labels, fit.scales)
        self.probabilities_ = fit.probabilities * (self.labels_ >= 0)
        if not self._is_precomputed:
            self._kept = keep_some(rows, self.clusters_, config.seed)
        found = self.clusters_, self.n_clusters_, fit.balance_weight
        self._reasons = Lazy(partial(find_reasons, fit.graph, *found, weights=weights))
        self._is_weighted = int(weights is not None)

    def _reject_outliers(self, rows: Any, labels: np.ndarray, scales: Any) -> np.ndarray:
        """Label outliers −1."""
        if not self.outliers or self._exemplars is None:
            return labels
        rule = OutlierRule(self._exemplars, self.outliers, scales, self.metric)
        return np.where(rule.rejects(rows), -1, labels)

    def _clear(self, *kept: str) -> None:
        """Remove all attributes of an earlier fit but those named."""
        fitted = [
            name for name in vars(self) if name.endswith("_") or name in PRCut.__annotations__
        ]
        for name in {*fitted}.difference(kept, _OF_INPUT):
            delattr(self, name)

    @property
    def _names(self) -> ClusterIds:
        return self._given_names or ClusterIds.first(self.n_clusters_)

    @property
    def _layers(self) -> Layers:
        return Layers(self.layer_sizes_, getattr(self, "merge_tree_", None))

    # -- what is given ------------------------------------------------------------------------

    @property
    def _is_precomputed(self) -> bool:
        check_choice("affinity", self.affinity, ("nearest_neighbors", "precomputed"))
        return self.affinity == "precomputed"

    def _config(self, n_clusters: Any = None, *layer_sizes: int) -> FitConfig:
        """Return the parameters that decide a fit; the others are the estimator's own."""
        given = self.get_params(deep=False)
        for name in ("affinity", "store_probs", "device", "verbose"):
            del given[name]
        if n_clusters is None:
            n_clusters = getattr(self, "n_clusters_", self.n_clusters)
        seed = int(check_random_state(given.pop("random_state")).randint(2**31 - 1))
        given["hidden"] = None if self.hidden is None else tuple(self.hidden)
        given["n_clusters"] = n_clusters
        return FitConfig.of(seed=seed, layer_sizes=layer_sizes, **given)

    def _check(self, X: Any, *, reset: bool) -> Any:  # noqa: N803
        """Check X as scikit-learn does; copy it only where its dtype must change."""
        return validate_data(
            self,
            as_rows(X),
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float32, np.float64, np.float16],
            ensure_min_samples=2 if reset else 1,
        )

    def _graph(self, X: Any, rows: Any) -> SimilarityGraph:  # noqa: N803
        """Build the graph of some rows, with the neighbours and units that ``fit`` used."""
        if self._is_precomputed:
            return SimilarityGraph.from_scipy(X)
        rows = divide_columns(rows, self.assigner_.column_scales)
        return build_neighbor_graph(rows, getattr(self, "n_neighbors_", None), self._config())

    @property
    def _balance_weight(self) -> float:
        return float(getattr(self, "balance_weight_", self._config().training_balance))

    def _read(self, X: Any) -> tuple[Any, np.ndarray]:  # noqa: N803
        """Check X; return the rows that the assigner reads, and the equal rows of the fit, or −1.

        A row of similarities is the mean of its neighbours, as in :func:`graph_features`.
        """
        check_is_fitted(self)
        rows = self._check(X, reset=False)
        seen = np.full(rows.shape[0], -1) if self._seen is None else self._seen.find(rows)
        if self._is_precomputed:
            degree = np.asarray(rows.sum(1)).reshape(-1, 1)
            rows = (rows @ self._graph_features) / np.maximum(degree, np.finfo(np.float32).tiny)
        return rows, seen

    def _check_has_features(self) -> None:
        check_is_fitted(self)
        if self._is_precomputed:
            raise InvalidInputError(
                "affinity='precomputed' predicts by the rows of fit, which cannot be exported; "
                "use save."
            )

    # -- what scikit-learn asks -----------------------------------------------------------------

    def __dir__(self) -> list[str]:
        # scikit-learn reads all attributes listed here, which must not distil the assigner
        hidden = () if "_start" in vars(self) and self._start.is_made else _OF_START
        return [name for name in object.__dir__(self) if name not in hidden and hasattr(self, name)]

    def _html_repr(self) -> str:
        """Return scikit-learn's diagram with the results below it."""
        diagram = str(super()._html_repr())
        return diagram + results_html(self) if hasattr(self, "labels_") else diagram

    @property
    def _n_features_out(self) -> int:
        return int(self.bottleneck or self.n_clusters_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.affinity == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float32"]
        # scikit-learn's checks look for them wherever there is predict_proba
        tags.classifier_tags = ClassifierTags()
        return tags
