"""Displays: made from estimators and predictions, on given axes or their own."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.ui.plot import (
    AgreementDisplay,
    ClusterMapDisplay,
    ClusterSizesDisplay,
    ConfidenceDisplay,
    ConfusionDisplay,
    CutMatrixDisplay,
    HistoryDisplay,
    MovesDisplay,
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
        HistoryDisplay.from_estimator(model),
        CutMatrixDisplay.from_estimator(model, rows),
        ConfidenceDisplay.from_estimator(model, rows),
        ConfusionDisplay.from_estimator(model, rows, labels),
        MovesDisplay.from_estimators(model, model, rows),
    ]
    for display in displays:
        display.figure_.canvas.draw()
        assert display.figure_ is display.ax_.figure
    assert len({display.ax_ for display in displays}) == len(displays)


def test_displays_draw_on_given_axes() -> None:
    _, axes = plt.subplots(1, 2)
    labels = np.array([0, 0, 0, 1, 2])
    sizes = ClusterSizesDisplay.from_predictions(labels, ax=axes[0])
    assert sizes.ax_ is axes[0]
    assert [bar.get_height() for bar in axes[0].patches] == [3, 1, 1]
    probs = np.array([[0.9, 0.1], [0.39, 0.61], [0.99, 0.01], [0.05, 0.95]])
    assert ConfidenceDisplay.from_predictions(probs, ax=axes[1]).ax_ is axes[1]
    heights = np.array([bar.get_height() for bar in axes[1].patches])
    assert heights[24] == 25  # the row with 0.61, whose bin is [0.6, 0.625)


def test_a_perfect_matching_stands_on_the_diagonal() -> None:
    classes = np.array(["a", "b", "c"])[[0, 0, 1, 1, 2, 2]]
    display = ConfusionDisplay.from_predictions(classes, np.array([2, 2, 0, 0, 1, 1]))
    drawn = np.asarray(display.ax_.images[0].get_array())
    np.testing.assert_array_equal(drawn, 100 * np.eye(3))
    assert [tick.get_text() for tick in display.ax_.get_yticklabels()] == ["a", "b", "c"]
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["2", "0", "1"]
    moves = MovesDisplay.from_predictions(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 0]))
    np.testing.assert_array_equal(np.asarray(moves.ax_.images[0].get_array()), [[100, 0], [50, 50]])


def test_rows_of_no_cluster_are_grey_and_not_counted() -> None:
    labels = np.array([0, 0, 1, 1, -1])
    colors = ClusterMapDisplay(np.eye(5, 2), labels).plot().ax_.collections[0].get_facecolors()
    assert (colors[:, :3].std(axis=1) == 0).sum() == 1
    found = ConfusionDisplay.from_predictions([3, 3, 4, 4, 4], labels).shared
    assert found.tolist() == [[2, 0], [0, 2]]


def test_agreement_is_drawn_where_clusters_were_counted(fitted: tuple[Any, ...]) -> None:
    rows = fitted[1]
    model = PRCut("auto", random_state=0).fit(rows)
    display = AgreementDisplay.from_estimator(model)
    found = display.ax_.lines[0].get_ydata()
    np.testing.assert_array_equal(found, model.cluster_count_.agreement)
    assert [text.get_text() for text in display.ax_.texts] == [f"{model.n_clusters_} chosen"]
    with pytest.raises(InvalidInputError, match="nothing was counted"):
        AgreementDisplay.from_estimator(fitted[0])
