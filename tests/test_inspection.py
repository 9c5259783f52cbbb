"""What is found about a run, in memory, on disk and in levels, against what a loop would find."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from prcut import inspection as library
from prcut import ratio_cut
from prcut.advice import advise
from prcut.assignment import assign_labels, assign_probs
from prcut.blocks import open_blocks
from prcut.certificate import SpectralBound
from prcut.errors import InvalidInputError
from prcut.fitting import FitConfig
from prcut.graph_folder import load_graph
from prcut.inspection import Inspection, inspect_run
from prcut.levels import fit_levels
from prcut.runs import fit_run
from prcut.sources import ArraySource

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")

SMALL: dict[str, Any] = {"max_steps": 60, "n_init": 1, "n_neighbors": 10}


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    rows, _ = make_blobs(600, 6, centers=4, cluster_std=2.0, random_state=0)
    rows = rows.astype(np.float32)
    folder = tmp_path_factory.mktemp("runs")
    np.save(folder / "rows.npy", rows)
    return folder, rows


@pytest.fixture(scope="module")
def in_memory(blobs: tuple[Path, np.ndarray]) -> Inspection:
    folder, _ = blobs
    config = FitConfig.of("default", 4, **SMALL)
    fit_run(str(folder / "rows.npy"), folder / "memory", config, device="cpu")
    return inspect_run(folder / "memory")


def test_figures_are_those_of_the_model_and_the_graph(
    in_memory: Inspection, blobs: tuple[Path, np.ndarray]
) -> None:
    folder, rows = blobs
    from prcut.model_folder import load_model

    assigner: Any = load_model(folder / "memory/model").assigner
    probs = assign_probs(assigner, rows)
    np.testing.assert_array_equal(in_memory.labels, probs.argmax(1))
    np.testing.assert_allclose(in_memory.confidence, probs.max(1), rtol=1e-5)
    np.testing.assert_array_equal(in_memory.runner_up, np.argsort(-probs, 1)[:, 1])
    np.testing.assert_array_equal(in_memory.rows, np.arange(600))
    np.testing.assert_array_equal(in_memory.sizes, np.bincount(in_memory.labels, minlength=4))
    graph = load_graph(folder / "memory/graph")
    dense = graph.weight.to_dense().double().numpy()
    for i in range(4):
        inside = in_memory.labels == i
        assert in_memory.mean_confidence[i] == pytest.approx(probs.max(1)[inside].mean(), rel=1e-5)
        for j in range(4):
            expected = dense[np.ix_(inside, in_memory.labels == j)].sum()
            assert in_memory.links is not None
            assert in_memory.links[i, j] == pytest.approx(expected)
    np.testing.assert_allclose(in_memory.link_shares.sum(1), 1)
    cut = float(ratio_cut(graph.weight, torch.from_numpy(in_memory.labels)))
    assert in_memory.about["ratio_cut"] == pytest.approx(cut)
    assert in_memory.bound is not None
    assert in_memory.bound.value <= cut
    assert in_memory.bound_ratio == pytest.approx(cut / in_memory.bound.value)
    assert in_memory.n_components == graph.n_components
    assert 0.5 < (in_memory.better_than_chance or 0) <= 1
    assert set(in_memory.history) == {"step", "objective", "cut", "imbalance", "confidence"}
    assert in_memory.merges is not None
    assert in_memory.merges.children.shape == (3, 2)


def test_examples_are_nearest_and_least_sure(in_memory: Inspection) -> None:
    for cluster, example in enumerate(in_memory.examples(5)):
        inside = np.flatnonzero(in_memory.labels == cluster)
        nearest = inside[np.argsort(in_memory.distances[inside], kind="stable")[:5]]
        np.testing.assert_array_equal(example.typical, nearest)
        assert example.confidence.max() <= np.sort(in_memory.confidence[inside])[4]
        assert (in_memory.labels[example.ambiguous] == cluster).all()
        assert (example.runner_up != cluster).all()


def test_the_same_run_gives_the_same_map(
    in_memory: Inspection, blobs: tuple[Path, np.ndarray]
) -> None:
    again = inspect_run(blobs[0] / "memory")
    np.testing.assert_array_equal(again.places, in_memory.places)


def test_blocks_give_the_links_of_all_edges(
    blobs: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = blobs
    config = FitConfig.of("default", 4, **SMALL)
    result = fit_run(rows, folder / "disk", config, memory=1000, device="cpu")
    with pytest.raises(InvalidInputError, match="does not say where its data are"):
        inspect_run(folder / "disk")
    found = inspect_run(folder / "disk", data=rows)
    expected = np.zeros((4, 4))
    for block in open_blocks(folder / "disk/blocks"):
        labels = assign_labels(result.assigner, block.features)
        dense = block.graph("mean").weight.to_dense().double().numpy()
        one_hot = np.eye(4)[labels]
        expected += one_hot.T @ dense @ one_hot
    np.testing.assert_allclose(found.links, expected, rtol=1e-6)
    assert found.bound is None
    # of very many rows some are looked at, spread over all
    monkeypatch.setattr(library, "_PIECE_ROWS", 50)
    part = inspect_run(folder / "disk", data=rows, most_rows=200)
    assert len(part.rows) == len(part.labels) == 200
    assert part.rows[0] == 0
    assert part.rows[-1] == 599
    np.testing.assert_array_equal(part.labels, found.labels[part.rows])


def test_levels_know_their_first(blobs: tuple[Path, np.ndarray]) -> None:
    folder, _ = blobs
    config = FitConfig.of("default", 2, **{**SMALL, "max_steps": 20})
    result = fit_levels(str(folder / "rows.npy"), folder / "levels", (2, 3), config, device="cpu")
    found = inspect_run(folder / "levels")
    assert found.n_clusters == result.n_clusters
    assert found.first_level is not None
    assert found.first_level.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.links is None
    assert (found.runner_up == -1).all()
    assert found.better_than_chance is None  # there is no graph of the whole


def test_other_data_and_unfinished_runs_are_refused(
    in_memory: Inspection, blobs: tuple[Path, np.ndarray]
) -> None:
    folder, rows = blobs
    with pytest.raises(InvalidInputError, match=r"is not what .* was fitted to"):
        inspect_run(folder / "memory", data=rows + 1)
    with pytest.raises(InvalidInputError, match="is not a run folder"):
        inspect_run(folder)
    assert in_memory.name == "memory"
    result = folder / "memory/result.json"
    content = result.read_text()
    result.unlink()
    try:
        with pytest.raises(InvalidInputError, match="not finished"):
            inspect_run(folder / "memory")
    finally:
        result.write_text(content)


# -- advice ----------------------------------------------------------------------------------


def made_up(labels: np.ndarray, n_clusters: int, **options: Any) -> Inspection:
    n = len(labels)
    fields: dict[str, Any] = {
        "name": "run",
        "source": ArraySource(np.zeros((n, 2))),
        "about": {},
        "rows": np.arange(n),
        "labels": labels,
        "runner_up": np.full(n, -1),
        "confidence": np.full(n, 0.99, np.float32),
        "places": np.zeros((n, 2)),
        "distances": np.zeros(n),
        "n_clusters": n_clusters,
    }
    return Inspection(**(fields | options))


EVEN = np.arange(400) % 4
FALLING = np.linspace(2.0, 1.0, 100)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (made_up(EVEN % 3, 4), ["1 of 4 clusters without rows (3)", "ask for 3 clusters"]),
        (made_up(np.r_[EVEN, 4], 5), ["1 of 5 clusters with less than 5% of the mean size (4)"]),
        (made_up(np.r_[np.zeros(3000, int), EVEN], 4), ["cluster 0 has 91% of the rows"]),
        (made_up(EVEN, 4, confidence=np.full(400, 0.4)), ["100% of the rows", "fewer clusters"]),
        (made_up(EVEN, 4, about={"objective": 2.7}), ["only 10% better than by chance"]),
        (
            made_up(EVEN, 4, links=np.eye(4) + np.eye(4)[[1, 0, 2, 3]]),
            ["0 to 1 (50%), 1 to 0 (50%)", "fewer clusters"],
        ),
        (made_up(EVEN, 4, n_components=9), ["falls into 9 parts", "--neighbors"]),
        (made_up(EVEN, 4, found_labels=np.zeros(400)), ["25% of the rows", "--steps"]),
        (
            made_up(
                EVEN,
                4,
                about={"solver": "train", "n_steps": 1000, "max_steps": 1000},
                history={"objective": FALLING},
            ),
            ["still falling, by 8.8%", "--steps"],
        ),
    ],
)
def test_every_warning_is_given_and_says_what_to_do(found: Inspection, words: list[str]) -> None:
    (advice,) = advise(found)
    for word in words:
        assert word in advice


def test_what_is_cut_most_merges_first() -> None:
    links = 10 * np.eye(4) + 0.1
    links[1, 3] = links[3, 1] = 4
    labels = np.repeat(np.arange(4), [10, 200, 20, 200])  # not the two smallest
    tree = made_up(labels, 4, links=links, about={"balance_weight": 1.0}).merges
    assert tree is not None
    assert tree.children[0].tolist() == [1, 3]
    assert tree.costs[0] < 0


def test_a_good_clustering_is_not_warned_of() -> None:
    good = made_up(
        EVEN,
        4,
        about={"objective": 0.1, "solver": "train", "n_steps": 500, "max_steps": 1000},
        links=np.eye(4) + 0.01,
        n_components=4,
        found_labels=EVEN,
        history={"objective": FALLING},
        bound=SpectralBound(1.0, torch.zeros(4), 0.0),
    )
    assert advise(good) == []
