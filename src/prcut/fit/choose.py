"""Choose the number of neighbours, the units and the number of clusters, without labels."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from prcut.errors import InvalidInputError, check_positive_int, warn_of
from prcut.fit.config import FitConfig
from prcut.graph.build import build_graph, link_neighbors, warn_of_data
from prcut.graph.neighbors import Neighbors, find_neighbors
from prcut.graph.rows import as_rows, column_scales, divide_columns
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runtime.progress import StepLog
from prcut.search.balance import N_RESAMPLES, Resampled, choose_balance
from prcut.search.count import ClusterCount, count_clusters
from prcut.search.fragments import as_coarse
from prcut.search.levels import contract_levels

_LOG = logging.getLogger(__name__)

# numbers of neighbours to try
_FEW_TO_MANY = (15, 50, 100)
# partitions of resampled graphs agree from this mean adjusted Rand index on
_AGREE = 0.6
# resamples of a fast fit: two can be compared
_FAST_RESAMPLES = 2
# fraction of the true neighbours that a fast fit finds, and that other fits find
_FAST_RECALL = 0.95
_RECALL = 0.98
# neighbours with which clusters are counted: the fewer where degrees are even
_COUNTED = (10, 30)
# degrees are even where their deviation is at most this fraction of their mean
_EVEN = 1 / 3


class ChosenGraph(NamedTuple):
    """A graph to cluster, with the partitions of its resamples if it was chosen by them."""

    graph: SimilarityGraph
    n_neighbors: int | None = None  # None where the caller gave the graph
    resampled: Resampled | None = None  # of the groups that a large graph is contracted to
    scales: np.ndarray | None = None  # what the columns were divided by


def choose_n_clusters(
    rows: Any, graph: SimilarityGraph | None, config: FitConfig, wanted: Any
) -> tuple[ClusterCount, Neighbors | None]:
    """Find the number of clusters, ``"auto"`` or within two limits, by the agreement of searches.

    Neighbours are 10 where degrees are even and 30 elsewhere. The neighbours that were found are
    returned for the fit.
    """
    limits = [] if wanted == "auto" else wanted
    if isinstance(limits, str) or len(limits) not in (0, 2):
        raise InvalidInputError(
            f"n_clusters={wanted!r} must be a whole number, 'auto', or the least and most to try."
        )
    least, most = map(partial(check_positive_int, "n_clusters"), limits) if limits else (1, None)
    if most is not None and not least <= most <= rows.shape[0]:
        raise InvalidInputError(
            f"n_clusters={wanted!r} must rise, to at most n_samples={rows.shape[0]}."
        )
    found = None
    if graph is None:
        rows = as_rows(divide_columns(rows, _scales(rows, config)))
        most_neighbors = rows.shape[0] - 1
        few, many = (min(config.n_neighbors or number, most_neighbors) for number in _COUNTED)
        found = _find_neighbors(rows, many, config)
        graph = link_neighbors(found.nearest(few), rows, config.similarity)
        deviation, mean = torch.std_mean(graph.degree.double(), correction=0)
        if deviation / mean > _EVEN:
            graph = link_neighbors(found, rows, config.similarity)
    count = count_clusters(graph, least, most, seed=config.seed, n_jobs=config.n_threads)
    _LOG.info("%d clusters: searches agree to %.2f", count.n_clusters, count.agreement.max())
    if count.n_clusters == 1:
        text = (
            "independent searches found nothing in common for any number of clusters "
            f"(agreement at most {count.agreement.max():.2f}): all rows are one cluster; give "
            "n_clusters as a number to divide them nevertheless."
        )
        warn_of(text)
    return count, found


def choose_scales(rows: Any, config: FitConfig) -> np.ndarray | None:
    """Return divisors of the columns, with a warning; None where columns are compared as they are.

    Columns stay as they are for the paper's settings, for metrics other than the Euclidean, and for
    callable similarities.
    """
    scales = _scales(rows, config)
    if scales is not None:
        text = (
            "a few columns hold nearly all the variance, so all were divided by their "
            "standard deviations; give graph=prcut.build_graph(X) to keep their units."
        )
        warn_of(text)
    return scales


def _scales(rows: Any, config: FitConfig) -> np.ndarray | None:
    is_plain = config.metric == "euclidean" and not callable(config.similarity)
    return column_scales(rows, config.seed) if config.standardize and is_plain else None


def choose_graph(
    rows: Any, config: FitConfig, log: StepLog | None = None, found: Neighbors | None = None
) -> ChosenGraph:
    """Return the sparsest graph whose resamples have similar partitions, with the partitions.

    The balance weight is chosen first, on the graph with the fewest neighbours, which follows the
    shape of clusters most closely. With that weight, more neighbours are tried where the partitions
    of resampled edges disagree. If they always disagree, the largest number is taken, since it
    averages most. ``solver="train"`` has no partitions to compare: see :func:`choose_n_neighbors`.
    Only ``config.n_neighbors`` is tried if given; neighbours that were ``found`` are used again.
    """
    log = StepLog() if log is None else log
    n_samples, scales = rows.shape[0], choose_scales(rows, config)
    rows = divide_columns(rows, scales)
    if config.solver == "train":
        n_neighbors = config.n_neighbors or choose_n_neighbors(n_samples, config.n_clusters)
        graph = build_neighbor_graph(rows, n_neighbors, config)
        return ChosenGraph(graph, n_neighbors, scales=scales)
    rows = as_rows(rows)
    to_try = _neighbors_to_try(n_samples, config)
    # the fewest are the nearest of the next number, which is often needed as well
    at_once = to_try[:2][-1]
    for n_neighbors in to_try:
        if found is None or n_neighbors > found.indices.shape[1]:
            found = _find_neighbors(rows, max(n_neighbors, at_once), config)
        graph = link_neighbors(found.nearest(n_neighbors), rows, config.similarity)
        log(f"{n_neighbors} neighbours")
        resampled = resample(graph, config)
        # the weight of the fewest neighbours serves all others
        config = replace(config, balance_weight=resampled.balance_weight)
        agreement = resampled.agreement
        log(f"{n_neighbors} neighbours: resamples agree to {agreement:.2f}")
        if agreement >= _AGREE:
            break
    assert found is not None  # noqa: S101
    warn_of_data(rows, graph, found, config.similarity, config.n_clusters)
    return ChosenGraph(graph, n_neighbors, resampled, scales)


def resample(graph: SimilarityGraph, config: FitConfig) -> Resampled:
    """Search resamples of a graph, or of the groups that a large one is contracted to."""
    levels = contract_levels(as_coarse(graph), config.n_clusters, seed=config.seed)
    return choose_balance(
        levels.graphs[-1],
        config.n_clusters,
        balance_weight=config.balance_weight,
        n_resamples=_FAST_RESAMPLES if config.effort == "fast" else N_RESAMPLES,
        seed=config.seed,
        n_jobs=config.n_threads,
    )


def _find_neighbors(rows: Any, n_neighbors: int, config: FitConfig) -> Neighbors:
    _LOG.info("finding %d neighbours of %s rows", n_neighbors, f"{rows.shape[0]:,}")
    recall = _FAST_RECALL if config.effort == "fast" else _RECALL
    return find_neighbors(rows, n_neighbors, metric=config.metric, recall=recall, seed=config.seed)


def build_neighbor_graph(rows: Any, earlier: int | None, config: FitConfig) -> SimilarityGraph:
    """Build the graph of the configured neighbours, or else of those an earlier fit had.

    Where there was no earlier fit, their number depends on the rows.
    """
    n_neighbors = config.n_neighbors
    if n_neighbors is None:
        n_neighbors = earlier or choose_n_neighbors(rows.shape[0], config.n_clusters)
        n_neighbors = max(1, min(n_neighbors, rows.shape[0] - 1))
    _LOG.info("finding %d neighbours of %s rows", n_neighbors, f"{rows.shape[0]:,}")
    return build_graph(
        rows,
        n_neighbors,
        metric=config.metric,
        similarity=config.similarity,
        max_components=config.n_clusters,
        seed=config.seed,
    )


def choose_n_neighbors(n_samples: int, n_clusters: int) -> int:
    """Return the default number of neighbours of training: a tenth of a cluster, within limits.

    It is at most 150, the best for images; at most 20 million links in all (or 15 per row), which
    keeps the graph near a gigabyte; at least 10, and below ``n_samples``.

    >>> sizes = (50, 3), (13_000, 77), (60_000, 10), (10**7, 100)
    >>> [choose_n_neighbors(n_samples, n_clusters) for n_samples, n_clusters in sizes]
    [10, 16, 150, 15]
    """
    wanted = min(150, n_samples // (10 * n_clusters), max(15, 20_000_000 // n_samples))
    return max(1, min(max(10, wanted), n_samples - 1))


def _neighbors_to_try(n_samples: int, config: FitConfig) -> list[int]:
    if config.n_neighbors is not None:
        return [int(config.n_neighbors)]
    few, some, many = _FEW_TO_MANY
    size = n_samples // config.n_clusters
    # from a sixth of a cluster to a third, so that small clusters are not joined to others
    few = min(few, max(10, size // 6), n_samples - 1)
    if config.effort == "fast":
        return [few]
    # at least 30 for very small clusters; some 20 million links in all
    most = min(max(30, size // 3), n_samples // 3, 20_000_000 // n_samples)
    tried = [few]
    if most >= 2 * few:
        tried.append(min(some, most))
    return [*tried, many] if most >= many else tried


def as_graph(graph: Any, n_samples: int) -> SimilarityGraph:
    """Return the caller's graph, checked to have as many rows as the data."""
    if not isinstance(graph, SimilarityGraph):
        graph = SimilarityGraph.from_scipy(graph)
    if graph.n_samples != n_samples:
        raise InvalidInputError(
            f"graph has n_samples={graph.n_samples} rows, X has {n_samples}; they must agree."
        )
    return graph  # type: ignore[no-any-return]
