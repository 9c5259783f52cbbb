"""The loops of src/prcut/search/kernels.c in NumPy: slow, short, and with the same arguments.

Tests put :func:`call` in the place of :func:`prcut.search.kernels.call`. Both must give the same
bits where all weights are multiples of a half, whose sums are exact in any order.
"""

import heapq
import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from prcut.numerics.objective import ClusterCost
from prcut.search import kernels
from prcut.search.prices import Prices


def call(name: str, *arguments: Any) -> int:
    """Do in NumPy what the compiled function of this name does."""
    return LOOPS[name](*map(_as_csr, arguments)) or 0


def _as_csr(argument: Any) -> Any:
    if not isinstance(argument, kernels.Graph):
        return argument
    indptr, indices, weight = argument.pointed_to
    return csr_array((weight, indices, indptr), shape=(argument.n, argument.n))


def edges_of(graph: csr_array, node: int) -> tuple[np.ndarray, np.ndarray]:
    edges = slice(graph.indptr[node], graph.indptr[node + 1])
    return graph.indices[edges], graph.data[edges]


# -- merge.py --------------------------------------------------------------------------------------


def merge(
    n: int,
    links: np.ndarray,
    sizes: np.ndarray,
    cost: ClusterCost,
    children: np.ndarray,
    costs: np.ndarray,
) -> None:
    cuts, alive, node = links.sum(1), np.ones(n, dtype=bool), np.arange(n)
    own = cost(cuts, sizes)
    added = cost(cuts[:, None] + cuts - 2 * links, sizes[:, None] + sizes) - own[:, None] - own
    np.fill_diagonal(added, np.inf)
    # the price of a pair is computed once: with its ends in the other order it may round otherwise
    added = np.triu(added) + np.triu(added, 1).T
    partner, least = added.argmin(1), added.min(1)
    for number in range(n - 1):
        kept = int(least.argmin())
        gone = int(partner[kept])
        children[number], costs[number] = sorted((node[kept], node[gone])), least[kept]
        cuts[kept] += cuts[gone] - 2 * links[kept, gone]
        sizes[kept] += sizes[gone]
        links[kept] += links[gone]
        links[:, kept] = links[kept]
        own[kept] = cost(cuts[kept], sizes[kept])
        node[kept], alive[gone] = n + number, False
        joined = cost(cuts[kept] + cuts - 2 * links[kept], sizes[kept] + sizes) - own[kept] - own
        joined[~alive] = joined[kept] = np.inf
        added[kept] = added[:, kept] = joined
        added[gone] = added[:, gone] = np.inf
        # of pairs of equal price the older stays
        closer = joined < least
        least[closer], partner[closer] = joined[closer], kept
        lost = np.flatnonzero(alive & ~closer & ((partner == kept) | (partner == gone)))
        partner[lost] = added[lost].argmin(1)
        least[lost] = added[lost, partner[lost]]
        least[gone] = np.inf


def merge_linked(
    links: csr_array, given_sizes: np.ndarray, k: int, cost: ClusterCost, parent: np.ndarray
) -> int:
    sizes = given_sizes.tolist()
    near = [
        dict(zip(links.indices[start:stop].tolist(), links.data[start:stop].tolist(), strict=True))
        for start, stop in pairwise(links.indptr.tolist())
    ]
    cuts, version, n_left = [sum(edges.values()) for edges in near], [0] * len(sizes), len(sizes)

    def price(cut: float, size: float) -> float:
        fraction = size / cost.n_samples
        return cost.scale * cut / size + cost.factor * fraction * math.log(fraction)

    own = [price(cut, size) for cut, size in zip(cuts, sizes, strict=True)]

    def cheapest(one: int) -> tuple[float, int, int, int, int]:
        cut, size = cuts[one], sizes[one]
        least, partner = min(
            (price(cut + cuts[other] - 2 * weight, size + sizes[other]) - own[other], other)
            for other, weight in near[one].items()
        )
        return least - own[one], one, partner, version[one], version[partner]

    heap = [cheapest(one) for one, edges in enumerate(near) if edges]
    heapq.heapify(heap)
    while n_left > k and heap:
        _, kept, gone, *versions = heapq.heappop(heap)
        if version[kept] != versions[0]:
            continue
        if version[gone] == versions[1]:
            if len(near[kept]) < len(near[gone]):
                kept, gone = gone, kept
            cuts[kept] += cuts[gone] - 2 * near[kept].pop(gone)
            sizes[kept] += sizes[gone]
            del near[gone][kept]
            for other, weight in near[gone].items():
                near[kept][other] = near[other][kept] = near[kept].get(other, 0.0) + weight
                del near[other][gone]
            parent[gone], n_left = kept, n_left - 1
            near[gone], version[gone], version[kept] = {}, -1, version[kept] + 1
            own[kept] = price(cuts[kept], sizes[kept])
        if near[kept]:
            heapq.heappush(heap, cheapest(kept))
    return n_left


# -- moves.py --------------------------------------------------------------------------------------


def improve(
    graph: csr_array,
    sizes: np.ndarray,
    k: int,
    cost: ClusterCost,
    paid: np.ndarray | None,
    least: float,
    most: float,
    slack: float,
    patience: float,
    least_gain: float,
    labels: np.ndarray,
    objective: np.ndarray,
) -> None:
    dense, nodes, rounding = graph.toarray(), np.arange(len(sizes)), 1e-9 * cost.n_samples
    degree, paid = dense.sum(1), np.zeros((len(sizes), k)) if paid is None else paid
    least_size = max(0.5 * sizes.min(), least - slack - rounding)

    def outside(held: np.ndarray) -> float:
        return float(np.maximum(np.maximum(held - most, least - held), 0).sum())

    def run_pass() -> None:
        links, held = np.eye(k)[labels].T @ dense, np.bincount(labels, sizes, k)
        is_free = np.ones(len(sizes), dtype=bool)
        made: list[tuple[int, int]] = []
        change = lowest = n_kept = 0
        before = outside(held)
        while len(made) - n_kept <= patience:
            cuts = np.bincount(labels, degree - links[labels, nodes], k)
            costs, after = cost(cuts, held), held[:, None] + sizes
            enter = cost(cuts[:, None] + degree - 2 * links, after) - costs[:, None] + paid.T
            enter[after > most + slack + rounding] = np.inf
            enter[labels, nodes] = np.inf
            left, own_links = held[labels] - sizes, links[labels, nodes]
            leave = cost(cuts[labels] - degree + 2 * own_links, left) - costs[labels]
            leave -= paid[nodes, labels]
            leave[~is_free | (left <= least_size)] = np.inf
            # among many clusters a fragment enters those that it has an edge to, or pays less in
            # than elsewhere, and the smallest and the largest
            may_enter = (links > 0) | (paid.max(1) > paid.T)
            may_enter[[held.argmin(), held.argmax()]] = True
            may_enter |= k <= 32
            target = np.where(may_enter, enter, np.inf).argmin(0)
            price, to = (
                np.where(may_enter[target, nodes], enter[target, nodes], np.inf) + leave,
                target,
            )
            over = np.flatnonzero(held > most + rounding)
            under = np.flatnonzero(held < least - rounding)
            if len(over):
                price = np.where(labels == over[-1], price, np.inf)
            elif len(under):
                price, to = enter[under[-1]] + leave, np.full_like(target, under[-1])
            fragment = int(price.argmin())
            if not np.isfinite(price[fragment]):
                break
            touched = [int(labels[fragment]), int(to[fragment])]
            change += price[fragment]
            links[touched] += np.array([[-1], [1]]) * dense[fragment]
            held[touched] += np.array([-1, 1]) * sizes[fragment]
            labels[fragment], is_free[fragment] = touched[1], False
            made.append((fragment, touched[0]))
            if change < lowest - 1e-15 and outside(held) <= before + rounding:
                lowest, n_kept = change, len(made)
        for fragment, cluster in reversed(made[n_kept:]):
            labels[fragment] = cluster

    objective[0], gains = _objective(graph, sizes, cost, paid, labels), True
    while gains:
        lowest = objective[0]
        run_pass()
        objective[0] = _objective(graph, sizes, cost, paid, labels)
        gains = objective[0] < lowest - least_gain * abs(lowest)


def _objective(
    graph: csr_array, sizes: np.ndarray, cost: ClusterCost, paid: np.ndarray, labels: np.ndarray
) -> float:
    cuts = np.zeros(cost.n_clusters)
    partition_cuts(graph, labels, cuts)
    value = cost.objective(cuts, np.bincount(labels, sizes, cost.n_clusters))
    return value + float(paid[np.arange(len(labels)), labels].sum())


# -- sweep.py --------------------------------------------------------------------------------------


def partition_cuts(graph: csr_array, labels: np.ndarray, cuts: np.ndarray) -> None:
    source = np.repeat(labels, np.diff(graph.indptr))
    crosses = source != labels[graph.indices]
    cuts += np.bincount(source[crosses], graph.data[crosses], len(cuts))


def sweep(
    graph: csr_array,
    node_sizes: np.ndarray,
    k: int,
    n_sweeps: int,
    cost: ClusterCost,
    prices: Prices,
    least_gain: float,
    labels: np.ndarray,
    cuts: np.ndarray,
    sizes: np.ndarray,
) -> int:
    n_moved, n_before, sweeps = 0, -1, 0
    while sweeps < n_sweeps and n_moved > n_before:
        n_before, sweeps = n_moved, sweeps + 1
        for node, size in enumerate(node_sizes):
            n_moved += _move_node(graph, node, size, cost, prices, least_gain, labels, cuts, sizes)
    return n_moved


def _move_node(
    graph: csr_array,
    node: int,
    size: float,
    cost: ClusterCost,
    prices: Prices,
    least_gain: float,
    labels: np.ndarray,
    cuts: np.ndarray,
    sizes: np.ndarray,
) -> bool:
    assert prices.least is not None
    assert prices.most is not None
    own, left, k = labels[node], sizes[labels[node]] - size, len(sizes)
    others, weight = edges_of(graph, node)
    link, degree = np.bincount(labels[others], weight, k), weight.sum()
    paid, is_near = np.zeros(k), link > 0
    if prices.apart is not None:
        others, weight = edges_of(prices.apart, node)
        paid += np.bincount(labels[others], weight, k)
        is_near |= paid[own] > 0
    if prices.preferred is not None and prices.preferred[node] >= 0:
        assert prices.price is not None
        paid[prices.preferred[node]] -= prices.price[node]
        is_near[prices.preferred[node]] = True
    near = np.flatnonzero(is_near & (np.arange(k) != own) & (sizes + size < prices.most))
    if left <= prices.least[own] or not len(near):
        return False
    costs = np.where(sizes > 0, cost(cuts, sizes), 0)
    cuts_after, cut_left = cuts[near] + degree - 2 * link[near], cuts[own] - degree + 2 * link[own]
    change = cost(cuts_after, sizes[near] + size) - costs[near]
    gain = cost(cut_left, left) - costs[own] + change + (paid[near] - paid[own])
    best = near[gain.argmin()]
    if not gain.min() < -least_gain:
        return False
    cuts[own], sizes[own], labels[node] = cut_left, left, best
    cuts[best] = cuts_after[gain.argmin()]
    sizes[best] += size
    return True


# -- fragments.py ----------------------------------------------------------------------------------


def propagate(
    graph: csr_array, order: np.ndarray, most: int, n_rounds: int, groups: np.ndarray
) -> None:
    sizes = np.ones(len(groups), dtype=np.int64)
    for _ in range(n_rounds):
        before = groups.copy()
        for row in order:
            others, weight = edges_of(graph, row)
            link, own = np.bincount(groups[others], weight, len(groups)), groups[row]
            heaviest = np.where(sizes < most, link, 0).argmax()
            if sizes[heaviest] < most and link[heaviest] > link[own]:
                groups[row] = heaviest
                sizes[[own, heaviest]] += [-1, 1]
        if (groups == before).all():
            break


def contract(
    graph: csr_array,
    groups: np.ndarray,
    n_groups: int,
    members: np.ndarray,
    first: np.ndarray,
    keeps_inner: int,
    indptr: np.ndarray,
    indices: np.ndarray,
    weight: np.ndarray,
) -> int:
    member = csr_array((np.ones(len(groups)), groups, np.arange(len(groups) + 1)))
    links = csr_array(member.T @ (graph @ member))
    if not keeps_inner:
        links.setdiag(0)
        links.eliminate_zeros()
    indptr[:], indices[: links.nnz], weight[: links.nnz] = links.indptr, links.indices, links.data
    return int(links.nnz)


LOOPS: dict[str, Any] = {
    loop.__name__: loop
    for loop in (
        merge,
        merge_linked,
        improve,
        partition_cuts,
        sweep,
        propagate,
        contract,
    )
}
