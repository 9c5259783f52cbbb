"""Continue a fit with new rows: clusters keep their ids unless a change lowers the objective."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from prcut.errors import InvalidInputError
from prcut.fit.assign import distil_votes
from prcut.fit.choose import build_neighbor_graph
from prcut.fit.clusters import ClusterIds, score_labels
from prcut.fit.config import FitConfig
from prcut.fit.fit import Fit
from prcut.fit.known import refuse_known
from prcut.graph.rows import as_features, divide_columns, subtract_origin
from prcut.search.follow import Change, follow
from prcut.search.votes import Votes
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels


class Update(NamedTuple):
    """A fit that continues another.

    Attributes
    ----------
    fit : Fit
        Of the earlier rows, then the new ones.
    names : ClusterIds
    changes : tuple of Change
        Clusters added, merged and removed, with ids in place of the clusters' numbers.
    n_renamed : int
        Number of earlier rows whose id changed.
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
        Of the earlier fit; it gives rows without a cluster their first one.
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
        See :func:`prcut.fit.fit.fit_rows`.
    """
    if not 0 <= stickiness < 1:
        raise InvalidInputError(f"{stickiness=} must be at least 0 and below 1.")
    refuse_known(config, "update, which gives rows equal weight and leaves sizes free")
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
    how = {"device": device, "scales": scales, "origin": origin}
    fit = Fit(
        distil_votes(features, votes, config, balance_weight, lazy=lazy, **how),
        labels,
        score_labels(graph, labels, len(used), balance_weight),
        balance_weight,
        graph,
        votes.shares(),
        n_neighbors=n_neighbors,
        scales=scales,
        origin=origin,
    )
    ids = [*named.tolist(), -1]  # a change without another cluster has other=-1: the last id
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


def find_positions(names: ClusterIds, assigner: Assigner, rows: Any, ids: Any) -> np.ndarray:
    """Return the clusters of earlier rows, by their ids where these are given."""
    if ids is None:
        return assign_labels(assigner, rows)
    ids = np.asarray(ids)
    if ids.shape != (rows.shape[0],) or ids.dtype.kind not in "iu":
        raise InvalidInputError(
            f"old_ids of shape {ids.shape} must be an integer for each of the "
            f"{rows.shape[0]} rows of X_old_sample."
        )
    return np.asarray(names.positions(ids.astype(np.int64)))
