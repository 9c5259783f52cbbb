"""Pairs of rows within a distance ε of each other, from the nearest neighbours of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from prcut.errors import InvalidInputError
from prcut.graph.exact_search import remeasure
from prcut.graph.inverted_lists import FEW_COLUMNS, Lists, plan_lists, sort_by_list, tune_within
from prcut.graph.neighbors import Metric, Neighbors, find_neighbors
from prcut.graph.rows import row_products
from prcut.graph.vectors import as_vectors

# a distance that is computed twice may differ in the last digits of a float32
_TOLERANCE = 1e-6
# fraction of the pairs to find that are just within ε: nearer ones are missed more rarely, and most
# are looked for from both ends; and of all neighbours, where these are searched instead
_RECALL, _RECALL_OF_ALL = 0.95, 0.9
# products that are compared at a time
_PRODUCTS = 2**22


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


def find_within(
    features: np.ndarray, rows: np.ndarray, n_most: int, epsilon: float, metric: Metric, seed: int
) -> Neighbors:
    """Return rows that have others within ε, and the nearest of these, at most ``n_most`` each.

    Each list is compared with all rows that read it, as one product. Few rows, few columns, and an
    ε for which too many lists would be read are searched for all neighbours instead.
    """
    vectors, rng = as_vectors(features, metric), np.random.default_rng(seed)
    n_lists = plan_lists(len(features), len(rows)) if features.shape[1] >= FEW_COLUMNS else 0
    n_probe = 0
    if n_lists:
        lists = Lists.fill(vectors, rows, n_lists, rng)
        step = float(np.sqrt(2 * epsilon)) if metric == "cosine" else epsilon
        n_probe = tune_within(lists, step, _RECALL, rng)
    if n_probe == 0:
        options: Any = {"metric": metric, "seed": seed, "recall": _RECALL_OF_ALL}
        return find_neighbors(features, n_most, rows=rows, **options)
    parts = [_read_list(lists, *read, epsilon, n_most) for read in _readers(lists, n_probe)]
    place, found, product = map(np.concatenate, zip(*parts, strict=True))
    kept, rank = _best(place, product, n_most)
    queries, place = np.unique(place[kept], return_inverse=True)
    indices = np.full((len(queries), n_most), -1, np.int64)
    indices[place, rank] = found[kept]
    distances, indices = remeasure(vectors, lists.queries[queries], indices)
    return Neighbors(lists.queries[queries], indices, distances, _RECALL, n_lists, n_probe, metric)


def _readers(lists: Lists, n_probe: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield lists, as parts of the table, and the places of queries that read them."""
    n_queries, n_lists = len(lists.queries), len(lists.centroids)
    blocks = np.array_split(np.arange(n_queries), -(-n_queries * n_lists // _PRODUCTS))
    near = [lists.nearest_lists(lists.take_queries(block), n_probe) for block in blocks]
    readers, bounds = sort_by_list(np.concatenate(near).ravel(), n_lists)
    for number in range(n_lists):
        part = slice(*lists.starts[number : number + 2])
        places = readers[slice(*bounds[number : number + 2])] // n_probe
        n_parts = -(-len(places) * (part.stop - part.start) // _PRODUCTS)
        yield from ((part, some) for some in np.array_split(places, max(1, n_parts)))


def _read_list(
    lists: Lists, part: slice, places: np.ndarray, epsilon: float, n_most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places of queries, rows of a list within ε of them, and their products."""
    queries = lists.take_queries(places)
    product = queries @ lists.table[part].T
    least, size = np.full(len(places), 1 - epsilon), np.ones(len(places))
    if not lists.vectors.by_product:  # q·x − |x|²/2 ≥ (|q|² − ε²)/2
        size = row_products(queries, queries) - 1
        least = (size - epsilon**2) / 2
    # rounded, and measured again later
    is_near = product >= (least - 1e-5 * size)[:, None]
    is_near &= lists.rows[part] != lists.queries[places][:, None]
    query, column = np.divmod(np.flatnonzero(is_near), is_near.shape[1])
    kept, _ = _best(query, product[query, column], n_most)
    query, column = query[kept], column[kept]
    return places[query], lists.rows[part][column], product[query, column]


def _best(place: np.ndarray, product: np.ndarray, n_most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the largest products of every place are, at most so many, and their ranks."""
    order = np.lexsort((-product, place))
    rank = np.arange(len(order)) - np.searchsorted(place[order], place[order])
    return order[rank < n_most], rank[rank < n_most]


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
    pairs = _join([near])
    while len(exemplars := _exemplars(pairs, n_nodes, looking)) > 1:
        n_found = min(found.indices.shape[1], len(exemplars) - 1)
        chosen = np.ascontiguousarray(features[rows[exemplars]])
        again = find_neighbors(chosen, n_found, metric=found.metric, seed=seed)
        more, looking = _near_pairs(again, exemplars, epsilon)
        pairs = _join([pairs, more])
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


def _join(parts: Sequence[Pairs]) -> Pairs:
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


def forest(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes that have a pair, and the least node that each is linked to."""
    nodes, ends = np.unique(np.concatenate([pairs.source, pairs.target]), return_inverse=True)
    source, target = np.split(ends.reshape(-1), 2)
    labels = _components(Pairs(source, target, pairs.distance), len(nodes))
    return nodes, nodes[np.unique(labels, return_index=True)[1]][labels]
