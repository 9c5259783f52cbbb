"""Follow data that come week by week: clusters keep their ids, unless the objective pays for it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_is_fitted

from prcut.errors import InvalidInputError
from prcut.graph.row_index import RowIndex, row_keys
from prcut.graph.rows import as_features, divide_columns, subtract_origin
from prcut.pipeline.choose import build_neighbor_graph
from prcut.pipeline.cluster_ids import ClusterIds
from prcut.pipeline.config import FitConfig
from prcut.pipeline.fit import Fit, distil_votes
from prcut.pipeline.known import refuse_known
from prcut.pipeline.score import score_labels
from prcut.pipeline.starts import Lazy
from prcut.runtime.device import choose_device
from prcut.runtime.progress import Step
from prcut.search.explain import Reasons, find_reasons
from prcut.search.follow import Change, follow
from prcut.search.votes import Votes
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels

# rows of a fit that the next update compares new rows with
_KEPT_ROWS = 10_000


class Update(NamedTuple):
    """A fit that continues another.

    Attributes
    ----------
    fit : Fit
        Of the earlier rows, then the new ones.
    names : ClusterIds
    changes : tuple of Change
        Births, merges and deaths, with ids in place of the clusters' numbers.
    n_renamed : int
        Earlier rows that have another id than before.
    """

    fit: Fit
    names: ClusterIds
    changes: tuple[Change, ...]
    n_renamed: int


def update_rows(
    old_rows: Any,
    old_labels: np.ndarray,
    new_rows: Any,
    assigner: Assigner,
    config: FitConfig,
    names: ClusterIds,
    *,
    n_neighbors: int | None,
    balance_weight: float,
    stickiness: float = 0.1,
    device: Any = "cpu",
    lazy: bool = False,
) -> Update:
    """Continue a fit with new rows.

    Parameters
    ----------
    old_rows, new_rows : arrays or SciPy sparse matrices, shape (n_rows, n_features)
    old_labels : int64 array, shape (n_old_rows,)
        Clusters of the earlier rows, −1 where they are not known.
    assigner : Assigner
        Of the earlier fit; it says where rows without a cluster begin.
    config : FitConfig
        Of the earlier fit.
    names : ClusterIds
        Of the earlier clusters.
    n_neighbors : int or None
    balance_weight : float
        Of the earlier fit.
    stickiness : float
        See :func:`prcut.search.follow.follow`.
    device : device or str
    lazy : bool
        See :func:`prcut.pipeline.fit.fit_rows`.
    """
    if not 0 <= stickiness < 1:
        raise InvalidInputError(f"{stickiness=} must be at least 0 and below 1.")
    refuse_known(config, "update, which counts rows alike and leaves sizes free")
    rows = stack_rows(old_rows, new_rows)
    before = np.concatenate([old_labels, np.full(new_rows.shape[0], -1)])
    first = before.copy()
    first[before < 0] = assign_labels(assigner, rows[before < 0])
    scales, origin = assigner.column_scales, assigner.far_origin
    rows = subtract_origin(rows, origin)
    graph = build_neighbor_graph(divide_columns(rows, scales), n_neighbors, config)
    cost = {"balance_weight": balance_weight, "stickiness": stickiness}
    found = follow(graph, first, before >= 0, config.n_clusters, **cost)

    n_given = names.n_given + found.n_numbers - config.n_clusters
    named = np.concatenate([names.ids, np.arange(names.n_given, n_given)])
    used, labels = np.unique(found.labels, return_inverse=True)
    labels = labels.reshape(-1)
    config = replace(config, n_clusters=len(used))
    votes = Votes.of(graph, labels, (), len(used))
    features = as_features(divide_columns(rows, scales))
    options = config, device, None, None
    start = distil_votes(features, votes, balance_weight, options, scales, lazy, origin=origin)
    score = score_labels(graph, labels, len(used), balance_weight)
    fit = Fit(start, labels, *score, balance_weight, "search", n_neighbors, (), votes.shares())
    fit = fit._replace(scales=scales, graph=graph, origin=origin)
    ids = [*named.tolist(), -1]  # no other is -1, and so the last
    changes = tuple(
        one._replace(cluster=ids[one.cluster], other=ids[one.other]) for one in found.changes
    )
    n_renamed = int(((before >= 0) & (found.labels != before)).sum())
    return Update(fit, ClusterIds(named[used], n_given), changes, n_renamed)


def stack_rows(*parts: Any) -> Any:
    """Return the rows of all parts, sparse where one is."""
    if any(scipy.sparse.issparse(part) for part in parts):
        return scipy.sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


class UpdateMixin:
    """Gives an estimator ``update`` and ``explain``, and ids that clusters keep.

    A fit keeps its graph until it is first explained or saved, and up to 10,000 of its rows, which
    are not saved.
    """

    _names: ClusterIds
    _kept: tuple[Any, np.ndarray] | None
    _seen: RowIndex | None
    _reasons: Lazy[Reasons] | None
    changes_: tuple[Change, ...]
    _steps: tuple[Step, ...]

    @property
    def cluster_ids_(self) -> np.ndarray:
        """The id of every cluster; ``cluster_ids_[labels_]`` stay the same from week to week."""
        return self._names.ids

    def update(
        self: Any,
        X_new: Any,  # noqa: N803
        X_old_sample: Any = None,  # noqa: N803
        *,
        old_ids: Any = None,
        stickiness: float = 0.1,
    ) -> Any:
        """Continue the fit with new rows; clusters keep their ids, and may be born, merge or die.

        Parameters
        ----------
        X_new : array or SciPy sparse matrix, shape (n_new, n_features)
        X_old_sample : array or SciPy sparse matrix, shape (n_old, n_features), optional
            Earlier rows, such as those of the last weeks: a cluster of which neither these nor the
            new rows have any dies. By default up to 10,000 rows that the fit has kept.
        old_ids : int array, shape (n_old,), optional
            The ids that ``X_old_sample`` had, by default what :meth:`predict` says of them.
            Rows of −1, or of a cluster that is no more, count as new.
        stickiness : float
            What an earlier row pays to leave its cluster, as a fraction of what the objective
            falls at most when a row moves.

        Returns
        -------
        self
            ``labels_`` are those of the earlier rows, then of the new ones: the last ``n_new``.
            ``changes_`` says which clusters were born, merged or died, by their ids.
        """
        check_is_fitted(self)
        if self._is_precomputed or getattr(self, "_is_weighted", 0):
            raise InvalidInputError(
                "update needs features, not affinity='precomputed', and counts every row once: "
                "after a fit with sample_weight, fit all rows anew."
            )
        new_rows = self._check(X_new, reset=False)
        assigner, config = self.assigner_, self._config()
        if X_old_sample is None:
            if self._kept is None:
                raise InvalidInputError(
                    "the rows of fit are not kept by save and partial_fit; pass earlier rows as "
                    "X_old_sample."
                )
            old_rows, labels = self._kept
        else:
            old_rows = self._check(X_old_sample, reset=False)
            labels = self._find_labels(assigner, old_rows, old_ids)
        found = update_rows(
            *(old_rows, labels, new_rows, assigner, config, self._names),
            n_neighbors=getattr(self, "n_neighbors_", None),
            balance_weight=getattr(self, "balance_weight_", config.training_balance),
            stickiness=stickiness,
            device=choose_device(self.device),
            lazy=True,
        )
        fit, rows = found.fit, stack_rows(old_rows, new_rows)
        self._clear("balance_weight_", "n_neighbors_")
        # they are, of rows in memory
        assert fit.labels is not None and fit.probabilities is not None  # noqa: S101, PT018
        self.n_clusters_ = len(found.names.ids)
        self.clusters_ = fit.labels.copy()
        self.objective_, self.ratio_cut_ = fit.objective, fit.ratio_cut
        near = subtract_origin(rows, fit.origin)
        self.labels_ = self._refuse_of_fit(near, fit.labels, fit.scales, config)
        self.probabilities_ = fit.probabilities * (self.labels_ >= 0)
        self._start, self._steps, self.merge_tree_ = fit.start, (), fit.merge_tree
        self._set_layers(None, None)
        self._keep_fit(rows, fit, config.seed)
        self._seen = RowIndex.of(row_keys(rows))
        self._names, self.changes_ = found.names, found.changes
        return self

    def explain(self: Any, rows: Any) -> Reasons:
        r"""Say why rows of the fit, given by their numbers, are in their clusters.

        ``print("\n".join(model.explain([0, 1]).explain()))`` says it in words, with the clusters'
        ids. Of rows labelled −1 it is the cluster that they would be in.
        """
        check_is_fitted(self)
        if self._reasons is None:
            raise InvalidInputError(
                "explain needs a fit in memory, or one that was saved after it: partial_fit and "
                "runs keep no graph; use `prcut explain` for a run."
            )
        rows, n_samples = np.atleast_1d(np.asarray(rows)), len(self.labels_)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or (rows.size and rows.min() < 0):
            raise InvalidInputError("rows must be numbers of rows, counted from 0.")
        if rows.size and rows.max() >= n_samples:
            raise InvalidInputError(f"rows has {rows.max()}, the fit had {n_samples=} rows.")
        reasons: Reasons = self._reasons().take(rows)
        return reasons.named(self.cluster_ids_)

    def _keep_fit(
        self: Any, rows: Any, fit: Fit, seed: int, weights: np.ndarray | None = None
    ) -> None:
        """Keep what ``update`` and ``explain`` need; the clusters have their first ids."""
        n_clusters, n_samples = self.n_clusters_, rows.shape[0]
        self._forget_fit(n_clusters)
        self._names = ClusterIds.first(n_clusters)
        if not self._is_precomputed:
            drawn = np.arange(n_samples)
            if n_samples > _KEPT_ROWS:
                rng = np.random.default_rng([seed, 4])
                drawn = np.sort(rng.choice(n_samples, _KEPT_ROWS, replace=False))
            self._kept = rows[drawn], self.clusters_[drawn]
        assert fit.graph is not None  # noqa: S101
        rest = self.clusters_, n_clusters, fit.balance_weight
        self._reasons = Lazy(partial(find_reasons, fit.graph, *rest, weights=weights))
        self._is_weighted = int(weights is not None)

    def _forget_fit(self, n_clusters: int) -> None:
        """Forget the rows and the graph of a fit, if there was one; its clusters keep their ids."""
        self._names = getattr(self, "_names", ClusterIds.first(n_clusters))
        self.changes_, self._kept, self._reasons = (), None, None

    def _find_labels(self: Any, assigner: Assigner, rows: Any, ids: Any) -> np.ndarray:
        """Return the clusters of earlier rows, by their ids where these are given."""
        if ids is None:
            return assign_labels(assigner, rows)
        ids = np.asarray(ids)
        if ids.shape != (rows.shape[0],) or ids.dtype.kind not in "iu":
            raise InvalidInputError(
                f"old_ids of shape {ids.shape} must be an integer for each of the "
                f"{rows.shape[0]} rows of X_old_sample."
            )
        return np.asarray(self._names.positions(ids.astype(np.int64)))
