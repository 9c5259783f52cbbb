from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from prcut import SimilarityGraph, build_graph
from prcut.fit.config import FitConfig
from prcut.fit.fit import fit_rows
from prcut.numerics.objective import hard_objective
from prcut.search.partition import refine_labels
from prcut.training.assigner.predict import assign_labels
from prcut.training.state import Record

SEARCH = FitConfig.of("default", 3, max_steps=150)


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = make_blobs(900, 5, centers=3, cluster_std=1.5, random_state=0)
    return rows.astype(np.float32), labels


@pytest.fixture(scope="module")
def graph(blobs: tuple[np.ndarray, np.ndarray]) -> SimilarityGraph:
    return build_graph(blobs[0], 30, max_components=3)


def test_a_partition_is_searched_and_taught(
    blobs: tuple[np.ndarray, np.ndarray], graph: SimilarityGraph
) -> None:
    rows, labels = blobs
    seen: list[tuple[int, Record]] = []
    fit = fit_rows(rows, SEARCH, graph, on_record=lambda *both: seen.append(both))
    assert fit.labels is not None
    assert adjusted_rand_score(labels, fit.labels) > 0.98
    found = torch.from_numpy(fit.labels)
    assert fit.score.objective == pytest.approx(
        hard_objective(graph.weight, found, 3, balance_weight=1.0)
    )
    assert [record for _, record in seen] == fit.state.records
    assert {start for start, _ in seen} == {0}
    assert fit.assigner.hidden == (256,)
    # the assigner has learned the partition
    assert (assign_labels(fit.assigner, rows) == fit.labels).mean() > 0.99


@pytest.mark.costly("a start is trained beside the search")
def test_the_most_effort_trains_a_start_on_the_graph_and_balance_of_the_search(
    blobs: tuple[np.ndarray, np.ndarray], graph: SimilarityGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prcut.fit.fit._MIN_TRAINED_ROWS", 1)
    config = replace(SEARCH, effort="best", n_init=2)
    fit = fit_rows(blobs[0], config, graph)
    steps = {step.name: step.objective for step in fit.steps}
    assert next(iter(steps)) == "trained start"
    assert steps["given start"] >= fit.score.objective
    without = fit_rows(blobs[0], replace(SEARCH, n_init=2), graph)
    assert fit.balance_weight == pytest.approx(without.balance_weight)


@pytest.mark.costly("two trainings, with and without refined labels")
def test_training_ends_with_one_head_for_features_and_refined_labels(
    blobs: tuple[np.ndarray, np.ndarray], graph: SimilarityGraph
) -> None:
    rows, classes = blobs
    config = FitConfig.of("default", 3, solver="train", max_steps=80, refine=False)
    fit, refined = (fit_rows(rows, replace(config, refine=one), graph) for one in (False, True))
    assert fit.labels is not None
    assert refined.labels is not None
    assert (fit.assigner.n_heads, fit.assigner.n_features) == (1, rows.shape[1])
    np.testing.assert_array_equal(assign_labels(fit.assigner, rows), fit.labels)
    assert fit.state.history["head_objectives"].shape == (8, 16)
    assert adjusted_rand_score(classes, fit.labels) > 0.9
    assert refined.score.objective <= fit.score.objective
    moved = refine_labels(graph, fit.labels, 3, balance_weight=config.training_balance)
    np.testing.assert_array_equal(refined.labels, moved)
