"""Figures derived from an inspection: sizes, confidence, links, scores."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import PRCut
from report_samples import EVEN, made_up


def test_figures_follow_from_labels_and_links() -> None:
    labels = np.repeat([0, 1], [3, 1])
    confidence = np.array([1.0, 0.5, 0.6, 0.8])
    links = np.array([[6.0, 2, 0], [2, 0, 0], [0, 0, 0]])
    about = {"objective": 0.5}
    found = made_up(labels, 3, confidence=confidence, links=links, about=about)
    assert found.sizes.tolist() == [3, 1, 0]
    assert found.n_used == 2
    np.testing.assert_allclose(found.mean_confidence, [0.7, 0.8, np.nan])
    np.testing.assert_allclose(found.link_fractions, [[0.75, 0.25, 0], [1, 0, 0], [0, 0, 0]])
    assert found.better_than_chance == pytest.approx(0.75)
    without = made_up(EVEN, 4)
    assert without.link_fractions is None
    assert without.better_than_chance is None
    assert without.bound_ratio is None


@pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
def test_an_estimator_is_inspected() -> None:
    rows, _ = make_blobs(240, 5, centers=4, random_state=1)
    rows = rows.astype(np.float32)
    model = PRCut(4, max_steps=60, n_init=1, random_state=0).fit(rows)
    found = model.inspect(rows)
    np.testing.assert_array_equal(found.labels, model.predict(rows))
    np.testing.assert_allclose(found.confidence, model.predict_proba(rows).max(1), rtol=1e-5)
    assert found.better_than_chance == pytest.approx(model.score(rows))
    assert found.about["balance_weight"] == model.balance_weight_
    assert found.about["n_neighbors"] == model.n_neighbors_
    np.testing.assert_array_equal(found.partition, model.labels_)  # none is an outlier
    assert found.links is not None
    assert found.bound is not None
    assert np.isfinite(found.coords).all()
    assert model.inspect(rows[:100]).partition is None  # it belongs to other rows
