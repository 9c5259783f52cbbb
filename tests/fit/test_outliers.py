from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs

from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.fit.outliers import Exemplars

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
N_STRAY = 20


def rows_with_strays() -> np.ndarray:
    rows, _ = make_blobs(600, 4, centers=4, random_state=0)
    strays = np.random.default_rng(0).uniform(-60, 60, (N_STRAY, 4))
    return np.vstack([rows, strays]).astype(np.float32)


ROWS = rows_with_strays()
IS_STRAY = np.arange(len(ROWS)) >= 600


def fit(rows: Any = ROWS, **options: Any) -> PRCut:
    return PRCut(4, **{"outliers": 0.06, "random_state": 0} | options).fit(rows)


@pytest.fixture(scope="module")
def fitted() -> PRCut:
    """A fit that no test changes."""
    return fit()


@pytest.mark.costly("sparse rows are distilled slowly")
@pytest.mark.parametrize(("metric", "is_sparse"), [("euclidean", False), ("cosine", True)])
def test_rows_that_belong_nowhere_are_refused(metric: Any, is_sparse: bool) -> None:
    rows = csr_array(ROWS) if is_sparse else ROWS
    model = fit(rows, metric=metric)
    refused = model.labels_ == -1
    assert refused.mean() <= 0.06
    if metric == "euclidean":
        assert refused[IS_STRAY].mean() > 0.7
    assert (model.predict(rows) == model.labels_).mean() >= 0.99
    assert (model.clusters_ >= 0).all()
    assert (model.clusters_ == model.labels_)[~refused].all()
    assert (model.probabilities_[refused] == 0).all()
    assert (model.probabilities_[~refused] >= 0.5).all()


@pytest.mark.costly("a fraction is only seen on thousands of rows")
def test_no_more_new_rows_are_refused_than_promised() -> None:
    rows, _ = make_blobs(6000, 6, centers=5, cluster_std=2, random_state=1)
    model = PRCut(5, outliers=0.05, random_state=0).fit(rows[:3000])
    for some in (rows[:3000], rows[3000:]):
        assert (model.predict(some) == -1).mean() <= 0.05 + 0.01


def test_rows_between_clusters_and_strays_have_scores_of_their_own() -> None:
    centers = np.array([[0, 0, 0], [10, 0, 0], [0, 10, 0]])
    rows, _ = make_blobs(600, centers=centers, random_state=0)
    model = PRCut(3, outliers=0, random_state=0).fit(rows)
    assert (model.labels_ >= 0).all()
    found = model.score_outliers([[5.0, 0, 0], [0, 0, -20], [0, 0, 0]])
    between, stray, inside = range(3)
    assert found.between[between] > found.between[inside]
    assert found.stray[stray] > 1 > found.stray[inside]
    assert found.p_value[[between, stray]].max() < 0.05 < found.p_value[inside]


def test_nothing_is_refused_by_default() -> None:
    model = PRCut(4, effort="fast", random_state=0).fit(ROWS)
    assert (model.labels_ == model.clusters_).all()
    model.labels_[0] = 9
    assert model.clusters_[0] != 9
    with pytest.raises(InvalidInputError, match="outliers=0 or more"):
        model.score_outliers(ROWS)


@pytest.mark.parametrize("wrong", [-0.1, 1, "many", True])
def test_a_wrong_fraction_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="outliers="):
        fit(outliers=wrong)


def test_exemplars_are_saved_and_loaded(fitted: PRCut, tmp_path: Path) -> None:
    rows, model = ROWS, fitted
    model.save(tmp_path)
    loaded = PRCut.load(tmp_path)
    for name in ("labels_", "clusters_", "probabilities_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(
        loaded.score_outliers(rows).p_value, model.score_outliers(rows).p_value
    )


@pytest.mark.parametrize(
    "change",
    [
        {"near": np.full((620, 10), 620)},
        {"labels": np.full(620, -2)},
        {"rows": np.zeros((620, 3), np.float32)},
        {"radius": np.zeros(3, np.float32)},
    ],
)
def test_forged_exemplars_are_refused(fitted: PRCut, change: dict[str, np.ndarray]) -> None:
    assert fitted._exemplars is not None
    arrays = fitted._exemplars.to_arrays() | change
    with pytest.raises(ValueError, match="exemplars"):
        Exemplars.of_arrays(arrays, 4)


@pytest.mark.costly("a mean over twelve fits")
@pytest.mark.parametrize("is_heavy", [False, True])
def test_the_promise_holds_for_few_rows(is_heavy: bool) -> None:
    refused = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sample = partial(rng.standard_t, 2) if is_heavy else partial(rng.normal, 0, 1)
        model = PRCut(8, outliers=0.05, effort="fast", random_state=seed).fit(sample((200, 5)))
        refused.append((model.score_outliers(sample((4000, 5))).p_value <= 0.05).mean())
    assert np.mean(refused) <= 0.05
