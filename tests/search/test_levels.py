"""A graph that is searched level by level: the same objective nearly, and what is known holds."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from prcut.graph.build import build_graph
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.search.fragments import CoarseGraph, as_coarse
from prcut.search.levels import contract_levels, merge_levels
from prcut.search.partition import find_partition
from prcut.search.prices import Prices
from prcut.search.problem import Problem

N_ROWS, N_CLUSTERS = 3000, 5


@pytest.fixture(scope="module")
def blobs() -> tuple[CoarseGraph, np.ndarray]:
    rows, labels = make_blobs(N_ROWS, 6, centers=N_CLUSTERS, cluster_std=3.5, random_state=1)
    return as_coarse(build_graph(rows, 10, similarity="mean", max_components=9)), labels


def test_levels_keep_all_weight_and_sizes(blobs: tuple[CoarseGraph, np.ndarray]) -> None:
    levels = contract_levels(blobs[0], 2, most_nodes=200)
    assert len(levels.graphs) > 2
    for graph in levels.graphs:
        assert graph.total == pytest.approx(blobs[0].total)
        assert graph.sizes.sum() == N_ROWS
        assert graph.edge_weight == blobs[0].edge_weight
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=len(levels.graphs[-1].sizes))
    coarse, fine = (Problem.of(levels.graphs[at], 2, 0.3) for at in (-1, 0))
    of_rows = levels.of_nodes(labels)
    assert coarse.score(labels).objective == pytest.approx(fine.score(of_rows).objective)
    assert np.array_equal(levels.of_groups(of_rows, 2), labels)


def test_the_objective_is_that_of_the_full_search(blobs: tuple[CoarseGraph, np.ndarray]) -> None:
    graph, labels = blobs
    full = find_partition(graph, N_CLUSTERS)
    assert len(contract_levels(graph, N_CLUSTERS).graphs) == 1  # few rows are not contracted
    found = find_partition(
        graph, N_CLUSTERS, levels=contract_levels(graph, N_CLUSTERS, most_nodes=400)
    )
    assert found.objective <= 1.01 * full.objective
    scored = Problem.of(graph, N_CLUSTERS, found.balance_weight).score(found.labels)
    assert found.objective == scored.objective
    assert adjusted_rand_score(labels, found.labels) > 0.9
    assert all(len(start) == N_ROWS for start in found.starts)
    again = find_partition(
        graph, N_CLUSTERS, n_jobs=2, levels=contract_levels(graph, N_CLUSTERS, most_nodes=400)
    )
    assert np.array_equal(found.labels, again.labels)


def test_weights_in_single_precision_find_the_same(
    blobs: tuple[CoarseGraph, np.ndarray],
) -> None:
    found = []
    for dtype in (np.float32, np.float64):
        graph = CoarseGraph.of_rows(blobs[0].links.astype(dtype))
        levels = contract_levels(graph, N_CLUSTERS, most_nodes=400)
        found.append(find_partition(graph, N_CLUSTERS, levels=levels).labels)
    assert np.array_equal(*found)


def test_what_is_known_holds_on_every_level(blobs: tuple[CoarseGraph, np.ndarray]) -> None:
    graph, labels = blobs
    rng = np.random.default_rng(0)
    known = np.sort(rng.choice(N_ROWS, 60, replace=False))
    preferred, price = np.full(N_ROWS, -1), np.zeros(N_ROWS)
    preferred[known], price[known] = labels[known], np.inf
    prices = Prices(preferred, price)
    levels = contract_levels(graph, N_CLUSTERS, prices=prices, most_nodes=400)
    found = find_partition(graph, N_CLUSTERS, prices=prices, levels=levels)
    assert np.array_equal(found.labels[known], labels[known])
    assert (found.labels == labels).mean() > 0.9


@pytest.mark.parametrize("n_clusters", [2, 40, 700])
def test_groups_merge_to_as_many_clusters_as_are_wanted(
    blobs: tuple[CoarseGraph, np.ndarray], n_clusters: int
) -> None:
    problem = Problem.of(blobs[0], n_clusters, 0.3)
    found = merge_levels(problem, np.random.default_rng(0))
    assert len(np.unique(found.labels)) == n_clusters
    assert problem.refine(found.labels).objective >= found.objective - 1e-9  # no row would move


@pytest.mark.parametrize("kind", ["star", "copies"])
def test_graphs_with_hubs_are_contracted_in_few_levels(kind: str) -> None:
    n_rows = 4000
    if kind == "star":
        neighbors = np.zeros((n_rows, 1), np.int64)
        neighbors[0] = 1
    else:  # most rows find the same few
        neighbors = np.tile(np.arange(15), (n_rows, 1))
        neighbors[:15] = np.arange(100, 115)
    graph = as_coarse(SimilarityGraph.from_neighbors(neighbors))
    levels = contract_levels(graph, 2, most_nodes=200)
    assert len(levels.graphs) <= 6
    assert len(levels.graphs[-1].sizes) <= 400
