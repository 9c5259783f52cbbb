"""Inspections of rows in memory, through the estimator."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import PRCut

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


@pytest.fixture(scope="module")
def fitted() -> tuple[PRCut, np.ndarray]:
    rows, _ = make_blobs(240, 5, centers=4, random_state=1)
    rows = rows.astype(np.float32)
    return PRCut(4, max_steps=60, n_init=1, random_state=0).fit(rows), rows


def test_an_estimator_is_inspected(fitted: tuple[PRCut, np.ndarray]) -> None:
    model, rows = fitted
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
