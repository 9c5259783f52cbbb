"""Sizes within limits: exact for the rows of a fit, about for others."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from prcut import PRCut, build_graph
from prcut.errors import DataWarning, InvalidInputError
from prcut.fit.config import FitConfig
from prcut.fit.known import find_prices, fraction_limits
from prcut.search.limits import Limits


def fit(rows: np.ndarray, n_clusters: int = 10, **limits: object) -> PRCut:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return PRCut(n_clusters, effort="fast", random_state=0, **limits).fit(rows)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return load_digits().data.astype(np.float32)


@pytest.mark.costly("two fits of 600 digits")
def test_equal_sizes_and_nearly_so_of_new_rows(rows: np.ndarray, tmp_path: object) -> None:
    model = fit(rows[:600], max_size="equal")
    assert (np.bincount(model.labels_) == 60).all()
    new = rows[600:1000]
    free = fit(rows[:600])
    sizes = np.bincount(model.predict(new), minlength=10)
    others = np.bincount(free.predict(new), minlength=10)
    assert np.abs(sizes - 40).sum() <= np.abs(others - 40).sum() + 8
    model.save(f"{tmp_path}/model")
    loaded = PRCut.load(f"{tmp_path}/model")
    assert loaded.max_size == "equal"
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"min_size": 61}, "10 clusters of 61 to 600 cannot hold 600 rows: min_size must be <= 60"),
        ({"min_size": -1}, "min_size=-1 must be a number of rows >= 1"),
        ({"max_size": "even"}, "or 'equal'"),
        ({"max_size": "equal", "min_size": 3}, "leaves no choice"),
    ],
)
def test_infeasible_limits_are_refused_in_words(
    rows: np.ndarray, limits: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        fit(rows[:600], **limits)


def test_joined_rows_that_are_too_many_are_refused(rows: np.ndarray) -> None:
    y = np.full(600, -1)
    y[:70] = 0
    with pytest.raises(InvalidInputError, match="weigh 70 together; max_size=65"):
        PRCut(10, max_size=65).fit(rows[:600], y)


def test_one_heavy_row_leaves_sizes_outside_with_a_warning(rows: np.ndarray) -> None:
    weights = np.ones(60)
    weights[:3] = 5.3
    graph = build_graph(rows[:60][:, rows[:60].std(0) > 0], 5)
    with pytest.warns(DataWarning, match="do not divide into clusters"):
        PRCut(4, max_size="equal", random_state=0).fit(
            rows[:60], sample_weight=weights, graph=graph
        )


@given(seed=st.integers(0, 10**6), n_clusters=st.integers(2, 6))
@settings(max_examples=20, deadline=None)
def test_prices_bring_sizes_nearer_to_limits(seed: int, n_clusters: int) -> None:
    rng = np.random.default_rng(seed)
    log_probs = np.log(rng.dirichlet(rng.uniform(0.2, 2, n_clusters), 200))
    limits = Limits(0.9 / n_clusters, 1.1 / n_clusters)

    def outside(price: np.ndarray) -> float:
        labels = (log_probs - price).argmax(1)
        return float(np.abs(limits.excess(np.bincount(labels, minlength=n_clusters) / 200)).sum())

    found = outside(find_prices(log_probs, limits))
    assert found <= outside(np.zeros(n_clusters))
    assert found <= 0.05


def test_limits_become_fractions() -> None:
    assert fraction_limits(FitConfig(4), 100) is None
    assert fraction_limits(FitConfig(4, min_size=20, max_size=0.3), 100) == Limits(0.2, 0.3)
