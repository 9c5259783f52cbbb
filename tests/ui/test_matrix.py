"""Tables as pictures: pooled where they are large, matched, with bounded names."""

import numpy as np
import pytest

from prcut.ui.plot import CutMatrixDisplay

mpl = pytest.importorskip("matplotlib")
mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


def test_large_matrices_are_pooled_and_lose_no_peak() -> None:
    links = np.eye(1000)
    links[3, 700] = 9
    drawn = np.asarray(CutMatrixDisplay(links).plot().ax_.images[0].get_array().filled(0))
    assert drawn.shape == (360, 360)
    assert np.argwhere(drawn > 50).tolist() == [[1, 252]]
    assert drawn.max() == pytest.approx(90)
    plt.close("all")
