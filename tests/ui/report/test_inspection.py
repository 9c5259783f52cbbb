"""Figures derived from an inspection: sizes, confidence, links, scores."""

import numpy as np
import pytest

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
