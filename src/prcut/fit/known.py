"""Constraints on the clusters: known classes, links between rows, weights of rows, sizes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from prcut.errors import DataWarning, InvalidInputError
from prcut.fit.config import FitConfig, check_n_samples
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runtime.parquet import ParquetSource
from prcut.runtime.progress import StepLog
from prcut.runtime.sources import Source
from prcut.search.balance import Resampled
from prcut.search.fragments import CoarseGraph, as_coarse, compact_csr, contract
from prcut.search.levels import contract_levels
from prcut.search.limits import Limits, limit_sizes
from prcut.search.partition import find_partition
from prcut.search.prices import Prices
from prcut.search.problem import Partition, Problem
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_probs

# steps of the classes along the edges, and the fraction that a row passes on
_STEPS = 30
_PASSED_ON = 0.9
# numbers of a matrix of rows and classes above which classes are not passed on
_MAX_NUMBERS = 2**28
# penalty for leaving the class that reaches a row most, and for a pair in one cluster that should
# be kept apart, in units of what a row of random links adds to the cut
_CLASS_PRICE = 0.4
_APART_PRICE = 8.0
# the product of two weights and an edge must be a number above zero
_MAX_WEIGHT = 1e100
# rounds in which prices of clusters are found, and the first step
_PRICE_ROUNDS = 200
_FIRST_STEP = 1.0
# values of a column that are Python objects at a time
_ROWS_AT_ONCE = 2**20
KNOWN_SETTINGS = "min_size", "max_size", "weight_column", "label_column"
# a graph of rows in memory, or of blocks on disk
_Graph = TypeVar("_Graph", SimilarityGraph, CoarseGraph)


class Known(NamedTuple):
    """Constraints on the clusters of the rows; None where there are none of a kind.

    Attributes
    ----------
    classes : int64 array, shape (n_samples,)
        Known cluster of every row, −1 for unknown.
    groups : int64 array, shape (n_samples,)
        Rows of equal number, from 0, belong to one cluster.
    apart : int64 array, shape (n_pairs, 2)
        Pairs of rows that should be in different clusters.
    weights : float64 array, shape (n_samples,)
        Number of times that a row counts.
    """

    classes: np.ndarray | None = None
    groups: np.ndarray | None = None
    apart: np.ndarray | None = None
    weights: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        n_samples: int,
        y: Any = None,
        sample_weight: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
    ) -> Known:
        """Check the constraints that a caller gives.

        >>> Known.of(4, [0, -1, -1, 0], must_link=[[1, 2]]).groups.tolist()
        [0, 1, 1, 0]
        """
        classes = None if y is None else _check_classes(y, n_samples)
        weights = None if sample_weight is None else _check_weights(sample_weight, n_samples)
        together = _check_pairs("must_link", must_link, n_samples)
        apart = _check_pairs("cannot_link", cannot_link, n_samples)
        groups = None
        if classes is not None or together is not None:
            groups = _join_rows(classes, together, n_samples)
        if apart is not None:
            _check_apart(apart, groups)
        return cls(classes, groups, apart, weights)

    @classmethod
    def of_source(cls, source: Source, config: FitConfig, rows: np.ndarray | None = None) -> Known:
        """Read the columns of classes and weights of a run's data, if it has any.

        ``rows`` are the numbers of the rows that take part, by default all.
        """
        rows = np.arange(source.n_samples) if rows is None else rows
        classes, weights = (
            None if column is None else _read_column(columns_of(source, column), column, rows)
            for column in (config.label_column, config.weight_column)
        )
        return cls.of(len(rows), classes, weights)

    @property
    def is_empty(self) -> bool:
        """Whether there are no constraints."""
        return all(one is None for one in self)

    def violated(self, labels: np.ndarray) -> np.ndarray:
        """Return the pairs to keep apart whose rows share a cluster, shape (n_violated, 2)."""
        pairs = np.empty((0, 2), np.int64) if self.apart is None else self.apart
        shared: np.ndarray = pairs[labels[pairs[:, 0]] == labels[pairs[:, 1]]]
        return shared

    def weigh(self, graph: _Graph) -> _Graph:
        """Return the graph with every edge times the weights of its two rows."""
        if self.weights is None:
            return graph
        links = graph.links if isinstance(graph, CoarseGraph) else graph.to_scipy()
        rows = np.repeat(self.weights, np.diff(links.indptr))
        data = links.data * rows * self.weights[links.indices]
        weighed = compact_csr(data, links.indices, links.indptr)
        if isinstance(graph, CoarseGraph):
            return CoarseGraph.of_rows(weighed)
        return SimilarityGraph.from_scipy(weighed)

    def contract(
        self, graph: SimilarityGraph | CoarseGraph, n_clusters: int
    ) -> tuple[CoarseGraph, np.ndarray, Prices]:
        """Return the graph whose nodes are joined rows, the node of every row, and prices.

        Edges of the graph include the weights of the rows.
        """
        rows = as_coarse(graph)
        sizes = rows.sizes if self.weights is None else self.weights
        if self.groups is None:
            coarse, nodes = rows._replace(sizes=sizes), np.arange(len(sizes))
        else:
            coarse, nodes = contract(rows.links, self.groups, sizes=sizes), self.groups
            inner = float(rows.links.data.sum() - coarse.links.data.sum())
            coarse = coarse._replace(inner=inner, edge_weight=rows.edge_weight)
        return coarse, nodes, self._prices(coarse, nodes, n_clusters)

    def limits(self, config: FitConfig, n_samples: int) -> Limits | None:
        """Return the limits of the cluster sizes, if any; joined rows must fit into them."""
        total = float(n_samples if self.weights is None else self.weights.sum())
        limits = config.limits(total, is_whole=self.weights is None)
        if limits is None:
            return None
        groups = np.arange(n_samples) if self.groups is None else self.groups
        heaviest = np.bincount(groups, self.weights).max()
        if heaviest > limits.most:
            raise InvalidInputError(
                f"rows that y or must_link joins, or one heavy row, weigh {heaviest:g} together; "
                f"max_size={limits.most:g} must be at least that."
            )
        return limits

    def check(self, config: FitConfig, n_samples: int) -> None:
        """Reject constraints that a fit cannot use."""
        check_n_samples(n_samples, config)
        self.limits(config, n_samples)
        is_limited = config.min_size is not None or config.max_size is not None
        if config.solver == "train" and (is_limited or not self.is_empty):
            raise InvalidInputError(
                "sizes, classes, links and weights need solver='search'; solver='train' uses none."
            )
        if self.classes is not None and self.classes.max() >= config.n_clusters:
            raise InvalidInputError(
                f"y has class {self.classes.max()}, so n_clusters={config.n_clusters} must be "
                f">= {self.classes.max() + 1}: classes are numbered from 0."
            )

    def _prices(self, coarse: CoarseGraph, nodes: np.ndarray, n_clusters: int) -> Prices:
        prices, n_nodes = Prices(), len(coarse.sizes)
        # what moving a node of mean size adds to the cut of an average cluster
        unit = n_clusters / n_nodes
        if self.classes is not None:
            preferred = np.full(n_nodes, -1)
            known = self.classes >= 0
            preferred[nodes[known]] = self.classes[known]
            price = np.where(preferred >= 0, np.inf, 0.0)
            likely = spread_classes(coarse, preferred, n_clusters)
            if likely is not None:
                first, second = np.sort(likely, axis=1)[:, :-3:-1].T
                is_free = (preferred < 0) & (first > second)
                price[is_free] = _CLASS_PRICE * unit * (1 - second[is_free] / first[is_free])
                preferred[is_free] = likely.argmax(1)[is_free]
            prices = prices._replace(preferred=preferred, price=price)
        if self.apart is not None:
            ends = nodes[np.concatenate([self.apart, self.apart[:, ::-1]])].T
            apart = csr_array((np.ones(ends.shape[1]), tuple(ends)), (n_nodes, n_nodes))
            apart.data[:] = _APART_PRICE * unit
            prices = prices._replace(apart=apart)
        return prices


def refuse_known(config: FitConfig, where: str, names: Sequence[str] = KNOWN_SETTINGS) -> None:
    """Reject settings that cannot be used in some place."""
    given = [name for name in names if getattr(config, name) is not None]
    if given:
        raise InvalidInputError(f"{' and '.join(given)} cannot be used with {where}.")


def _read_column(source: ParquetSource, column: str, rows: np.ndarray) -> np.ndarray:
    """Return the values of a column in some rows; a missing one is −1, an unknown class."""
    order = np.argsort(rows)
    parts = [np.empty(0)] if len(rows) == 0 else []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        values = source.read_values(column, rows[order[start : start + _ROWS_AT_ONCE]])
        parts.append(np.asarray([-1 if one is None else one for one in values]))
    in_order = np.concatenate(parts)
    values_of_rows = np.empty_like(in_order)
    values_of_rows[order] = in_order
    return values_of_rows


def columns_of(source: Source, column: str) -> ParquetSource:
    """Return a source that has columns of its own besides the rows' vectors."""
    if not isinstance(source, ParquetSource):
        raise InvalidInputError(f"column {column!r} needs Parquet data; give a folder.")
    return source


def spread_classes(
    coarse: CoarseGraph, preferred: np.ndarray, n_clusters: int
) -> np.ndarray | None:
    """Spread classes along the edges; return their fractions at every node, (n_nodes, n_clusters).

    None where some cluster has no node of a known class.
    """
    known = preferred >= 0
    is_seeded = len(np.unique(preferred[known])) == n_clusters
    if not is_seeded or len(preferred) * n_clusters > _MAX_NUMBERS:
        return None
    first = np.zeros((len(preferred), n_clusters), np.float32)
    first[known, preferred[known]] = 1
    degree = np.asarray(coarse.links.sum(1), np.float64).reshape(-1)
    root = 1 / np.sqrt(np.where(degree > 0, degree, 1.0))
    rows = np.repeat(root, np.diff(coarse.links.indptr))
    data = (coarse.links.data * rows * root[coarse.links.indices]).astype(np.float32)
    links = csr_array((data, coarse.links.indices, coarse.links.indptr), coarse.links.shape)
    spread = first
    for _ in range(_STEPS):
        spread = _PASSED_ON * (links @ spread) + (1 - _PASSED_ON) * first
    spread /= np.maximum(spread.sum(0), np.finfo(np.float32).tiny)  # classes of many links
    total = spread.sum(1, keepdims=True)
    likely: np.ndarray = np.divide(spread, total, out=np.zeros_like(spread), where=total > 0)
    return likely


def _check_classes(y: Any, n_samples: int) -> np.ndarray | None:
    classes = np.asarray(y)
    if classes.shape != (n_samples,):
        raise InvalidInputError(
            f"y has shape {classes.shape}, X has {n_samples} rows; give one class per row."
        )
    is_number = np.issubdtype(classes.dtype, np.number) and np.isfinite(classes).all()
    if not is_number or (classes != np.rint(classes)).any():
        raise InvalidInputError(
            f"Unknown label type: y of {classes.dtype} must be whole numbers, classes from 0, "
            "and -1 for unknown rows."
        )
    if classes.min() < -1:
        raise InvalidInputError(f"y={classes.min()} must be a class from 0, or -1 for unknown.")
    # scikit-learn's pipelines pass y to clusterers, which ignore it: so do we where y is complete
    is_known = classes >= 0
    if is_known.all() or not is_known.any():
        return None
    if classes.max() >= n_samples:
        raise InvalidInputError(
            f"y has class {classes.max()}, X has {n_samples} rows; classes are numbered from 0 "
            "and need a cluster each, so renumber them."
        )
    return classes.astype(np.int64)


def _check_weights(sample_weight: Any, n_samples: int) -> np.ndarray:
    weights = np.asarray(sample_weight, np.float64)
    if weights.ndim == 0:
        weights = np.full(n_samples, weights)
    if weights.shape != (n_samples,):
        raise InvalidInputError(
            f"sample_weight has shape {weights.shape}, X has {n_samples} rows; give one per row."
        )
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise InvalidInputError(
            "sample_weight must be finite and above zero; leave out rows that do not count."
        )
    if weights.min() < 1 / _MAX_WEIGHT or weights.max() > _MAX_WEIGHT:
        raise InvalidInputError(
            f"sample_weight is {weights.min():g} to {weights.max():g}, and must be "
            f"{1 / _MAX_WEIGHT:g} to {_MAX_WEIGHT:g}; divide the weights by their mean."
        )
    return weights


def _check_pairs(name: str, pairs: Any, n_samples: int) -> np.ndarray | None:
    if pairs is None or not len(pairs):
        return None
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or not np.issubdtype(rows.dtype, np.integer):
        raise InvalidInputError(f"{name} of shape {rows.shape} must be pairs of row numbers.")
    if rows.min() < 0 or rows.max() >= n_samples:
        raise InvalidInputError(
            f"{name} names rows {rows.min()} to {rows.max()}; X has rows 0 to {n_samples - 1}."
        )
    return rows.astype(np.int64)


def _check_apart(apart: np.ndarray, groups: np.ndarray | None) -> None:
    one, other = apart.T
    if (one == other).any():
        raise InvalidInputError("cannot_link keeps a row apart from itself; leave that pair out.")
    if groups is None:
        return
    joined = np.flatnonzero(groups[one] == groups[other])
    if len(joined):
        others = f" So are {len(joined) - 1} more pairs." if len(joined) > 1 else ""
        raise InvalidInputError(
            f"cannot_link keeps rows {one[joined[0]]} and {other[joined[0]]} apart, which "
            f"must_link or y joins; leave the pair out of one of the two.{others}"
        )


def _join_rows(
    classes: np.ndarray | None, together: np.ndarray | None, n_samples: int
) -> np.ndarray:
    """Give linked rows, and those of one class, the same number."""
    ends = [np.empty((0, 2), np.int64) if together is None else together]
    if classes is not None:
        known = np.flatnonzero(classes >= 0)
        _, first = np.unique(classes[known], return_index=True)
        firsts = np.zeros(classes.max() + 1, np.int64)
        firsts[classes[known[first]]] = known[first]
        ends.append(np.column_stack([known, firsts[classes[known]]]))
    pairs = np.concatenate(ends)
    linked = csr_array((np.ones(len(pairs)), tuple(pairs.T)), (n_samples, n_samples))
    groups: np.ndarray = connected_components(linked, directed=False)[1].astype(np.int64)
    if classes is not None:
        class_of = np.full(groups.max() + 1, -1)
        class_of[groups[known]] = classes[known]
        clash = known[class_of[groups[known]] != classes[known]]
        if len(clash):
            other = class_of[groups[clash[0]]]
            raise InvalidInputError(
                f"must_link joins row {clash[0]} of class {classes[clash[0]]} to class {other}; "
                "leave out the link or one of the classes."
            )
    return groups


def search_known(
    graph: SimilarityGraph | CoarseGraph,
    config: FitConfig,
    known: Known,
    *,
    resampled: Resampled | None = None,
    starts: Sequence[np.ndarray] = (),
    log: StepLog | None = None,
    keep_starts: bool = True,
) -> Partition:
    """Search for the partition of a graph that satisfies the constraints.

    Edges of the graph include the weights of the rows. The search is the same whether the graph
    comes from rows in memory or from blocks on disk.
    """
    log = StepLog() if log is None else log
    n_clusters = config.n_clusters
    coarse, nodes, prices = known.contract(graph, n_clusters)
    limits = known.limits(config, len(nodes))
    priced = None if all(one is None for one in prices) else prices
    search = None
    if len(coarse.sizes) <= n_clusters:
        problem = Problem.of(coarse, n_clusters, config.training_balance, prices)
        partition = problem.score(_number_nodes(len(coarse.sizes), prices, n_clusters))
        partition = partition._replace(balance_weight=config.training_balance)
    else:
        given = []
        for labels in starts:
            of_nodes = np.zeros(len(coarse.sizes), np.int64)
            of_nodes[nodes] = labels
            given.append(of_nodes)
        if prices.preferred is not None and (prices.preferred >= 0).all():
            given.append(prices.preferred)
        search = partial(
            find_partition,
            coarse,
            n_clusters,
            prices=priced,
            levels=contract_levels(coarse, n_clusters, seed=config.seed, prices=priced),
            n_init=config.n_starts,
            seed=config.seed,
            n_jobs=config.n_threads,
        )
        partition = search(
            keep_starts=keep_starts,
            balance_weight=config.balance_weight,
            resampled=resampled if known.is_empty else None,
            starts=given,
            log=log,
        )
    if limits is not None:
        problem = Problem.of(coarse, n_clusters, partition.balance_weight, priced)
        limited = limit_sizes(problem, [partition.labels], limits, search)
        partition = partition._replace(labels=limited.labels, objective=limited.objective)
        log("sizes within limits", limited.objective)
    of_rows = tuple(start[nodes] for start in partition.starts)
    return partition._replace(labels=partition.labels[nodes], starts=of_rows)


def _number_nodes(n_nodes: int, prices: Prices, n_clusters: int) -> np.ndarray:
    """Give each of few nodes a cluster of its own, and nodes of a known class the class's."""
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
    """Return the limits of the sizes as fractions of all rows, which apply to new rows."""
    limits = config.limits(n_samples, is_whole=False)
    return None if limits is None else Limits(*(size / n_samples for size in limits))


def price_clusters(assigner: Assigner, features: Any, fractions: Limits) -> None:
    """Lower the logits of large clusters until the predicted sizes are within the limits.

    The bias of the last layer changes, so the limits hold for new rows too, as far as they resemble
    the features.
    """
    probs = assign_probs(assigner, features)
    price = find_prices(np.log(np.maximum(probs, 1e-12)), fractions)
    with torch.no_grad():
        assigner.head.bias.sub_(torch.from_numpy(price).to(assigner.head.bias))


def find_prices(log_probs: np.ndarray, fractions: Limits) -> np.ndarray:
    """Return prices u of the clusters for which the sizes by argmax(log p − u) are within limits.

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
