"""Groups of near-duplicates: a chain of them is cut until one row stands for all of a group."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array

from prcut.graph.neighbors import Metric
from prcut.graph.within import Pairs, distances_to, is_within
from prcut.numerics.objective import ClusterCost
from prcut.search.fragments import contract, find_fragments
from prcut.search.merge import merge
from prcut.search.moves import improve

# rows with most links that are tried as the exemplar of a group
_MOST_CANDIDATES = 256
# rows that are merged one by one; of more, fragments are merged, and so many rows make a part
_MOST_MERGED, _N_FRAGMENTS = 1024, 512


def split_chains(
    features: np.ndarray, pairs: Pairs, epsilon: float, metric: Metric
) -> list[tuple[int, np.ndarray]]:
    """Cut linked rows into groups, each within ε of its exemplar.

    Return exemplar and rows of every group, in the order of their first rows. A group none of whose
    rows is within ε of all others is a chain. It is cut where the ratio cut of its links is low, as
    greedy merging finds it, and so are its parts.

    >>> rows = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> pairs = Pairs(np.arange(3), np.arange(1, 4), np.ones(3))
    >>> [group.tolist() for _, group in split_chains(rows, pairs, 1.0, "euclidean")]
    [[0, 1], [2, 3]]
    """
    if len(features) == 2:  # most are pairs
        return [(0, np.arange(2))]
    shape = len(features), len(features)
    # a pair at the threshold counts half as much as copies
    weight = 1 - pairs.distance / (2 * epsilon)
    links = coo_array((weight, (pairs.source, pairs.target)), shape=shape).tocsr()
    links = csr_array(links + links.T)
    groups, left = [], [np.arange(len(features))]
    while left:
        rows = left.pop()
        inside = links if len(rows) == len(features) else csr_array(links[rows][:, rows])
        exemplar, near = _find_exemplar(features[rows], inside, epsilon, metric)
        if near.all():
            groups.append((int(rows[exemplar]), rows))
        else:
            labels = _cut(inside, near)
            left += [rows[labels == label] for label in range(int(labels.max()) + 1)]
    return sorted(groups, key=lambda group: int(group[1][0]))


def _find_exemplar(
    features: np.ndarray, links: csr_array, epsilon: float, metric: Metric
) -> tuple[int, np.ndarray]:
    """Return the row with most rows within ε, the nearest to all of them, and which rows are."""
    candidates = np.argsort(-links.sum(1), kind="stable")[:_MOST_CANDIDATES]
    distances = distances_to(features, features[candidates], metric)
    near = is_within(distances, epsilon)
    best = np.lexsort((candidates, distances.sum(0).round(9), -near.sum(0)))[0]
    return int(candidates[best]), near[:, best]


def _cut(links: csr_array, near: np.ndarray) -> np.ndarray:
    """Return the part of every row, at least two: cheap merges, then moves that lower the cut."""
    n_rows = links.shape[0]
    fragments = np.arange(n_rows)
    if n_rows > _MOST_MERGED:
        fragments = find_fragments(links, _N_FRAGMENTS, np.random.default_rng(0))
    if fragments.max() == 0:  # nothing to be cut: take what is near the exemplar away
        return near.astype(np.int64)
    coarse = contract(links, fragments)
    n_parts = min(int(fragments.max()) + 1, max(2, n_rows // _MOST_MERGED))
    cost = ClusterCost.of(n_rows, float(links.sum()), n_parts, balance_weight=0)
    labels, _ = improve(coarse, merge(coarse, cost).labels(n_parts), cost)
    return labels[fragments]
