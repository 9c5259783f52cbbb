"""Layers of clusters, coarser and coarser, which nest exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from prcut.errors import InvalidInputError
from prcut.search.count import ClusterCount
from prcut.search.merge import MergeTree


class LayerMixin:
    """Gives an estimator its layers: its clusters, and what they merge to where searches agree.

    Its attribute ``layer_sizes_`` has the numbers of clusters, the largest first: one unless
    ``n_clusters`` was looked for. ``cluster_stability_`` says how well independent starts found
    each of the clusters, or is None.
    """

    labels_: np.ndarray
    n_clusters_: int
    merge_tree_: MergeTree | None
    layer_sizes_: list[int]
    cluster_stability_: np.ndarray | None

    @property
    def cluster_layers_(self) -> list[np.ndarray]:
        """Labels of the rows of ``fit`` in every layer, the finest first; −1 stays −1."""
        merged = (self._merged(level) for level in range(self._n_layers))
        return [np.where(self.labels_ < 0, -1, names[self.labels_]) for names in merged]

    @property
    def cluster_tree_(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """The clusters in every cluster of the layer above, as (layer, cluster); the root is last.

        ``{(1, 0): [(0, 0), (0, 3)], …, (n_layers, 0): […]}``
        """
        tree: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for level in range(self._n_layers):
            fine, is_top = self._merged(level), level + 1 == self._n_layers
            coarse = np.zeros_like(fine) if is_top else self._merged(level + 1)
            for above, below in sorted(set(zip(coarse.tolist(), fine.tolist(), strict=True))):
                tree.setdefault((level + 1, above), []).append((level, below))
        return tree

    @property
    def _n_layers(self) -> int:
        return len(self.layer_sizes_)

    def _set_layers(self, count: ClusterCount | None, stability: np.ndarray | None) -> None:
        """Set the numbers of clusters; where clusters do not merge, there is one layer."""
        self.cluster_stability_ = stability
        merges = count is not None and self.merge_tree_ is not None
        self.layer_sizes_ = count.layers() if count and merges else [self.n_clusters_]

    def _merged(self, level: int) -> np.ndarray:
        """Return what every cluster is called in a layer."""
        if isinstance(level, bool) or level not in range(self._n_layers):
            raise InvalidInputError(
                f"{level=} must be from 0, the finest, to {self._n_layers - 1}; layers are found "
                "by n_clusters='auto'."
            )
        if level == 0 or self.merge_tree_ is None:
            return np.arange(self.n_clusters_)
        return self.merge_tree_.labels(self.layer_sizes_[level])

    def _sum_probs(self, probs: np.ndarray, level: int) -> np.ndarray:
        """Add up the probabilities of clusters that are one in a layer."""
        merged = self._merged(level)
        if level == 0:
            return probs
        summed: np.ndarray = probs @ np.eye(self.layer_sizes_[level], dtype=probs.dtype)[merged]
        return summed


def parse_layers(content: Any, n_clusters: int) -> list[int]:
    """Return the numbers of clusters of a model's layers, or raise ValueError."""
    sizes = [int(size) for size in content]
    if sizes[:1] != [n_clusters] or sizes[-1] < 1 or (np.diff(sizes) >= 0).any():
        raise ValueError(f"layers of {sizes} clusters")
    return sizes
