"""Displays: made from estimators and predictions, on given axes or their own."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import PRCut
from prcut.ui.plot import (
    ClusterMapDisplay,
    ClusterSizesDisplay,
    ConfusionDisplay,
    CutMatrixDisplay,
)

mpl = pytest.importorskip("matplotlib")
mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


@pytest.fixture(scope="module")
def fitted() -> tuple[PRCut, np.ndarray, np.ndarray]:
    rows, labels = make_blobs(240, 5, centers=4, random_state=1)
    rows = rows.astype(np.float32)
    return PRCut(4, max_steps=60, n_init=1, random_state=0).fit(rows), rows, labels


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.mark.costly("draws every display")
def test_every_display_is_made_from_an_estimator(fitted: tuple[Any, ...]) -> None:
    model, rows, labels = fitted
    displays: list[Any] = [
        ClusterMapDisplay.from_estimator(model, rows),
        ClusterSizesDisplay.from_estimator(model, rows),
        CutMatrixDisplay.from_estimator(model, rows),
        ConfusionDisplay.from_estimator(model, rows, labels),
    ]
    for display in displays:
        display.figure_.canvas.draw()
        assert display.figure_ is display.ax_.figure
    assert len({display.ax_ for display in displays}) == len(displays)


def test_displays_draw_on_given_axes() -> None:
    _, ax = plt.subplots()
    labels = np.array([0, 0, 0, 1, 2])
    assert ClusterSizesDisplay.from_predictions(labels, ax=ax).ax_ is ax
    assert [bar.get_height() for bar in ax.patches] == [3, 1, 1]


def test_a_perfect_matching_stands_on_the_diagonal() -> None:
    classes = np.array(["a", "b", "c"])[[0, 0, 1, 1, 2, 2]]
    display = ConfusionDisplay.from_predictions(classes, np.array([2, 2, 0, 0, 1, 1]))
    drawn = np.asarray(display.ax_.images[0].get_array())
    np.testing.assert_array_equal(drawn, 100 * np.eye(3))
    assert [tick.get_text() for tick in display.ax_.get_yticklabels()] == ["a", "b", "c"]
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["2", "0", "1"]
    moves = ConfusionDisplay.from_predictions(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 0]))
    np.testing.assert_array_equal(np.asarray(moves.ax_.images[0].get_array()), [[100, 0], [50, 50]])


def test_rows_of_no_cluster_are_grey_and_not_counted() -> None:
    labels = np.array([0, 0, 1, 1, -1])
    colors = ClusterMapDisplay(np.eye(5, 2), labels).plot().ax_.collections[0].get_facecolors()
    assert (colors[:, :3].std(axis=1) == 0).sum() == 1
    found = ConfusionDisplay.from_predictions([3, 3, 4, 4, 4], labels).shared
    assert found.tolist() == [[2, 0], [0, 2]]


def test_large_matrices_are_pooled_and_lose_no_peak() -> None:
    links = np.eye(1000)
    links[3, 700] = 9
    drawn = np.asarray(CutMatrixDisplay(links).plot().ax_.images[0].get_array().filled(0))
    assert drawn.shape == (360, 360)
    assert np.argwhere(drawn > 50).tolist() == [[1, 252]]
    assert drawn.max() == pytest.approx(90)
