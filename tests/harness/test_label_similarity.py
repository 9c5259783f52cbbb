import numpy as np
import pytest
import torch
from benchmarks.harness import label_similarity
from benchmarks.harness.inputs import load_bench_dataset
from benchmarks.harness.label_similarity import LABEL_METHODS, learn_labels
from benchmarks.harness.methods import METHODS
from benchmarks.harness.records import RunSpec
from benchmarks.harness.scores import hungarian_accuracy
from benchmarks.harness.task import Task
from benchmarks.harness.worker import run_spec

from prcut.errors import InvalidInputError
from prcut.graph.similarity_graph import SimilarityGraph


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_similarity, "_N_STEPS", 200)
    monkeypatch.setattr(label_similarity, "_HIDDEN", (64,))


@pytest.mark.parametrize("method", LABEL_METHODS)
def test_both_losses_learn_the_labels_of_the_digits(method: str) -> None:
    digits = load_bench_dataset("digits", "all")
    fitted = digits._replace(items=digits.items[:1200], labels=digits.labels[:1200])
    scored = digits._replace(items=digits.items[1200:], labels=digits.labels[1200:])
    found = learn_labels(method, fitted, scored, 0)
    assert found.shape == (597,)
    assert hungarian_accuracy(scored.labels, found) > 0.85
    np.testing.assert_array_equal(found, learn_labels(method, fitted, scored, 0))


def test_the_classifier_is_told_and_the_cut_is_not() -> None:
    """Clusters have no names: only the classifier gets those of the classes right."""
    digits = load_bench_dataset("digits", "all")
    found = learn_labels("cross_entropy", digits, digits, 0)
    assert (found == digits.labels).mean() > 0.9


def test_a_run_has_scores_but_no_cuts(capfd: pytest.CaptureFixture[str]) -> None:
    spec = RunSpec("table1", "digits", "all", "raw", 0, "cross_entropy", 0)
    import os

    kept = os.dup(1)  # a worker gives its standard output away
    try:
        result = run_spec(spec, "")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert "started" in capfd.readouterr().out
    assert result.acc is not None
    assert result.acc > 0.9
    assert (result.ratio_cut, result.normalized_cut, result.n_samples) == (None, None, 1797)


def test_all_pairs_of_equal_labels_between_two_batches() -> None:
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    sampler = label_similarity._AllPairs(labels)
    weights = []
    for seed in range(300):
        batch = sampler.draw(8, torch.Generator().manual_seed(seed))
        ends = batch.rows[batch.source], batch.rows[batch.target]
        assert torch.equal(labels[ends[0]], labels[ends[1]])
        assert (batch.source < 8).all()
        assert (batch.target >= 8).all()
        drawn = labels[batch.rows]
        assert len(batch.source) == (drawn[:8, None] == drawn[8:]).sum()
        weights.append(batch.weight.sum())
    assert torch.stack(weights).mean() == pytest.approx(1, abs=0.05)


def test_without_labels_it_is_refused() -> None:
    task = Task(np.zeros((2, 1), np.float32), SimilarityGraph.from_neighbors([[1], [0]]), 2, 0)
    with pytest.raises(InvalidInputError, match="learns from labels; it is only in table1"):
        METHODS["prcut_labels"].run(task)
