"""The scikit-learn estimator: ``PRCut(n_clusters=10).fit_predict(X)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import ClassifierTags
from torch import Generator

from prcut.graph.build import PairSimilarity, Similarity
from prcut.graph.neighbors import Metric
from prcut.graph.row_index import RowIndex, row_keys
from prcut.graph.rows import subtract_origin
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.graph.smoothing import graph_features
from prcut.pipeline.choose import as_graph, choose_n_clusters
from prcut.pipeline.fit import fit_rows
from prcut.pipeline.known import Known
from prcut.pipeline.opened_run import RunMixin
from prcut.pipeline.prediction import PredictMixin
from prcut.pipeline.settings import Effort, Preset, Solver
from prcut.pipeline.stream import StreamMixin
from prcut.pipeline.update import UpdateMixin
from prcut.runtime.device import choose_device
from prcut.runtime.memory import release_memory
from prcut.training.assigner.predict import assign_probs
from prcut.ui.notebook import History, results_html
from prcut.ui.progress_bars import FitDisplay
from prcut.ui.report.inspection import Inspection


class PRCut(
    PredictMixin,
    UpdateMixin,
    StreamMixin,
    RunMixin,
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Cluster rows by the probabilistic ratio cut of their neighbour graph.

    A heuristic search looks for the lowest ratio cut of the graph with balanced sizes. A small
    neural assigner, which labels new rows, is distilled from it when first needed, from a copy of
    some 100,000 rows; or the assigner is trained on the expected ratio cut, as in the paper.

    Parameters
    ----------
    n_clusters : int, "auto" or (int, int)
        How many; ``"auto"`` finds where independent searches agree most, a pair within limits.
    preset : {"default", "paper-pixels", "paper-representations"}
        Where parameters left at None come from: ours, or the paper's and nothing beside them.
    n_neighbors : int, optional
        By default 15, or 50 or 100 where independent starts disagree with fewer.
    affinity : {"nearest_neighbors", "precomputed"}
        ``"precomputed"``: X is a symmetric matrix of similarities, dense or sparse.
    metric : {"euclidean", "cosine", "inner_product"}
        By which rows are neighbours; see the guide for columns of unlike units.
    similarity : {"mean", "binary", "self_tuning", "cosine"} or callable, optional
        Weight of an edge, ``"mean"`` by default: see :func:`prcut.build_graph`.
    solver : {"search", "train"}, optional
        Search the graph for the clusters (the default), or train the assigner on pairs.
    hidden : sequence of int, optional; widths of hidden layers, by default (256,)
    bottleneck : int, optional; width of one more, whose activations :meth:`transform` returns
    balance_weight : float, optional
        Price of an empty cluster, in units of what a cluster that ignores the graph adds to the
        cut; 0 leaves the sizes free. By default 0.3 or 0.01, whichever the graph supports.
    min_size, max_size : float, optional
        Rows of every cluster: numbers of them, or fractions of all below 1; ``max_size="equal"``
        makes sizes equal. ``labels_`` hold them exactly, :meth:`predict` about.
    walk_length : int, optional
        Steps along the edges between the rows of a pair, halved after every quarter of training.
    max_steps, batch_size, learning_rate : of training; see :class:`prcut.training.TrainConfig`
    effort : {"default", "fast", "best"}
        ``"fast"`` tries 15 neighbours and makes no starts; ``"best"`` makes sixteen, and
        trains one more of 20,000 rows or more.
    n_init : int, optional
        Starts, by default 4, or 1 of training's 16 heads; the lowest ``objective_`` is kept.
    outliers : float, optional
        Label rows that belong nowhere −1, at most this fraction of rows like those of ``fit``.
        10,000 of these are kept to compare with. 0 only scores: :meth:`score_outliers`.
    n_jobs : int, optional; threads of the search, by default torch's; labels stay the same
    refine : bool, optional; move single rows of a trained partition while ``objective_`` falls
    store_probs : bool; keep ``probs_`` of the training rows: ``fit`` distils
    random_state : int, RandomState or None
    device : str, such as ``"cpu"``; ``"auto"`` is CUDA or MPS where there is one
    precision : {"float32", "bfloat16"}; of the assigner's products in training
    verbose : bool; show the steps of the search, then a bar of training: ``fit`` distils

    Attributes
    ----------
    labels_ : int64 array, shape (n_samples,)
        The partition, with −1 for ``outliers``; ``clusters_`` has their clusters. :meth:`predict`
        gives rows of the same values these labels, and others what the assigner learned of them.
    probabilities_ : float32 array, shape (n_samples,)
        How sure a row's cluster is: .6, and .4 times the share of independent starts that put it,
        and its neighbours, there. 0 for outliers.
    objective_, ratio_cut_ : float
        Of ``labels_`` on the graph: :func:`prcut.numerics.hard_objective`, :func:`prcut.ratio_cut`.
    merge_tree_ : MergeTree
        How the clusters merge further; None where one is empty, or there are over 4,096.
    probs_ : float32 array, shape (n_samples, n_clusters), with ``store_probs``
    history_ : dict of arrays
        Per ten steps of training: the fields of :class:`prcut.training.Record`. ``history_.steps``
        says what the search did, in how many seconds, and the objective it reached.
    n_clusters_, balance_weight_, n_neighbors_ : int, float, int; what was given or chosen
    cluster_count_ : ClusterCount, where the number was not given
        The numbers that were tried, and how well searches agreed on each.
    cluster_stability_ : float64 array, shape (n_clusters,); how well starts find each again
    cluster_ids_ : int64 array, shape (n_clusters,); what the clusters keep being called
    changes_ : tuple of Change; births, merges and deaths in the last :meth:`update`
    layer_sizes_, cluster_layers_, cluster_tree_ : list of int, list of int64 arrays, dict
        Numbers of clusters of the layers, the finest first (one where the number was given), labels
        in every layer, and which clusters are in which.
    violated_links_ : int64 array, shape (n_violated, 2); pairs of ``cannot_link`` in one cluster
    assigner_, n_steps_ : Assigner, int
        What was distilled or trained, and in how many steps.

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
            Classes that are known, from 0, and −1: the clusters of these rows have their numbers.
        sample_weight : array, shape (n_samples,), optional
            How often a row counts: sizes are sums of weights, and so are cuts.
        must_link, cannot_link : int arrays, shape (n_pairs, 2), optional
            Rows that are in one cluster, and rows that should not be: ``violated_links_`` are.
        graph : SimilarityGraph or SciPy sparse matrix, shape (n_samples, n_samples), optional
            Used in place of the neighbours of X.
        """
        is_counted = isinstance(self.n_clusters, str | tuple | list)
        config = self._config(1 if is_counted else self.n_clusters)
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
            self.cluster_count_, found = choose_n_clusters(rows, graph, config, self.n_clusters)
            config = self._config(*self.cluster_count_.layers())
        self.n_clusters_ = config.n_clusters
        with FitDisplay(config, enabled=bool(self.verbose)) as display:
            options: dict[str, Any] = {"on_record": display.on_record, "on_step": display.on_step}
            options["lazy"] = not (self.store_probs or self.verbose)
            options |= {"device": device, "neighbors": found, "known": known}
            fit = fit_rows(rows, config, graph, **options)
        # they are, of rows in memory
        assert fit.labels is not None and fit.probabilities is not None  # noqa: S101, PT018
        self.clusters_ = fit.labels.copy()
        self.violated_links_ = (known or Known()).violated(fit.labels)
        self.objective_, self.ratio_cut_ = fit.objective, fit.ratio_cut
        near = subtract_origin(rows, fit.origin)
        self.labels_ = self._refuse_of_fit(near, fit.labels, fit.scales, config)
        self.probabilities_ = fit.probabilities * (self.labels_ >= 0)
        self._start, self._steps = fit.start, fit.steps
        self.merge_tree_, self.balance_weight_ = fit.merge_tree, fit.balance_weight
        self._set_layers(getattr(self, "cluster_count_", None), fit.stability)
        self._keep_fit(rows, fit, config.seed, (known or Known()).weights)
        self._seen = seen
        if fit.n_neighbors is not None:
            self.n_neighbors_ = fit.n_neighbors
        if self.store_probs:
            probs = assign_probs(fit.assigner, rows)
            self.probs_ = self._keep_labels(probs, np.arange(len(probs)))
        release_memory()
        return self

    @property
    def history_(self) -> History:
        """What the search did, and the training records of the start that was kept, if any yet."""
        records = self._start().state.history if self._start.is_made else {}
        return History(records, steps=getattr(self, "_steps", ()))

    def inspect(self, X: Any, **options: Any) -> Inspection:  # noqa: N803
        """Measure what :meth:`predict` makes of X: labels, confidence, sizes, cut, map.

        Options are ``only`` ("map" needs no graph, "cut" makes no map), ``seed`` of the map, and
        ``on_progress``. :func:`prcut.ui.inspect_run` returns the same for a run folder.
        """
        from prcut.ui.report.inspect_rows import inspect_fitted

        assigner, rows = self._ready(X)
        config = self._config()
        graph = None
        if options.get("only") != "map":
            graph = self._graph(X, rows, config, assigner.column_scales)
        return inspect_fitted(self, config, assigner, rows, graph, **options)

    def report(self, path: str | Path, X: Any, **options: Any) -> None:  # noqa: N803
        """Write what :meth:`predict` makes of X, the rows of ``fit`` or others, as one HTML file.

        Options are ``texts``, ``images`` and ``labels`` of the rows: see
        :func:`prcut.ui.write_report`.
        """
        from prcut.ui.report.report import write_report

        write_report(self, path, data=X, **options)

    def _html_repr(self) -> str:
        """Show scikit-learn's diagram in a notebook, and below it the results."""
        diagram = str(super()._html_repr())
        return diagram + results_html(self) if hasattr(self, "labels_") else diagram

    @property
    def _n_features_out(self) -> int:
        return int(self.bottleneck or getattr(self, "n_clusters_", self.n_clusters))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.affinity == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float32"]
        # scikit-learn's checks look for them wherever there is predict_proba
        tags.classifier_tags = ClassifierTags()
        return tags
