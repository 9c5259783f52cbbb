"""Score a partition on a graph: the objective J and the ratio cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.cuts import cluster_cuts, cluster_links
from prcut.numerics.objective import ClusterCost
from prcut.search.fragments import CoarseGraph
from prcut.search.hierarchy import merge_further
from prcut.search.merge import MergeTree

MOST_LINKED = 4096
"""Clusters between which links are added up: 134 MB of them."""


class Score(NamedTuple):
    """What a partition costs: J (see :func:`prcut.numerics.hard_objective`) and its ratio cut.

    There is no merge tree where a cluster is empty, or where there are too many.
    """

    objective: float
    ratio_cut: float
    cluster_sizes: np.ndarray
    merge_tree: MergeTree | None


def score_labels(
    graph: SimilarityGraph,
    labels: np.ndarray,
    n_clusters: int,
    balance_weight: float,
    layer_sizes: Sequence[int] = (),
    weights: np.ndarray | None = None,
) -> Score:
    """Score the labels of all rows of one graph, which was weighed by their weights, if any."""
    on_device = torch.from_numpy(labels).to(graph.weight.device)
    cuts = cluster_cuts(graph.weight, on_device, n_clusters).double().cpu().numpy()
    sizes = np.bincount(labels, weights, n_clusters).astype(np.float64)
    total = float(graph.weight.values().double().sum())
    links = None
    if n_clusters <= MOST_LINKED:
        between = cluster_links(graph.weight, on_device, n_clusters).double().cpu()
        links = csr_array(between.fill_diagonal_(0).numpy())
    cost = ClusterCost.of(float(sizes.sum()), total, n_clusters, balance_weight=balance_weight)
    return score_sums(cuts, sizes, links, cost, layer_sizes)


def score_sums(
    cuts: np.ndarray,
    sizes: np.ndarray,
    links: csr_array | None,
    cost: ClusterCost,
    layer_sizes: Sequence[int] = (),
) -> Score:
    """Score a partition by the sums over its clusters, and by the links between these.

    The merge tree passes through the layers: see :func:`prcut.search.hierarchy.merge_further`.
    """
    has_tree = links is not None and bool(sizes.all())
    tree = merge_further(CoarseGraph(links, sizes), cost, layer_sizes) if has_tree else None
    ratio_cut = float(np.divide(0.5 * cuts, sizes, out=np.zeros(len(cuts)), where=cuts > 0).sum())
    is_whole = sizes.max() < 2**53 and np.array_equal(np.rint(sizes), sizes)
    counted = sizes.astype(np.int64) if is_whole else sizes
    return Score(cost.objective(cuts, sizes), ratio_cut, counted, tree)
