"""Colours of the clusters, the same in every picture, readable on white and on black."""

from __future__ import annotations

import numpy as np

# its multiples modulo 1 are evenly spread, however many there are
_GOLDEN_RATIO = 0.6180339887
# saturation and value: the luminance of every hue keeps away from white and from black
_TONES = np.array([[0.75, 0.82], [0.45, 0.80], [0.60, 0.66]])


def cluster_colors(n_clusters: int) -> np.ndarray:
    """Choose colours of clusters, float, shape (n_clusters, 3): red, green, blue from 0 to 1.

    Up to ten clusters have matplotlib's colours; more have evenly spread hues in three tones.
    """
    import matplotlib  # not at the top: it takes longer to load than most commands

    ten = np.array(matplotlib.color_sequences["tab10"])
    if n_clusters <= len(ten):
        return ten[:n_clusters]
    from matplotlib.colors import hsv_to_rgb

    number = np.arange(n_clusters)
    hue = (0.55 + number * _GOLDEN_RATIO) % 1
    return np.asarray(hsv_to_rgb(np.column_stack([hue, _TONES[number % len(_TONES)]])))
