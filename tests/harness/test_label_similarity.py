import numpy as np
import pytest
from benchmarks.harness import label_similarity
from benchmarks.harness.inputs import load_bench_dataset
from benchmarks.harness.label_similarity import LABEL_METHODS, learn_labels
from benchmarks.harness.scores import hungarian_accuracy


@pytest.mark.weekly("trains both losses of table 1 on the digits: 20 CPU-seconds")
@pytest.mark.parametrize("method", LABEL_METHODS)
def test_both_losses_learn_the_labels_of_the_digits(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_similarity, "_N_STEPS", 200)
    monkeypatch.setattr(label_similarity, "_HIDDEN", (64,))
    digits = load_bench_dataset("digits", "all")
    fitted = digits._replace(items=digits.items[:1200], labels=digits.labels[:1200])
    scored = digits._replace(items=digits.items[1200:], labels=digits.labels[1200:])
    found = learn_labels(method, fitted, scored, 0)
    assert hungarian_accuracy(scored.labels, found) > 0.85
    np.testing.assert_array_equal(found, learn_labels(method, fitted, scored, 0))
