"""What is known of the rows: checked, joined, weighed, and kept by a fit."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

import reference
from prcut import PRCut, SimilarityGraph, build_graph
from prcut.errors import DataWarning, InvalidInputError
from prcut.fit.clusters import score_labels
from prcut.fit.config import FitConfig
from prcut.fit.known import Known, refuse_known, spread_classes
from prcut.search.fragments import as_coarse


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    rows, classes = load_digits(return_X_y=True)
    return rows[:600].astype(np.float32), classes[:600]


def fit(rows: np.ndarray, n_clusters: int, *arguments: Any, **known: Any) -> PRCut:
    options = {name: known.pop(name) for name in ("min_size", "max_size") if name in known}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = PRCut(n_clusters, effort="fast", random_state=0, **options)
        return model.fit(rows, *arguments, **known)


def pick_seeds(classes: np.ndarray, n_each: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    y = np.full(len(classes), -1)
    for one in np.unique(classes):
        y[rng.permutation(np.flatnonzero(classes == one))[:n_each]] = one
    return y


def test_nothing_known_is_empty() -> None:
    assert Known.of(3).is_empty
    assert Known.of(3, [-1, -1, -1]).is_empty
    assert Known.of(3, [0, 1, 1]).is_empty  # as scikit-learn's clusterers, whose y is ignored
    assert Known.of(3, must_link=[]).is_empty


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": [0, -1]}, r"y has shape \(2,\), X has 4 rows"),
        ({"y": [0, -2, -1, 0]}, "y=-2 must be a class from 0"),
        ({"y": [0.5, -1, -1, 0]}, "must be whole numbers"),
        ({"y": [np.inf, -1, -1, 0]}, "must be whole numbers"),
        ({"y": [10**12, -1, -1, 0]}, "class 1000000000000, X has 4 rows"),
        ({"sample_weight": [1, 0, 1, 1]}, "above zero; leave out rows"),
        ({"must_link": [0, 1]}, "must be pairs of row numbers"),
        ({"must_link": [[0, 4]]}, "must_link names rows 0 to 4; X has rows 0 to 3"),
        ({"cannot_link": [[2, 2]]}, "apart from itself"),
        (
            {"must_link": [[0, 1], [1, 2]], "cannot_link": [[2, 0]]},
            r"cannot_link keeps rows 2 and 0 apart, .* joins; leave the pair out .* two\.$",
        ),
        ({"y": [0, 1, -1, -1], "must_link": [[0, 2], [2, 1]]}, "must_link joins row"),
    ],
)
def test_what_cannot_be_is_refused_in_words(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Known.of(4, **given)


def test_settings_that_cannot_use_it_are_refused() -> None:
    known = Known.of(4, [0, 3, -1, -1])
    assert known is not None
    with pytest.raises(InvalidInputError, match="y has class 3, so n_clusters=2 must be >= 4"):
        known.check(FitConfig(2), 4)
    with pytest.raises(InvalidInputError, match="need solver='search'"):
        known.check(FitConfig(4, solver="train"), 4)
    with pytest.raises(InvalidInputError, match="need solver='search'"):
        Known().check(FitConfig(4, solver="train", min_size=1), 4)
    with pytest.raises(InvalidInputError, match="min_size and label_column cannot be used with x"):
        refuse_known(FitConfig(4, min_size=2, label_column="c"), "x")
    refuse_known(FitConfig(4), "x")


@given(seed=st.integers(0, 10**6), n_clusters=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_weights_equal_repetitions_on_the_same_graph(seed: int, n_clusters: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = reference.random_graph(12, seed, 0.5).to_scipy().toarray()
    times, labels = rng.integers(1, 4, 12), np.arange(12) % n_clusters
    row = np.repeat(np.arange(12), times)
    repeated = SimilarityGraph.from_scipy(matrix[row][:, row])
    known = Known.of(12, sample_weight=times)
    assert known is not None
    weighed = known.weigh(SimilarityGraph.from_scipy(matrix))
    one = score_labels(weighed, labels, n_clusters, 0.7, (), known.weights)
    many = score_labels(repeated, labels[row], n_clusters, 0.7)
    assert one.objective == pytest.approx(many.objective, rel=1e-5)
    assert one.ratio_cut == pytest.approx(many.ratio_cut, rel=1e-5)
    np.testing.assert_array_equal(one.cluster_sizes, many.cluster_sizes)


def test_seeds_keep_their_classes_and_name_the_rest(digits: tuple[np.ndarray, np.ndarray]) -> None:
    rows, classes = digits
    y = pick_seeds(classes, 5)
    model = fit(rows, 10, y)
    known = y >= 0
    assert (model.labels_[known] == y[known]).all()
    assert (model.labels_ == classes)[~known].mean() > 0.85


def test_links_hold(digits: tuple[np.ndarray, np.ndarray]) -> None:
    rows, classes = digits
    pairs = np.random.default_rng(1).permutation(600)[:400].reshape(-1, 2)
    same = classes[pairs[:, 0]] == classes[pairs[:, 1]]
    model = fit(rows, 10, must_link=pairs[same], cannot_link=pairs[~same])
    joined = model.labels_[pairs[same]]
    assert (joined[:, 0] == joined[:, 1]).all()
    assert len(model.violated_links_) <= 0.01 * (~same).sum()
    # of two clusters, not all of three rows can be kept apart
    model = fit(rows, 2, cannot_link=[[0, 1], [1, 2], [0, 2]])
    assert len(model.violated_links_) == 1


def test_sizes_hold_beside_classes_and_weights(digits: tuple[np.ndarray, np.ndarray]) -> None:
    rows, classes = digits
    y = pick_seeds(classes, 5)
    model = fit(rows, 10, y, max_size="equal")
    assert (model.labels_[y >= 0] == y[y >= 0]).all()
    assert (np.bincount(model.labels_) == 60).all()
    weights = np.random.default_rng(0).uniform(0.5, 2, 600)
    model = fit(rows, 10, sample_weight=weights, min_size=0.09, max_size=0.11)
    sums = np.bincount(model.labels_, weights) / weights.sum()
    assert sums.min() > 0.09 - 1e-6
    assert sums.max() < 0.11 + 1e-6


def test_classes_reach_along_the_edges() -> None:
    path = as_coarse(SimilarityGraph.from_neighbors([[1], [2], [3], [4], [5], [4]]))
    preferred = np.array([0, -1, -1, -1, -1, 1])
    likely = spread_classes(path, preferred, 2)
    assert likely is not None
    assert likely.argmax(1).tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(likely.sum(1), 1, rtol=1e-5)
    assert spread_classes(path, preferred, 3) is None  # nothing is known of the third


@pytest.mark.parametrize("unit", [1e-90, 1e-15, 1e30])
def test_weights_have_no_unit(digits: tuple[np.ndarray, np.ndarray], unit: float) -> None:
    rows, _ = digits
    weights = np.random.default_rng(0).uniform(0.1, 10, len(rows))
    plain, scaled = (fit(rows, 10, sample_weight=one) for one in (weights, weights * unit))
    assert scaled.objective_ == pytest.approx(plain.objective_)
    assert scaled.ratio_cut_ == pytest.approx(plain.ratio_cut_ * unit)
    assert adjusted_rand_score(plain.labels_, scaled.labels_) == 1  # numbers may be swapped


@pytest.mark.parametrize("unit", [1e-300, 1e100])
def test_edges_have_no_unit(digits: tuple[np.ndarray, np.ndarray], unit: float) -> None:
    rows, classes = digits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        links = build_graph(rows, 15).to_scipy().astype(np.float64)
    seeds = pick_seeds(classes, 3)
    plain, scaled = (fit(rows, 10, seeds, graph=links * one) for one in (1.0, unit))
    assert scaled.objective_ == pytest.approx(plain.objective_)
    np.testing.assert_array_equal(scaled.labels_, plain.labels_)


def test_weights_whose_products_are_no_numbers_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="1e-200 to 1, and must be 1e-100 to 1e\\+100"):
        Known.of(2, sample_weight=[1, 1e-200])
