"""What is found about a run, in memory and on disk, against what a loop would find."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from prcut import ratio_cut
from prcut.errors import InvalidInputError
from prcut.fit.config import FitConfig
from prcut.graph.blocks.read import Blocks
from prcut.graph.similarity_graph import load_graph
from prcut.runs.labels import RowLabels
from prcut.runs.run import fit_run
from prcut.runtime.folder import Folder
from prcut.training.assigner.predict import assign_probs
from prcut.training.assigner.saved import load_model
from prcut.ui.report import inspection as library
from prcut.ui.report.inspection import Inspection, inspect_run

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")

SMALL: dict[str, Any] = {"max_steps": 30, "n_init": 1, "n_neighbors": 10}
Blobs = tuple[Path, np.ndarray]


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Blobs:
    rows, _ = make_blobs(600, 6, centers=4, cluster_std=2.0, random_state=0)
    rows = rows.astype(np.float32)
    folder = tmp_path_factory.mktemp("runs")
    np.save(folder / "rows.npy", rows)
    return folder, rows


@pytest.fixture(scope="module")
def in_memory(blobs: Blobs) -> Inspection:
    folder, _ = blobs
    config = FitConfig.of("default", 4, **SMALL)
    fit_run(str(folder / "rows.npy"), folder / "memory", config, device="cpu")
    return inspect_run(folder / "memory")


@pytest.mark.costly("the figures of a run against loops")
def test_figures_are_those_of_the_model_and_the_graph(in_memory: Inspection, blobs: Blobs) -> None:
    folder, rows = blobs
    assigner: Any = load_model(folder / "memory/model").assigner
    probs = assign_probs(assigner, rows)
    np.testing.assert_array_equal(in_memory.labels, probs.argmax(1))
    np.testing.assert_allclose(in_memory.confidence, probs.max(1), rtol=1e-5)
    np.testing.assert_array_equal(in_memory.runner_up, np.argsort(-probs, 1)[:, 1])
    np.testing.assert_array_equal(in_memory.sizes, np.bincount(in_memory.labels, minlength=4))
    graph = load_graph(folder / "memory/graph")
    one_hot = np.eye(4)[in_memory.labels]
    links = one_hot.T @ graph.weight.to_dense().double().numpy() @ one_hot
    np.testing.assert_allclose(in_memory.links, links)
    cut = float(ratio_cut(graph.weight, torch.from_numpy(in_memory.labels)))
    assert in_memory.about["ratio_cut"] == pytest.approx(cut)
    assert in_memory.bound is not None
    assert in_memory.bound.value <= cut
    assert in_memory.n_components == graph.n_components
    assert 0.5 < (in_memory.better_than_chance or 0) <= 1


@pytest.mark.costly("a run on disk: its links are summed over blocks")
def test_blocks_give_the_links_of_all_edges(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = blobs
    config = FitConfig.of("default", 4, **SMALL)
    fit_run(rows, folder / "disk", config, memory=1000, device="cpu")
    with pytest.raises(InvalidInputError, match="does not record where its data are"):
        inspect_run(folder / "disk")
    found = inspect_run(folder / "disk", data=rows)
    of_rows = RowLabels(Folder(folder / "disk/partition")).read(0, len(rows))
    expected = np.zeros((4, 4))
    for block in Blocks(Folder(folder / "disk/blocks")):
        directed = block.links("mean").toarray().astype(np.float64)
        dense = (directed + directed.T) / 2
        one_hot = np.eye(4)[of_rows[block.rows]]
        expected += one_hot.T @ dense @ one_hot
    np.testing.assert_allclose(found.links, expected, rtol=1e-6)
    assert found.bound is None
    # of very many rows some are looked at, spread over all
    monkeypatch.setattr(library, "_RANGE_ROWS", 50)
    part = inspect_run(folder / "disk", data=rows, most_rows=200)
    assert len(part.rows) == len(part.labels) == 200
    assert (part.rows[0], part.rows[-1]) == (0, 599)
    np.testing.assert_array_equal(part.labels, found.labels[part.rows])
