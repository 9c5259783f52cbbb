"""What notebooks show: an estimator, its history, and bars while it is fitted."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import PRCut

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


@pytest.fixture(scope="module")
def model() -> PRCut:
    rows, _ = make_blobs([150, 100, 50], 4, random_state=0)
    return PRCut(3, max_steps=30, n_init=1, random_state=0).fit(rows.astype(np.float32))


def test_a_fitted_estimator_shows_its_results_below_the_diagram(model: PRCut) -> None:
    shown = model._repr_html_()
    assert "sk-estimator" in shown  # scikit-learn's own diagram is there
    assert f"{model.ratio_cut_:.4g}" in shown
    assert "3 of 3" in shown
    sizes = np.bincount(model.labels_)
    assert f"{sizes.min()} to {sizes.max()}" in shown
    assert "3 of 3" in model._repr_mimebundle_()["text/html"]
    unfitted = PRCut(3)._repr_html_()
    assert "sk-estimator" in unfitted
    assert "ratio cut" not in unfitted


def test_history_is_a_dict_that_shows_itself(model: PRCut, tmp_path: Path) -> None:
    assert isinstance(model.history_, dict)
    assert "combined starts" in model.history_._repr_html_()
    model.predict(np.zeros((1, model.n_features_in_), np.float32))
    assert "30 steps" in model.history_._repr_html_()
    assert any(step.objective is None for step in model.history_.steps)
    assert "nan" not in repr(model.history_.steps)
    assert set(pickle.loads(pickle.dumps(model.history_))) == set(model.history_)  # noqa: S301
    model.save(tmp_path / "model")
    assert "30 steps" in PRCut.load(tmp_path / "model").history_._repr_html_()
