"""Colours of clusters: distinct, and readable on white and on black."""

import numpy as np
import pytest

from prcut.ui.colors import cluster_colors

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("n_clusters", [3, 11, 77])
def test_colors_differ_and_read_on_white_and_on_black(n_clusters: int) -> None:
    colors = cluster_colors(n_clusters)
    assert colors.shape == (n_clusters, 3)
    assert colors.min() >= 0
    assert colors.max() <= 1
    luminance = colors**2.2 @ [0.2126, 0.7152, 0.0722]
    assert (1.05 / (luminance + 0.05)).min() > 1.5
    assert ((luminance + 0.05) / 0.05).min() > 2.5
    apart = np.abs(colors[:, None] - colors).sum(2) + 9 * np.eye(n_clusters)
    assert apart.min() > 0.04
