"""Tables as pictures: pooled where they are large, matched, with bounded names."""

from collections.abc import Iterator

import numpy as np
import pytest

from prcut.ui.matrix import draw_matched, percent_of_rows
from prcut.ui.plot import CutMatrixDisplay

mpl = pytest.importorskip("matplotlib")
mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def test_large_matrices_are_pooled_and_lose_no_peak() -> None:
    links = np.eye(1000)
    links[3, 700] = 9
    drawn = np.asarray(CutMatrixDisplay(links).plot().ax_.images[0].get_array().filled(0))
    assert drawn.shape == (360, 360)
    assert np.argwhere(drawn > 50).tolist() == [[1, 252]]
    assert drawn.max() == pytest.approx(90)


def test_rows_add_up_to_100_percent() -> None:
    table = np.array([[1, 3], [0, 0]])
    np.testing.assert_array_equal(percent_of_rows(table), [[25, 75], [0, 0]])


def test_unmatched_columns_come_last_and_names_are_plain_text() -> None:
    _, ax = plt.subplots(layout="constrained")
    shared = np.array([[0, 9, 0, 2], [8, 0, 1, 1]])
    draw_matched(ax, shared, "tab:blue", "% of $\\frac$", ["a" * 99, "$\\frac$"])
    ax.figure.canvas.draw()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "0", "3", "2"]
    assert [len(tick.get_text()) for tick in ax.get_yticklabels()] == [24, 7]
