from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from prcut import Assigner, SimilarityGraph, build_blocks, build_graph, fitting, ratio_cut
from prcut.blocks import BlockConfig
from prcut.errors import InvalidInputError
from prcut.fitting import (
    FitConfig,
    Taught,
    choose_device,
    choose_graph,
    choose_n_neighbors,
    fit_graph,
    fit_shards,
    measure_features,
    measure_fit,
)
from prcut.objective import hard_objective
from prcut.pair_shards import ShardConfig, write_pair_shards
from prcut.partition import Draft, Partition
from prcut.storage import Folder
from prcut.train_state import Record, TrainConfig, TrainState

CONFIG = FitConfig.of("default", 3, solver="train", max_steps=150, learning_rate=0.01, n_init=2)
SEARCH = FitConfig.of("default", 3, max_steps=150)


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = make_blobs(900, 5, centers=3, cluster_std=1.5, random_state=0)
    return rows.astype(np.float32), labels


@pytest.fixture(scope="module")
def graph(blobs: tuple[np.ndarray, np.ndarray]) -> SimilarityGraph:
    return build_graph(blobs[0], 30, max_components=3)


def test_the_best_start_with_its_figures(
    blobs: tuple[np.ndarray, np.ndarray], graph: SimilarityGraph
) -> None:
    rows, labels = blobs
    seen: dict[int, list[Record]] = {0: [], 1: []}
    fit = fit_graph(graph, rows, CONFIG, on_record=lambda start, r: seen[start].append(r))
    assert fit.labels is not None
    assert adjusted_rand_score(labels, fit.labels) > 0.98
    found = torch.from_numpy(fit.labels)
    assert fit.objective == pytest.approx(hard_objective(graph.weight, found, 3).item())
    assert fit.ratio_cut == pytest.approx(ratio_cut(graph.weight, found, 3).item())
    assert fit.state.records in seen.values()
    assert all(seen.values())


def test_starts_are_saved_and_skipped_when_finished(
    blobs: tuple[np.ndarray, np.ndarray], graph: SimilarityGraph, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    first = fit_graph(graph, blobs[0], CONFIG, checkpoint=folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["start-0", "start-1"]
    trained: list[int] = []
    again = fit_graph(
        graph, blobs[0], CONFIG, checkpoint=folder, on_record=lambda start, _: trained.append(start)
    )
    assert trained == []
    assert again.objective == first.objective
    np.testing.assert_array_equal(again.labels, first.labels)


def test_a_partition_is_searched_and_taught(
    blobs: tuple[np.ndarray, np.ndarray], graph: SimilarityGraph
) -> None:
    rows, labels = blobs
    seen: list[tuple[int, Record]] = []
    fit = fit_graph(graph, rows, SEARCH, on_record=lambda *both: seen.append(both))
    assert fit.labels is not None
    assert adjusted_rand_score(labels, fit.labels) > 0.98
    found = torch.from_numpy(fit.labels)
    assert fit.objective == pytest.approx(
        hard_objective(graph.weight, found, 3, balance_weight=1.0).item()
    )
    assert [record for _, record in seen] == fit.state.records
    assert {start for start, _ in seen} == {0}
    assert fit.assigner.hidden == (256,)
    # the assigner has learned what was found, and says so with other figures
    taught = measure_fit(fit, graph, rows)
    assert taught.labels is not None
    assert (taught.labels == fit.labels).mean() > 0.99
    assert taught.objective == pytest.approx(
        hard_objective(graph.weight, torch.from_numpy(taught.labels), 3, balance_weight=1.0).item()
    )


def test_a_partition_that_is_known_is_only_taught(
    blobs: tuple[np.ndarray, np.ndarray], graph: SimilarityGraph
) -> None:
    """Two of the true classes as one: no search would find it."""
    labels = np.minimum(blobs[1], 1).astype(np.int64)
    fit = fit_graph(graph, blobs[0], SEARCH, partition=Partition(labels, 0.0))
    assert fit.labels is not None
    np.testing.assert_array_equal(fit.labels, labels)
    assert list(fit.cluster_sizes) == [300, 600, 0]


def test_more_neighbours_where_starts_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    star = SimilarityGraph.from_neighbors([[1], [0], [0], [0], [0]])
    agreement = {10: 0.5, 30: 0.95, 100: 0.99}
    built: list[int] = []

    def build(n_neighbors: int) -> SimilarityGraph:
        built.append(n_neighbors)
        return graph

    graph = star

    def draft(*_: object, **__: object) -> Draft:
        return Draft(
            Partition(np.zeros(2, np.int64), 0.0, agreement[built[-1]]), np.zeros(2, np.int64)
        )

    def search(_: object, __: FitConfig, draft: Draft) -> Partition:
        return draft.partition

    monkeypatch.setattr(fitting, "draft_partition", draft)
    monkeypatch.setattr(fitting, "_search", search)
    config = FitConfig(10)
    assert choose_graph(build, 60_000, config).n_neighbors == 30
    assert built == [10, 30]
    agreement[30] = 0.6
    agreement[100] = 0.55
    assert choose_graph(build, 60_000, config).n_neighbors == 100  # where none decide, the most
    built.clear()
    agreement[40] = 0.1
    choose_graph(build, 60_000, replace(config, n_neighbors=40))
    assert built == [40]
    # without hubs the fewest do, whatever starts say
    graph = SimilarityGraph.from_neighbors([[1], [2], [3], [4], [0]])
    built.clear()
    assert choose_graph(build, 60_000, config).n_neighbors == 10
    assert built == [10]


def test_neighbours_to_try_suit_the_rows() -> None:
    for n_samples in (2, 3, 10, 11, 50, 1000, 10**5, 10**6, 10**9):
        for n_clusters in (1, 2, 10, 10_000):
            tried = fitting._neighbors_to_try(n_samples, FitConfig(n_clusters))
            assert tried == sorted(set(tried))
            assert 1 <= tried[0] <= tried[-1] < n_samples
            assert n_samples * tried[-1] <= max(2.1e7, 15 * n_samples)
    assert fitting._neighbors_to_try(60_000, FitConfig(10)) == [10, 30, 100]


def test_no_start_is_made_when_there_is_nothing_left_to_gain() -> None:
    rows, _ = make_blobs(300, 5, centers=3, cluster_std=0.1, random_state=0)
    graph = build_graph(rows, 30, max_components=3)
    starts: set[int] = set()
    fit = fit_graph(graph, rows, CONFIG, on_record=lambda start, _: starts.add(start))
    assert fit.objective < 1e-4
    assert starts == {0}


def test_rows_on_disk_are_fitted_like_rows_in_memory(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    rows, labels = blobs
    config = BlockConfig(n_neighbors=30, block_rows=300, halo=3)
    blocks = build_blocks(rows, tmp_path / "blocks", config)
    shards = write_pair_shards(
        blocks, tmp_path / "pairs", ShardConfig(pairs_per_anchor=20, n_steps=4)
    )
    fit = fit_shards(shards, blocks, CONFIG)
    assert fit.labels is None
    with torch.no_grad():
        found = fit.assigner(torch.from_numpy(rows)).argmax(1)
    assert adjusted_rand_score(labels, found) > 0.98
    # a start that is better than what was taught before is kept
    knows_nothing = Assigner(rows.shape[1], 3)
    taught = Taught(knows_nothing, TrainState.start(knows_nothing, CONFIG.train))
    again = fit_shards(shards, blocks, CONFIG, taught=taught)
    assert (again.objective, again.assigner is knows_nothing) == (fit.objective, False)
    # the sum over blocks is the objective of the joined graph
    joined = build_graph(rows, 30, similarity="mean", max_components=3)
    expected = hard_objective(joined.weight, found, 3).item()
    assert fit.objective == pytest.approx(expected, rel=0.02)
    assert fit.ratio_cut == pytest.approx(ratio_cut(joined.weight, found, 3).item(), rel=0.02)


def test_a_function_cannot_weigh_pairs_on_disk(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    blocks = build_blocks(blobs[0], tmp_path / "blocks", BlockConfig(n_neighbors=3))
    shards = write_pair_shards(blocks, tmp_path / "pairs")
    config = FitConfig(3, similarity=lambda a, b: np.ones(len(a)))
    with pytest.raises(InvalidInputError, match="similarity must be a name where rows are on disk"):
        fit_shards(shards, blocks, config)


def test_uniform_pairs_of_few_rows(
    blobs: tuple[np.ndarray, np.ndarray], graph: SimilarityGraph
) -> None:
    """The paper's batch is larger than the data: all rows are taken."""
    config = FitConfig.of("paper", 3, max_steps=60, learning_rate=0.03)
    fit = fit_graph(graph, blobs[0], config)
    assert fit.labels is not None
    assert adjusted_rand_score(blobs[1], fit.labels) > 0.98


def test_presets() -> None:
    ours, paper = FitConfig.of("default", 10), FitConfig.of("paper", 10, seed=3)
    assert ours == FitConfig(10)
    assert (ours.solver, ours.layers, ours.n_starts) == ("search", (256,), 2)
    assert (ours.in_use, replace(ours, solver="train").in_use) == (ours.teach, ours.train)
    assert (paper.pairs, paper.n_init, paper.train) == ("uniform", 1, TrainConfig.paper(10, 3))
    assert (paper.solver, paper.similarity, paper.layers) == ("train", "binary", ())
    mixed = FitConfig.of("paper", 10, batch_size=512, metric="cosine", hidden=None)
    assert (mixed.train.batch_size, mixed.metric, mixed.hidden) == (512, "cosine", None)
    given = FitConfig.of("default", 10, balance_weight=0.25, max_steps=7, n_init=3, hidden=(5,))
    for part in (given.train, given.teach):
        assert (part.balance_weight, part.max_steps) == (0.25, 7)
    assert (given.n_starts, given.layers) == (3, (5,))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be a whole number"),
        ({"n_neighbors": 0}, "n_neighbors=0 must be a whole number"),
        ({"n_init": 0}, "n_init=0 must be a whole number"),
        ({"walk_length": 0}, "walk_length=0 must be a whole number"),
        ({"pairs": "all"}, "pairs='all' must be 'walk' or 'uniform'"),
        ({"solver": "magic"}, "solver='magic' must be 'search' or 'train'"),
    ],
)
def test_wrong_settings(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        FitConfig(**{"n_clusters": 3, **wrong})  # type: ignore[arg-type]


def test_neighbours_stay_below_the_rows_and_above_nothing() -> None:
    for n_samples in (2, 3, 10, 11, 1000, 10**5, 10**6, 10**9):
        for n_clusters in (1, 10, 10_000):
            chosen = choose_n_neighbors(n_samples, n_clusters)
            assert 1 <= chosen < n_samples
            assert chosen <= 150
            assert n_samples * chosen <= max(2.1e7, 15 * n_samples)


def test_origin_and_scale_of_dense_and_sparse_features() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(3, 2, (1000, 7)) * (rng.random((1000, 7)) < 0.3)
    origin, scale = measure_features(rows)
    np.testing.assert_allclose(origin, rows.mean(0), rtol=1e-5)
    assert scale == pytest.approx(np.sqrt(((rows - rows.mean(0)) ** 2).mean()), rel=1e-5)
    sparse_origin, sparse_scale = measure_features(csr_array(rows))
    torch.testing.assert_close(sparse_origin, origin)
    assert sparse_scale == pytest.approx(scale, rel=1e-5)
    assert measure_features(np.ones((5, 2)))[1] == 1.0  # rows that are all the same


def test_a_sample_is_enough_for_many_rows() -> None:
    rows = np.random.default_rng(0).normal(1, 2, (200_000, 2)).astype(np.float32)
    origin, scale = measure_features(rows)
    np.testing.assert_allclose(origin, 1, atol=0.05)
    assert scale == pytest.approx(2, rel=0.02)


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(InvalidInputError, match="device='gpu' cannot be used: "):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InvalidInputError, match="device='cuda' cannot be used: "):
            choose_device("cuda")
