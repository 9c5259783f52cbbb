"""Choice of the balance weight: the one whose partitions agree most when the edges are resampled.

Classes have equal sizes in some data and a long tail in others, and no single weight suits both. A
partition that the graph supports is found again when its edges are resampled. One that splits a
large class, or joins small ones, only to make sizes equal is not.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.sparse import triu
from scipy.special import entr

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.matching import adjusted_rand
from prcut.runtime.engine import map_threads
from prcut.search.fragments import CoarseGraph, as_coarse, split_rows
from prcut.search.many import MANY_CLUSTERS, group_many, start_many
from prcut.search.prices import Prices
from prcut.search.problem import Problem

# strong enough that sizes are similar, and so weak that it only keeps clusters from being empty
BALANCE_WEIGHTS = (0.3, 0.01)
# pairs of resamples whose agreement is averaged: with four there are six
N_RESAMPLES = 4
# random labellings that each search improves, and the most of them times clusters: with many
# clusters nothing random comes near the result of merging
_N_RANDOM = 3
_MAX_RANDOM_CLUSTERS = 240


class Resampled(NamedTuple):
    """Partitions of resampled graphs that were searched with one balance weight.

    Attributes
    ----------
    balance_weight : float
    agreement : float
        Mean adjusted Rand index of all pairs of partitions.
    partitions : tuple of int64 arrays, shape (n_samples,)
    """

    balance_weight: float
    agreement: float
    partitions: tuple[np.ndarray, ...]

    @property
    def support(self) -> float:
        """Agreement times the mean entropy of the partitions.

        A partition into one large cluster and a few outliers is found again as well, and says
        little: entropy counts what a partition tells.
        """
        return self.agreement * float(np.mean([entropy(labels) for labels in self.partitions]))


def choose_balance(
    graph: SimilarityGraph | CoarseGraph,
    n_clusters: int,
    weights: tuple[float, ...] = BALANCE_WEIGHTS,
    *,
    prices: Prices | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
    n_jobs: int = 1,
) -> Resampled:
    """Search resampled graphs with every weight; return those of the weight with most support.

    Examples
    --------
    >>> two = [0, 0, 0, 0, 0, 0, 1, 1]  # six rows that are all alike, and two others
    >>> chosen = choose_balance(SimilarityGraph.from_labels(two), 2)
    >>> chosen.agreement, len(chosen.partitions)
    (1.0, 4)
    """
    coarse = as_coarse(graph)
    search = partial(search_resampled, coarse, n_clusters, weights, prices)
    rngs = np.random.default_rng([seed, 2]).spawn(n_resamples)
    by_weight = zip(*map_threads(search, rngs, n_jobs), strict=True)
    tried = [
        Resampled(weight, mean_agreement(partitions), partitions)
        for weight, partitions in zip(weights, by_weight, strict=True)
    ]
    return max(tried, key=lambda one: one.support)


def search_resampled(
    graph: CoarseGraph,
    n_clusters: int,
    weights: tuple[float, ...],
    prices: Prices | None,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Resample the edges, and return the labels that a search with every weight finds."""
    own = resample_edges(graph, rng)
    problems = [Problem.of(own, n_clusters, weight, prices) for weight in weights]
    if n_clusters > MANY_CLUSTERS and prices is None:
        groups = group_many(own, n_clusters, rng)
        return [start_many(one.between(groups), rng).labels[groups] for one in problems]
    fragments = problems[0].separate_fixed(split_rows(own, n_clusters, rng))
    n_random = min(_N_RANDOM, _MAX_RANDOM_CLUSTERS // n_clusters)
    optima = [one.find_optima(fragments, rng, n_random)[0] for one in problems]
    return [one.refine(labels).labels for one, labels in zip(problems, optima, strict=True)]


def resample_edges(graph: CoarseGraph, rng: np.random.Generator) -> CoarseGraph:
    """Return the graph with a Bayesian bootstrap of its edges.

    An edge of mean weight is multiplied by an exponential variable of mean 1. A weight between
    fragments stands for many edges, so its factor is a gamma variable whose shape is their number:
    it makes no difference whether a graph is contracted before its edges are resampled or after.
    """
    upper = triu(graph.links, 1, format="csr")
    upper.data = graph.edge_weight * rng.standard_gamma(upper.data / graph.edge_weight)
    return graph._replace(links=upper + upper.T)


def mean_agreement(partitions: tuple[np.ndarray, ...]) -> float:
    """Return the mean adjusted Rand index of all pairs of partitions."""
    return float(np.mean([adjusted_rand(*pair) for pair in combinations(partitions, 2)] or [1.0]))


def entropy(labels: np.ndarray) -> float:
    """Return the entropy of a partition, in nats."""
    return float(entr(np.bincount(labels) / len(labels)).sum())
