from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from prcut import build_graph, ratio_cut
from prcut.fit.assign import train_further
from prcut.fit.config import FitConfig
from prcut.fit.fit import fit_rows
from prcut.numerics.objective import hard_objective
from prcut.runtime.folder import Folder
from prcut.training.state import Record

CONFIG = FitConfig.of(
    "default", 3, solver="train", max_steps=100, batch_size=512, n_heads=2, n_init=2
)


@pytest.mark.costly("two starts are trained")
def test_the_best_start_is_kept_and_finished_ones_are_not_trained_again(tmp_path: Path) -> None:
    rows, labels = make_blobs(900, 5, centers=3, cluster_std=1.5, random_state=0)
    graph, folder = build_graph(rows, 30, max_components=3), Folder(tmp_path)
    seen: dict[int, list[Record]] = {0: [], 1: []}
    fit = fit_rows(
        rows, CONFIG, graph, checkpoint=folder, on_record=lambda start, r: seen[start].append(r)
    )
    assert fit.labels is not None
    assert adjusted_rand_score(labels, fit.labels) > 0.98
    found = torch.from_numpy(fit.labels)
    assert fit.score.objective == pytest.approx(hard_objective(graph.weight, found, 3))
    assert fit.score.ratio_cut == pytest.approx(ratio_cut(graph.weight, found, 3).item())
    assert fit.state.records in seen.values()
    assert all(seen.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["start-0", "start-1"]
    trained: list[int] = []
    again = fit_rows(
        rows, CONFIG, graph, checkpoint=folder, on_record=lambda start, _: trained.append(start)
    )
    assert trained == []
    assert again.score.objective == fit.score.objective
    np.testing.assert_array_equal(again.labels, fit.labels)


def test_steps_count_on_after_a_distillation() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    config = FitConfig.of("default", 2, solver="train", n_heads=1, max_steps=50)
    graph = build_graph(rows, 5)
    first = fit_rows(rows, replace(config, solver="search"), graph).start()
    again = train_further(rows, graph, config, first)
    assert again.state.step == first.state.step + 10
    assert len(again.state.history["cut"]) == 1  # nothing is left of the other records
    assert all(torch.isfinite(p).all() for p in again.assigner.parameters())
