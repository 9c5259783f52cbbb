"""How the clusters of a partition merge further, through layers that are searched, down to one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from prcut.numerics.objective import ClusterCost, balance_factor
from prcut.search.fragments import CoarseGraph, contract
from prcut.search.merge import MergeTree, merge
from prcut.search.moves import find_optimum

# weight of balance in merges of pairs, and in the search for a layer
_TIE_BREAK, _LAYER_BALANCE = 1e-6, 0.1


def merge_further(
    coarse: CoarseGraph, cost: ClusterCost, layer_sizes: Sequence[int] = ()
) -> MergeTree:
    """Merge clusters down to one, and say what each merge adds to the objective.

    Pairs merge by the cut: balance would merge small clusters rather than what belongs together,
    and only decides where nothing is cut. But pair by pair, large clusters swallow the others: so
    the best groups of clusters are searched for each of the layers, numbers of clusters from large
    to small, and up to there only clusters of one group merge.
    """
    n_clusters, rng = len(coarse.sizes), np.random.default_rng(0)
    children: list[tuple[int, int]] = []
    nodes, labels = np.arange(n_clusters), np.arange(n_clusters)
    for size in (*layer_sizes, 1):
        between = contract(coarse.links, labels, sizes=coarse.sizes)
        groups = _search_layer(between, cost, size, rng)
        nodes = _merge_groups(between, cost, groups, nodes, n_clusters, children)
        labels = groups[labels]
    tree = np.array(children, np.int64).reshape(-1, 2)
    return MergeTree(tree, _added_costs(coarse, cost, tree))


def _search_layer(
    coarse: CoarseGraph, cost: ClusterCost, size: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the group of every cluster, where there are so many groups, or fewer if some empty."""
    if size == 1:
        return np.zeros(len(coarse.sizes), np.int64)
    cost = cost._replace(factor=balance_factor(_LAYER_BALANCE, size), n_clusters=size)
    labels, _ = find_optimum(coarse, cost, rng, n_starts=0, n_shuffles=0)
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def _merge_groups(
    coarse: CoarseGraph,
    cost: ClusterCost,
    groups: np.ndarray,
    nodes: np.ndarray,
    n_clusters: int,
    children: list[tuple[int, int]],
) -> np.ndarray:
    """Merge the clusters of every group, cheap merges of all groups first; return their nodes."""
    merges, own = [], {}
    for group in range(int(groups.max()) + 1):
        inside = np.flatnonzero(groups == group)
        part = CoarseGraph(csr_array(coarse.links[inside][:, inside]), coarse.sizes[inside])
        tree = merge(part, cost._replace(factor=_TIE_BREAK * cost.factor))
        own[group] = nodes[inside].tolist()
        # within a group they keep their order
        order = np.maximum.accumulate(tree.costs).tolist()
        merges += [
            (price, group, number, pair)
            for number, (price, pair) in enumerate(zip(order, tree.children.tolist(), strict=True))
        ]
    for _, group, _, (one, other) in sorted(merges):
        pair = sorted((own[group][one], own[group][other]))
        own[group].append(n_clusters + len(children))
        children.append((pair[0], pair[1]))
    return np.array([own[group][-1] for group in own])


def _added_costs(coarse: CoarseGraph, cost: ClusterCost, children: np.ndarray) -> np.ndarray:
    """Return what every merge adds to the objective."""
    links, sizes, costs = coarse.links.toarray(), coarse.sizes.copy(), np.empty(len(children))
    cuts, place = links.sum(1), [*range(len(sizes))]
    for number, (one, other) in enumerate(children.tolist()):
        kept, gone = place[one], place[other]
        place.append(kept)
        before = cost(cuts[[kept, gone]], sizes[[kept, gone]]).sum()
        cuts[kept] += cuts[gone] - 2 * links[kept, gone]
        sizes[kept] += sizes[gone]
        links[kept] += links[gone]
        links[:, kept] = links[kept]
        costs[number] = cost(cuts[kept], sizes[kept]) - before
    return costs
