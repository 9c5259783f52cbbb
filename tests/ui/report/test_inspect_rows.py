"""Inspections of rows in memory, through the estimator."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs

from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.ui.report.inspect_rows import RowSource, inspect_assigner

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
    np.testing.assert_array_equal(found.history["objective"], model.history_["objective"])
    assert found.links is not None
    assert found.bound is not None
    assert np.isfinite(found.coords).all()
    assert model.inspect(rows[:100]).partition is None  # it belongs to other rows


def test_parts_are_those_of_the_whole(fitted: tuple[PRCut, np.ndarray]) -> None:
    model, rows = fitted
    whole = model.inspect(rows, seed=3)
    only_map = model.inspect(rows, only="map", seed=3)
    np.testing.assert_array_equal(only_map.coords, whole.coords)
    assert only_map.links is None
    assert only_map.better_than_chance is None
    only_cut = model.inspect(rows, only="cut")
    np.testing.assert_array_equal(only_cut.links, whole.links)
    np.testing.assert_array_equal(only_cut.labels, whole.labels)
    assert only_cut.bound is None
    assert np.isnan(only_cut.coords).all()
    assert not np.array_equal(model.inspect(rows, only="map").coords, whole.coords)


def test_sparse_and_precomputed_rows(fitted: tuple[PRCut, np.ndarray]) -> None:
    model, rows = fitted
    found = model.inspect(csr_array(rows), only="map")
    np.testing.assert_array_equal(found.labels, model.predict(rows))
    similarity = np.exp(-((rows[:, None] - rows) ** 2).sum(2) / 50)
    other = PRCut(4, affinity="precomputed", max_steps=60, n_init=1, random_state=0)
    other.fit(similarity)
    np.testing.assert_array_equal(other.inspect(similarity).labels, other.predict(similarity))


def test_progress_and_features_are_checked(fitted: tuple[PRCut, np.ndarray]) -> None:
    model, rows = fitted
    seen: list[float] = []
    model.inspect(rows, only="map", on_progress=lambda progress: seen.append(progress.done))
    assert seen[-1] == 2 * len(rows)
    with pytest.raises(InvalidInputError, match="n_features=5, the data have 3"):
        inspect_assigner(model.assigner_, RowSource(rows[:, :3]), name="", about={})
