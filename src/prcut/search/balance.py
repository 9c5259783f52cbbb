"""Choice of the balance weight: the one whose partitions agree most when the edges are resampled.

Classes have equal sizes in some data and a long tail in others, and no single weight suits both. A
partition that the graph supports is found again when its edges are resampled. One that splits a
large class, or joins small ones, only to make sizes equal is not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.sparse import triu
from scipy.special import entr

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.matching import adjusted_rand, shared_beyond_chance
from prcut.runtime.engine import map_threads
from prcut.search.fragments import CoarseGraph, as_coarse
from prcut.search.levels import merge_levels
from prcut.search.prices import Prices
from prcut.search.problem import Problem

# strong balance makes sizes similar
_STRONG = 0.3
# weak balance only keeps clusters from being empty
_WEAK = 0.01
BALANCE_WEIGHTS = (_STRONG, _WEAK)
# four resamples make six pairs to compare
N_RESAMPLES = 4
# weak balance must raise the mean adjusted mutual information of the pairs by this much: less
# changes with the seed
_GAIN = 0.025
# effective number of clusters, exp(entropy of sizes), over their number: above this, sizes are
# nearly equal without balance, so strong balance does no harm
_EVEN = 0.9
# below this evenness one cluster has usually swallowed others, which is found again however the
# edges are drawn
_COLLAPSED = 0.5
# unless partitions agree this well: then the clusters are far apart, and really so unequal
_CERTAIN = 0.95
# an edge whose draw rounds to nothing keeps this fraction of a typical weight, since graphs store
# no zeros
_LEAST_DRAW = 1e-9
# of weights in units of a typical edge
_DECIMALS = 6


class Resampled(NamedTuple):
    """Partitions of resampled graphs that were searched with one balance weight.

    Attributes
    ----------
    balance_weight : float
    partitions : tuple of int64 arrays, shape (n_samples,)
    """

    balance_weight: float
    partitions: tuple[np.ndarray, ...]

    @property
    def agreement(self) -> float:
        """Mean adjusted Rand index of all pairs of partitions."""
        return self._mean_of_pairs(adjusted_rand)

    @property
    def shared_information(self) -> float:
        """Mean adjusted mutual information of all pairs of partitions.

        It counts small clusters, of which the adjusted Rand index sees little. Unlike information
        that is only normalised, it does not favour equal sizes.
        """
        return self._mean_of_pairs(partial(shared_beyond_chance, rng=np.random.default_rng(0)))

    def evenness(self, n_clusters: int) -> float:
        """Return the mean effective number of clusters over their number: 1 for equal sizes."""
        shares = [np.bincount(labels) / len(labels) for labels in self.partitions]
        return float(np.exp(np.mean([entr(one).sum() for one in shares])) / n_clusters)

    def _mean_of_pairs(self, score: Callable[..., float]) -> float:
        return float(np.mean([score(*pair) for pair in combinations(self.partitions, 2)] or [1.0]))


def choose_balance(
    graph: SimilarityGraph | CoarseGraph,
    n_clusters: int,
    *,
    balance_weight: float | None = None,
    prices: Prices | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
    n_jobs: int = 1,
) -> Resampled:
    """Search resampled graphs with strong and with weak balance; return what the graph supports.

    A ``balance_weight`` that is given is the only one searched.

    Examples
    --------
    >>> graph = SimilarityGraph.from_labels([0, 0, 0, 0, 0, 0, 1, 1])
    >>> chosen = choose_balance(graph, 2)
    >>> chosen.agreement, len(chosen.partitions)
    (1.0, 4)
    """
    weights = BALANCE_WEIGHTS if balance_weight is None else (balance_weight,)
    search = partial(search_resampled, as_coarse(graph), n_clusters, weights, prices)
    rngs = np.random.default_rng([seed, 2]).spawn(n_resamples)
    by_weight = zip(*map_threads(search, rngs, n_jobs), strict=True)
    strong, *others = (
        Resampled(weight, partitions) for weight, partitions in zip(weights, by_weight, strict=True)
    )
    for weak in others:
        evenness = weak.evenness(n_clusters)
        is_plausible = evenness <= _EVEN and (evenness >= _COLLAPSED or weak.agreement >= _CERTAIN)
        if is_plausible and weak.shared_information > strong.shared_information + _GAIN:
            return weak
    return strong


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
    return [merge_levels(one, rng).labels for one in problems]


def resample_edges(graph: CoarseGraph, rng: np.random.Generator) -> CoarseGraph:
    """Return the graph with a Bayesian bootstrap of its edges.

    A typical edge is multiplied by an exponential variable of mean 1. A weight between fragments
    stands for many edges, so its factor is a gamma variable whose shape is their number: it makes
    no difference whether a graph is contracted before its edges are resampled or after.
    """
    upper = triu(graph.links, 1, format="csr")
    # rounded, so that the same draws are made in whatever unit weights were given
    drawn = rng.standard_gamma(np.round(upper.data / graph.edge_weight, _DECIMALS))
    upper.data = graph.edge_weight * np.maximum(drawn, _LEAST_DRAW)
    return graph._replace(links=upper + upper.T)
