"""Search with what is known: joined rows, prices, and sizes within limits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from prcut.errors import DataWarning
from prcut.pipeline.choose import ChosenGraph
from prcut.pipeline.config import FitConfig
from prcut.pipeline.known import Known
from prcut.runtime.progress import StepLog
from prcut.search.limits import Limits, limit_sizes
from prcut.search.partition import find_partition
from prcut.search.prices import Prices
from prcut.search.problem import Partition, Problem
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_probs

# rounds in which prices of clusters are found, and the first step
_PRICE_ROUNDS, _FIRST_STEP = 200, 1.0


def search_known(
    chosen: ChosenGraph,
    config: FitConfig,
    known: Known,
    starts: Sequence[np.ndarray] = (),
    log: StepLog | None = None,
) -> Partition:
    """Search the partition of a graph, which was weighed, that keeps to what is known."""
    log = StepLog() if log is None else log
    n_clusters = config.n_clusters
    limits = known.limits(config, chosen.graph.n_samples)
    coarse, nodes, prices = known.contract(chosen.graph, n_clusters)
    is_plain = all(one is None for one in known)
    priced, search = prices if any(one is not None for one in prices) else None, None
    how: Any = {"n_init": config.n_starts, "seed": config.seed, "n_jobs": config.n_threads}
    if len(coarse.sizes) <= n_clusters:
        problem = Problem.of(coarse, n_clusters, config.training_balance, prices)
        partition = problem.score(_number_nodes(len(coarse.sizes), prices, n_clusters))
        partition = partition._replace(balance_weight=config.training_balance)
    else:
        given = [_of_nodes(labels, nodes) for labels in starts]
        if prices.preferred is not None and (prices.preferred >= 0).all():
            given.append(prices.preferred)
        search = partial(find_partition, coarse, n_clusters, prices=priced, **how)
        partition = search(
            balance_weight=config.balance_weight,
            resampled=chosen.resampled if is_plain else None,
            starts=given,
            log=log,
        )
    if limits is not None:
        problem = Problem.of(coarse, n_clusters, partition.balance_weight, priced)
        limited = limit_sizes(problem, [partition.labels], limits, search)
        partition = partition._replace(labels=limited.labels, objective=limited.objective)
        log("sizes within limits", limited.objective)
        warn_of_sizes(np.bincount(limited.labels, coarse.sizes, n_clusters), limits)
    of_rows = tuple(start[nodes] for start in partition.starts)
    return partition._replace(labels=partition.labels[nodes], starts=of_rows)


def _of_nodes(labels: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    of_nodes = np.zeros(int(nodes.max()) + 1, np.int64)
    of_nodes[nodes] = labels
    return of_nodes


def _number_nodes(n_nodes: int, prices: Prices, n_clusters: int) -> np.ndarray:
    """Give each of few nodes a cluster of its own, and known ones theirs."""
    labels = np.full(n_nodes, -1) if prices.preferred is None else prices.preferred.copy()
    unused = np.setdiff1d(np.arange(n_clusters), labels)
    free = np.flatnonzero(labels < 0)
    labels[free] = unused[: len(free)]
    return labels


def warn_of_sizes(sizes: np.ndarray, limits: Limits | None) -> None:
    """Warn of sizes outside their limits."""
    if limits is not None and not limits.hold(sizes):
        text = (
            f"rows of unequal weight, or joined ones, do not divide into clusters of "
            f"{limits.least:g} to {limits.most:g}: sizes are {sizes.min():g} to {sizes.max():g}."
        )
        warnings.warn(text, DataWarning, stacklevel=2)


def fraction_limits(config: FitConfig, n_samples: int) -> Limits | None:
    """Return the limits of the sizes as fractions of all rows, for rows that are not known yet."""
    limits = config.limits(n_samples, is_whole=False)
    return None if limits is None else Limits(*(size / n_samples for size in limits))


def price_clusters(assigner: Assigner, features: Any, fractions: Limits) -> None:
    """Lower the logits of large clusters until those of the features keep to fractions of all.

    These prices of the clusters, which the bias of the last layer takes, hold sizes within limits
    for new rows too, as far as these are like the features.
    """
    probs = assign_probs(assigner, features)
    price = find_prices(np.log(np.maximum(probs, 1e-12)), fractions)
    with torch.no_grad():
        assigner.head.bias.sub_(torch.from_numpy(price).to(assigner.head.bias))


def find_prices(log_probs: np.ndarray, fractions: Limits) -> np.ndarray:
    """Return prices u of the clusters with which argmax(log p − u) keeps to fractions of all.

    >>> log_probs = np.log([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    >>> price = find_prices(log_probs, Limits(0.5, 0.5))
    >>> np.argmax(log_probs - price, axis=1).tolist()
    [0, 0, 1, 1]
    """
    n_rows, n_clusters = log_probs.shape
    price, best, lowest = np.zeros(n_clusters), np.zeros(n_clusters), np.inf
    for number in range(_PRICE_ROUNDS):
        sizes = np.bincount((log_probs - price).argmax(1), minlength=n_clusters) / n_rows
        outside = fractions.excess(sizes)
        if np.abs(outside).sum() < lowest:
            best, lowest = price.copy(), np.abs(outside).sum()
        if lowest == 0:
            break
        price += _FIRST_STEP / np.sqrt(1 + number) * n_clusters * outside
    return best
