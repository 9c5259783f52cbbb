"""What an estimator is given: parameters, and rows with their graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from prcut.errors import InvalidInputError
from prcut.graph.rows import divide_columns
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.pipeline.choose import build_neighbor_graph
from prcut.pipeline.config import FitConfig
from prcut.runtime.frames import as_rows
from prcut.training.assigner.network import Assigner

# what a fit leaves behind, and the next one forgets
_FITTED = (
    *("labels_", "clusters_", "probabilities_", "probs_", "violated_links_"),
    *("objective_", "ratio_cut_", "balance_weight_", "n_neighbors_", "n_clusters_"),
    *("merge_tree_", "layer_sizes_", "cluster_count_", "cluster_stability_", "changes_"),
    *("_start", "_steps", "_names", "_exemplars", "_kept", "_reasons", "_is_weighted"),
    *("_graph_features", "_seen"),
)


class InputMixin:
    """Parameters and rows of an estimator, checked and in the form that a fit takes."""

    affinity: str
    hidden: Any
    n_clusters: Any
    assigner_: Assigner
    _graph_features: np.ndarray
    get_params: Any

    @property
    def _is_precomputed(self) -> bool:
        if self.affinity not in ("nearest_neighbors", "precomputed"):
            raise InvalidInputError(
                f"affinity={self.affinity!r} must be 'nearest_neighbors' or 'precomputed'."
            )
        return self.affinity == "precomputed"

    def _clear(self, *kept: str) -> None:
        """Forget all of an earlier fit but what is named."""
        for name in set(_FITTED).difference(kept):
            self.__dict__.pop(name, None)

    def _config(self, n_clusters: int | None = None, *layer_sizes: int) -> FitConfig:
        """Return the parameters that decide a fit; the others are the estimator's own."""
        given = self.get_params(deep=False)
        for name in ("affinity", "store_probs", "device", "verbose"):
            del given[name]
        if n_clusters is None:
            n_clusters = getattr(self, "n_clusters_", self.n_clusters)
        given["n_clusters"] = n_clusters
        seed = int(check_random_state(given.pop("random_state")).randint(2**31 - 1))
        given["hidden"] = None if self.hidden is None else tuple(self.hidden)
        return FitConfig.of(seed=seed, layer_sizes=layer_sizes, **given)

    def _check(self, X: Any, *, reset: bool) -> Any:  # noqa: N803
        """Check X as scikit-learn does; copy it only where its dtype must change."""
        return validate_data(
            self,
            as_rows(X),
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float32, np.float64, np.float16],
            ensure_min_samples=2 if reset else 1,
        )

    def _graph(self, X: Any, rows: Any, config: FitConfig, scales: Any) -> SimilarityGraph:  # noqa: N803
        """Build the graph of some rows, with the neighbours and units that ``fit`` used."""
        if self._is_precomputed:
            return SimilarityGraph.from_scipy(X)
        used = config.n_neighbors or getattr(self, "n_neighbors_", None)
        return build_neighbor_graph(divide_columns(rows, scales), used, config)

    def _ready(self, X: Any) -> tuple[Assigner, Any]:  # noqa: N803
        """Return the assigner and the rows it is to see."""
        check_is_fitted(self)
        return self._prepare(self._check(X, reset=False))

    def _prepare(self, rows: Any) -> tuple[Assigner, Any]:
        """Return the assigner and checked rows in the form that it is to see."""
        if self._is_precomputed:
            # a new row is the mean of its neighbours, as in graph_features
            degree = np.asarray(rows.sum(1)).reshape(-1, 1)
            rows = (rows @ self._graph_features) / np.maximum(degree, np.finfo(np.float32).tiny)
        return self.assigner_, rows
