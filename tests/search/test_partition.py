from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

import reference
from prcut import SimilarityGraph
from prcut.numerics.objective import ClusterCost, hard_objective
from prcut.runtime.progress import StepLog
from prcut.search.balance import Resampled, choose_balance
from prcut.search.fragments import CoarseGraph, choose_n_fragments
from prcut.search.moves import find_optimum
from prcut.search.partition import (
    _keep_largest,
    find_partition,
    merge_clusters,
    refine_labels,
)
from prcut.search.problem import Partition


def knn_graph(rows: np.ndarray, n_neighbors: int = 10) -> SimilarityGraph:
    matrix = kneighbors_graph(rows, n_neighbors)
    return SimilarityGraph.from_scipy(matrix.maximum(matrix.T))


def block_model(sizes: list[int], inside: float, outside: float) -> SimilarityGraph:
    """Edges of random weight, drawn more often within blocks than between them."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    chance = np.where(labels[:, None] == labels, inside, outside)
    upper = np.triu(rng.random(chance.shape) < chance, 1) * rng.uniform(0.5, 1.5, chance.shape)
    return SimilarityGraph.from_scipy((upper + upper.T).astype(np.float32))


def check(
    graph: SimilarityGraph, found: Partition, n_clusters: int, balance_weight: float | None = None
) -> None:
    """Every cluster has rows, and the objective is that of the labels."""
    assert balance_weight in (None, found.balance_weight)
    balance_weight = found.balance_weight
    assert found.labels.shape == (graph.n_samples,)
    assert found.labels.dtype == np.int64
    assert sorted(set(found.labels.tolist())) == list(range(n_clusters))
    labels = torch.from_numpy(found.labels)
    official = hard_objective(graph.weight, labels, n_clusters, balance_weight=balance_weight)
    assert found.objective == pytest.approx(official, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blobs_are_found(dtype: type) -> None:
    rows, labels = make_blobs(900, 3, centers=6, cluster_std=0.5, random_state=1)
    matrix = knn_graph(rows).to_scipy().astype(dtype)
    graph = SimilarityGraph.from_scipy(matrix)
    found = find_partition(graph, 6)
    check(graph, found, 6)
    assert adjusted_rand_score(labels, found.labels) >= 0.98


def test_moons_are_found() -> None:
    rows, labels = make_moons(700, noise=0.05, random_state=0)
    graph = knn_graph(rows)
    found = find_partition(graph, 2)
    check(graph, found, 2)
    assert adjusted_rand_score(labels, found.labels) >= 0.98


@pytest.mark.parametrize("balance_weight", [0.5, 1.0, 2.0])
def test_blocks_of_a_weighted_random_graph_are_found(balance_weight: float) -> None:
    sizes = [60, 100, 140, 200]
    graph = block_model(sizes, inside=0.25, outside=0.01)
    found = find_partition(graph, 4, balance_weight=balance_weight)
    check(graph, found, 4, balance_weight)
    assert adjusted_rand_score(np.repeat(np.arange(4), sizes), found.labels) >= 0.98


def test_weights_decide_where_all_rows_are_linked() -> None:
    labels = np.arange(30) % 3
    matrix = np.where(labels[:, None] == labels, 1.0, 0.2)
    graph = SimilarityGraph.from_scipy(matrix)
    found = find_partition(graph, 3)
    check(graph, found, 3)
    assert adjusted_rand_score(labels, found.labels) == 1


def test_small_graphs_are_solved_as_by_trying_all() -> None:
    for seed in range(4):
        graph = reference.random_graph(9, seed, density=0.4)
        dense = graph.weight.to_dense().numpy()
        optimum = min(
            reference.partition_objective(dense, np.ones(9), labels, 2, dense.sum(), 1.0)
            for labels in (np.array([*np.binary_repr(code, 9)], int) for code in range(1, 2**8))
        )
        assert find_partition(graph, 2, balance_weight=1.0, seed=seed).objective == pytest.approx(
            optimum
        )


def test_a_seed_decides() -> None:
    graph = knn_graph(np.random.default_rng(0).random((500, 3)))
    one, two, other = (find_partition(graph, 6, n_init=1, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.labels, two.labels)
    assert one.objective == two.objective
    assert not np.array_equal(one.labels, other.labels)


@pytest.mark.parametrize(("n_clusters", "size"), [(2, 80), (4, 15), (6, 15), (6, 80), (12, 15)])
def test_components_are_joined_or_cut(n_clusters: int, size: int) -> None:
    blocks = np.repeat(np.arange(6), size)
    rng = np.random.default_rng(0)
    rows = np.column_stack([100.0 * blocks, rng.standard_normal((6 * size, 2))])
    graph = knn_graph(rows, 5)
    assert graph.n_components >= 6
    found = find_partition(graph, n_clusters, balance_weight=1.0, n_init=4)
    check(graph, found, n_clusters)
    if n_clusters <= 6:  # then nothing has to be cut
        whole = np.minimum(blocks, n_clusters - 1) if n_clusters == 4 else blocks % n_clusters
        planted = hard_objective(
            graph.weight, torch.from_numpy(whole), n_clusters, balance_weight=1.0
        )
        assert found.objective <= planted + 1e-9


@pytest.mark.parametrize("n_clusters", [2, 3])
def test_stars(n_clusters: int) -> None:
    graph = SimilarityGraph.from_neighbors(np.array([[-1]] + [[0]] * 40))
    found = find_partition(graph, n_clusters)
    check(graph, found, n_clusters)
    # every leaf away from the hub is an edge cut: balance decides how many are
    even = find_partition(graph, n_clusters, balance_weight=100.0)
    check(graph, even, n_clusters, 100.0)
    assert np.ptp(np.bincount(even.labels)) <= 1
    free = find_partition(graph, n_clusters, balance_weight=0.0)
    check(graph, free, n_clusters, 0.0)
    assert sorted(np.bincount(free.labels))[:-1] == [1] * (n_clusters - 1)


@pytest.mark.parametrize("n_samples", [40, 500])
def test_rows_that_are_all_alike(n_samples: int) -> None:
    graph = SimilarityGraph.from_labels(np.zeros(n_samples, np.int64))
    found = find_partition(graph, 5, n_init=1)
    check(graph, found, 5)


@pytest.mark.parametrize("n_samples", [10, 500])
@pytest.mark.parametrize("n_clusters", [1, 5])
def test_graphs_without_edges_are_balanced(n_samples: int, n_clusters: int) -> None:
    graph = SimilarityGraph.from_neighbors(np.full((n_samples, 1), -1))
    found = find_partition(graph, n_clusters)
    check(graph, found, n_clusters)
    assert found.objective < 1e-2


@pytest.mark.parametrize("n_samples", [1, 2, 30, 450])
def test_one_cluster_and_one_of_every_row(n_samples: int) -> None:
    graph = reference.random_graph(n_samples, density=min(1.0, 5 / n_samples))
    check(graph, find_partition(graph, 1), 1)
    found = find_partition(graph, n_samples, n_init=1)
    check(graph, found, n_samples)


def test_more_clusters_than_noise_distinguishes(monkeypatch: pytest.MonkeyPatch) -> None:
    # cliques that are one fragment each are split where more clusters are wanted
    blocks = np.repeat(np.arange(4), 20)
    graph = SimilarityGraph.from_labels(blocks)
    monkeypatch.setattr(
        "prcut.search.fragments.find_fragments", lambda graph, n_fragments, seed: blocks
    )
    check(graph, find_partition(graph, 9), 9)
    assert find_partition(graph, 4).objective == pytest.approx(0.0, abs=1e-9)


def test_no_balance_is_allowed() -> None:
    graph = reference.random_graph(80, seed=2, density=0.1)
    check(graph, find_partition(graph, 4, balance_weight=0.0), 4, 0.0)


def test_the_graph_is_left_as_it_is() -> None:
    graph = reference.random_graph(60, seed=2, density=0.1)
    before = graph.weight.clone()
    find_partition(graph, 3)
    assert torch.equal(graph.weight.values(), before.values())
    assert torch.equal(graph.weight.col_indices(), before.col_indices())


def test_no_worse_than_spectral_clustering_of_digits() -> None:
    rows, classes = load_digits(return_X_y=True)
    digits = knn_graph(rows)
    weight = digits.to_scipy()
    spectral = SpectralClustering(
        10, affinity="precomputed", assign_labels="cluster_qr", random_state=0
    )
    # scikit-learn wants indices of 32 bits
    parts = weight.data, weight.indices.astype(np.int32), weight.indptr.astype(np.int32)
    labels = spectral.fit_predict(csr_array(parts, shape=weight.shape)).astype(np.int64)
    labels = refine_labels(digits, labels, 10, balance_weight=1.0)
    peer = hard_objective(digits.weight, torch.from_numpy(labels), 10, balance_weight=1.0)
    found = find_partition(digits, 10, balance_weight=1.0, n_init=1)
    check(digits, found, 10)
    assert found.objective <= peer + 1e-9
    assert adjusted_rand_score(classes, found.labels) > 0.8


def test_what_is_returned_is_no_worse_than_any_start() -> None:
    graph, log = knn_graph(np.random.default_rng(0).random((2000, 6))), StepLog()
    found = find_partition(graph, 9, n_init=6, log=log)
    *starts, combined, moved = (step.objective for step in log)
    assert len(starts) == 6
    assert len(set(starts)) > 1  # or the best of them would be no choice
    assert found.objective == moved <= combined <= min(starts)


def test_given_labels_are_refined_and_join_the_starts() -> None:
    graph, log = knn_graph(np.random.default_rng(0).random((2000, 6))), StepLog()
    best = find_partition(graph, 9, balance_weight=1.0, n_init=4, seed=1)
    alone = find_partition(graph, 9, balance_weight=1.0, n_init=0)
    assert best.objective < alone.objective  # or it would be no help
    spoilt = best.labels.copy()
    spoilt[::50] = (spoilt[::50] + 1) % 9
    found = find_partition(graph, 9, balance_weight=1.0, n_init=0, starts=[spoilt], log=log)
    check(graph, found, 9)
    (given,) = (step.objective for step in log if step.name == "given start")
    assert found.objective <= given < alone.objective


def test_what_all_starts_keep_together_moves_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # five rows that hold together are in the wrong clique: none goes alone, nor do two
    planted = np.repeat([0, 1], 20)
    matrix = np.where(planted[:, None] == planted, 1.0, 0.0)
    matrix[:5, :5] = 100.0
    graph = SimilarityGraph.from_scipy(matrix)
    wrong = planted.copy()
    wrong[:5] = 1
    other = (np.arange(40) < 5).astype(np.int64)  # tells the five from the rest, and no more
    monkeypatch.setattr("prcut.search.partition._N_CYCLES", 0)
    found = find_partition(graph, 2, resampled=Resampled(1.0, (wrong, other)))
    assert adjusted_rand_score(planted, found.labels) == 1


def test_starts_that_agree_in_nothing_are_combined_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def watch(coarse: CoarseGraph, *rest: Any, **options: Any) -> Any:
        sizes.append(len(coarse.sizes))
        return find_optimum(coarse, *rest, **options)

    monkeypatch.setattr("prcut.search.problem.find_optimum", watch)
    find_partition(knn_graph(np.random.default_rng(0).normal(size=(2000, 12))), 12)
    # four resamples with two weights; all starts together, the best with each, their results
    assert 1 < len(sizes) <= 4 * 2 + 1 + 4 + 1
    assert max(sizes) <= choose_n_fragments(2000, 12) + 12


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_change_nothing(n_jobs: int) -> None:
    graph = knn_graph(np.random.default_rng(0).random((1500, 4)))
    one, more = (find_partition(graph, 7, n_jobs=number) for number in (1, n_jobs))
    np.testing.assert_array_equal(one.labels, more.labels)


def test_nothing_left_to_gain_stops_the_starts() -> None:
    log = StepLog()
    find_partition(SimilarityGraph.from_labels(np.repeat([0, 1], 20)), 2, n_init=5, log=log)
    assert [step.name for step in log] == [f"start {number}/5" for number in range(1, 5)]


@pytest.mark.parametrize("n_clusters", [1, 2, 6])
def test_the_tree_has_the_clusters_as_leaves(n_clusters: int) -> None:
    graph = knn_graph(make_blobs(120, 2, centers=6, random_state=1)[0])
    found = find_partition(graph, n_clusters, balance_weight=1.0)
    total = float(graph.weight.values().sum())
    cost = ClusterCost.of(120, total, n_clusters, balance_weight=1.0)
    tree = merge_clusters(graph, found.labels, balance_weight=1.0)
    assert len(tree.children) == n_clusters - 1
    np.testing.assert_array_equal(tree.labels(n_clusters), np.arange(n_clusters))
    # merged to the end, all rows are one cluster, which cuts nothing
    constant = cost.factor * np.log(n_clusters)
    assert found.objective + tree.costs.sum() == pytest.approx(constant, abs=1e-9)


def test_labels_are_refined_on_the_graph() -> None:
    graph = block_model([60, 60], inside=0.25, outside=0.01)
    labels = np.repeat([0, 1], 60)
    labels[[3, 70]] = 1, 0
    np.testing.assert_array_equal(refine_labels(graph, labels, 2), np.repeat([0, 1], 60))


def test_a_choice_of_balance_is_not_repeated() -> None:
    graph = knn_graph(np.random.default_rng(0).random((600, 3)))
    chosen = choose_balance(graph, 6, balance_weight=1.0, seed=3)
    at_once = find_partition(graph, 6, balance_weight=1.0, seed=3)
    found = find_partition(graph, 6, seed=3, resampled=chosen)
    check(graph, found, 6, 1.0)
    np.testing.assert_array_equal(found.labels, at_once.labels)
    assert found.agreement == chosen.agreement


def test_the_largest_fragments_stay_and_the_rest_of_each_cluster_is_one() -> None:
    fragments = np.array([0, 0, 0, 1, 2, 2, 3, 4, 5, 5])
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(_keep_largest(fragments, labels), fragments)
    joined = _keep_largest(fragments, labels, 2)
    assert len(set(joined.tolist())) == 2 + 2
    assert set(zip(joined.tolist(), labels.tolist(), strict=True)) == {
        (0, 0),
        (1, 1),
        (2, 0),
        (3, 1),
    }
    np.testing.assert_array_equal(joined[:3], 0)
    np.testing.assert_array_equal(joined[4:6], 1)


@pytest.mark.parametrize("sizes", [(400, 100, 30, 30), (2000, *[50] * 9), (5000, 100)])
def test_unequal_clusters_well_apart_are_found(sizes: tuple[int, ...]) -> None:
    rows, planted = make_blobs(list(sizes), 8, random_state=0)
    found = find_partition(knn_graph(rows), len(sizes))
    assert adjusted_rand_score(planted, found.labels) > 0.99
