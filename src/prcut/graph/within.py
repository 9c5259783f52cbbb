"""Pairs of rows within a distance ε of each other, from the nearest neighbours of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from prcut.errors import InvalidInputError
from prcut.graph.neighbors import Metric, Neighbors, find_neighbors

# a distance that is computed twice may differ in the last digits of a float32
_TOLERANCE = 1e-6


class Pairs(NamedTuple):
    """Pairs of different nodes, each once with ``source < target``, and their distances."""

    source: np.ndarray
    target: np.ndarray
    distance: np.ndarray


def check_epsilon(epsilon: float, metric: str) -> None:
    """Refuse a threshold that is no distance of the metric."""
    if metric not in ("cosine", "euclidean"):
        raise InvalidInputError(f"{metric=} must be 'cosine' or 'euclidean': others have no ε.")
    if not 0 < epsilon < (1 if metric == "cosine" else np.inf):
        limit = "in (0, 1)" if metric == "cosine" else "> 0"
        raise InvalidInputError(f"{epsilon=} must be a {metric} distance {limit}.")


def distances_to(rows: np.ndarray, others: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the distances of all rows to all others, shape (n_rows, n_others), float64.

    >>> distances_to(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0], [3.0, 0.0]]), "cosine")
    array([[1., 0.]])
    """
    # SciPy has no cosine of a row of zeros
    found: np.ndarray = np.nan_to_num(cdist(rows, others, metric), nan=1.0)
    return found


def is_within(distances: Any, epsilon: float) -> Any:
    """Return which distances are at most ε, but for rounding."""
    return distances <= epsilon * (1 + _TOLERANCE) + _TOLERANCE


def pairs_within(
    features: np.ndarray, nodes: np.ndarray, found: Neighbors, epsilon: float, seed: int = 0
) -> Pairs:
    """Return the pairs of nodes within ε that the neighbours show, and that exemplars show.

    ``nodes`` are those of all rows, numbered from 0: copies of one row are one node. A row all of
    whose neighbours are within ε may have more of them. Of each group of nodes that are linked so
    far and have such a row, an exemplar looks for neighbours among the exemplars of the other
    groups, again and again until none has only near ones. So a group that lies within ε becomes
    one, however large it is.
    """
    n_nodes = int(nodes.max(initial=-1)) + 1
    rows = np.empty(n_nodes, np.int64)
    rows[nodes[::-1]] = np.arange(len(nodes))[::-1]  # the first row of every node
    near, looking = _near_pairs(found, nodes, epsilon)
    pairs = join_pairs([near])
    while len(exemplars := _exemplars(pairs, n_nodes, looking)) > 1:
        n_found = min(found.indices.shape[1], len(exemplars) - 1)
        chosen = np.ascontiguousarray(features[rows[exemplars]])
        again = find_neighbors(chosen, n_found, metric=found.metric, seed=seed)
        more, looking = _near_pairs(again, exemplars, epsilon)
        pairs = join_pairs([pairs, more])
        if n_found == len(exemplars) - 1:  # all were measured
            break
    return pairs


def _near_pairs(found: Neighbors, nodes: np.ndarray, epsilon: float) -> tuple[Pairs, np.ndarray]:
    """Return pairs of nodes within ε, and the nodes all of whose neighbours are."""
    given = np.asarray(found.distances, np.float64)
    distances = np.sqrt(given) if found.metric == "euclidean" else np.maximum(1 - given, 0)
    is_near = is_within(distances, epsilon) & (found.indices >= 0)
    query, rank = np.nonzero(is_near)
    pairs = nodes[found.rows[query]], nodes[found.indices[query, rank]], distances[query, rank]
    return Pairs(*pairs), nodes[found.rows[is_near.all(1)]]


def join_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Return every pair of different nodes once, with its least distance."""
    one, other, distance = (np.concatenate(column) for column in zip(*parts, strict=True))
    source, target = np.minimum(one, other), np.maximum(one, other)
    order = np.lexsort((distance, target, source))
    source, target, distance = source[order], target[order], distance[order]
    is_first = np.ones(len(source), bool)
    is_first[1:] = (np.diff(source) != 0) | (np.diff(target) != 0)
    kept = is_first & (source != target)
    return Pairs(source[kept], target[kept], distance[kept])


def _components(pairs: Pairs, n_nodes: int) -> np.ndarray:
    ones = np.ones(len(pairs.source), np.int8)
    graph = coo_array((ones, (pairs.source, pairs.target)), shape=(n_nodes, n_nodes))
    labels: np.ndarray = connected_components(graph.tocsr(), directed=False)[1]
    return labels


def _exemplars(pairs: Pairs, n_nodes: int, looking: np.ndarray) -> np.ndarray:
    """Return the node with most pairs of every component that has a node which is looking."""
    labels = _components(pairs, n_nodes)
    degree = np.bincount(np.concatenate([pairs.source, pairs.target]), minlength=n_nodes)
    inside = np.flatnonzero(np.isin(labels, labels[looking]))
    order = inside[np.lexsort((inside, -degree[inside], labels[inside]))]
    return np.sort(order[np.unique(labels[order], return_index=True)[1]])
