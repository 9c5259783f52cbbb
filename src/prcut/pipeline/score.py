"""Score a partition on a graph, or on the blocks of one: the objective J and the ratio cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, distributed

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.cuts import cluster_cuts, cluster_links
from prcut.numerics.objective import ClusterCost
from prcut.runtime.distributed import choose_device, this_process
from prcut.search.fragments import CoarseGraph
from prcut.search.hierarchy import merge_further
from prcut.search.merge import MergeTree

MOST_LINKED = 4096
"""Clusters between which links are added up: 134 MB of them."""


class LabelledGraph(NamedTuple):
    """A graph, or one block of it, with the labels of its rows; the core rows come first.

    The graph has been weighed by the weights of the core rows, if there are any.
    """

    graph: SimilarityGraph
    labels: Tensor
    n_core: int
    weights: Tensor | None = None


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
    by = None if weights is None else torch.from_numpy(weights).to(on_device.device)
    block = LabelledGraph(graph, on_device, graph.n_samples, by)
    return score_blocks([block], n_clusters, balance_weight, layer_sizes)


def score_blocks(
    blocks: Iterable[LabelledGraph],
    n_clusters: int,
    balance_weight: float,
    layer_sizes: Sequence[int] = (),
    *,
    is_shared: bool = False,
) -> Score:
    """Score a partition by sums over the blocks of a graph.

    ``is_shared`` says that the other processes hold the other blocks.
    """
    n_linked = n_clusters if n_clusters <= MOST_LINKED else 0
    cuts, sizes = torch.zeros(2, n_clusters, dtype=torch.float64)
    links = torch.zeros(n_linked, n_linked, dtype=torch.float64)
    total = torch.zeros(1, dtype=torch.float64)
    for graph, labels, n_core, weights in blocks:
        cuts += cluster_cuts(graph.weight, labels, n_clusters).cpu()
        sizes += torch.bincount(labels[:n_core], weights, n_clusters).cpu()
        total += graph.weight.values().double().sum().cpu()
        if n_linked:
            links += cluster_links(graph.weight, labels, n_clusters).cpu()
    if is_shared and this_process().world_size > 1:
        cuts, sizes, total, links = _sum_over_processes(cuts, sizes, total, links)
    n_samples = float(sizes.sum())
    cost = ClusterCost.of(n_samples, total.item(), n_clusters, balance_weight=balance_weight)
    between = csr_array(links.fill_diagonal_(0).numpy()) if n_linked else None
    return score_sums(cuts.numpy(), sizes.numpy(), between, cost, layer_sizes)


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
    whole = sizes.astype(np.int64)
    is_whole = np.array_equal(whole, sizes)
    return Score(cost.objective(cuts, sizes), ratio_cut, whole if is_whole else sizes, tree)


def _sum_over_processes(*sums: Tensor) -> list[Tensor]:
    device = choose_device("auto") if distributed.get_backend() == "nccl" else "cpu"
    joined = torch.cat([values.flatten() for values in sums]).to(device)
    distributed.all_reduce(joined)
    split = joined.cpu().split([values.numel() for values in sums])
    return [values.view_as(like) for values, like in zip(split, sums, strict=True)]
