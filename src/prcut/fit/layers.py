"""Layers of clusters, coarser and coarser, which nest exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prcut.errors import InvalidInputError
from prcut.search.merge import MergeTree


class Layers(NamedTuple):
    """The clusters of a fit, and what they merge to where searches agree.

    Attributes
    ----------
    sizes : list of int
        Numbers of clusters, the largest first: one unless ``n_clusters`` was looked for.
    merge_tree : MergeTree or None
    """

    sizes: list[int]
    merge_tree: MergeTree | None

    def names(self, level: int) -> np.ndarray:
        """Return what every cluster is called in a layer."""
        if isinstance(level, bool) or level not in range(len(self.sizes)):
            raise InvalidInputError(
                f"{level=} must be from 0, the finest, to {len(self.sizes) - 1}; layers are found "
                "by n_clusters='auto'."
            )
        if level == 0 or self.merge_tree is None:
            return np.arange(self.sizes[0])
        return self.merge_tree.labels(self.sizes[level])

    def labels(self, labels: np.ndarray) -> list[np.ndarray]:
        """Return the labels in every layer; −1 stays −1."""
        names = (self.names(level) for level in range(len(self.sizes)))
        return [np.where(labels < 0, -1, one[labels]) for one in names]

    def tree(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return the clusters in every cluster of the layer above, as (layer, cluster)."""
        tree: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for level in range(len(self.sizes)):
            fine, is_top = self.names(level), level + 1 == len(self.sizes)
            coarse = np.zeros_like(fine) if is_top else self.names(level + 1)
            for above, below in sorted(set(zip(coarse.tolist(), fine.tolist(), strict=True))):
                tree.setdefault((level + 1, above), []).append((level, below))
        return tree

    def sum_probs(self, probs: np.ndarray, level: int) -> np.ndarray:
        """Add up the probabilities of clusters that are one in a layer."""
        names = self.names(level)
        if level == 0:
            return probs
        summed: np.ndarray = probs @ np.eye(self.sizes[level], dtype=probs.dtype)[names]
        return summed


def parse_layers(content: Any, n_clusters: int) -> list[int]:
    """Return the numbers of clusters of a model's layers, or raise ValueError."""
    sizes = [int(size) for size in content]
    if sizes[:1] != [n_clusters] or sizes[-1] < 1 or (np.diff(sizes) >= 0).any():
        raise ValueError(f"layers of {sizes} clusters")
    return sizes
