"""What a fitted estimator says of rows: labels, probabilities, a representation, a score."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from prcut.graph.rows import subtract_origin
from prcut.pipeline.estimator_input import InputMixin
from prcut.pipeline.layers import LayerMixin
from prcut.pipeline.outliers import ExemplarMixin
from prcut.pipeline.score import score_labels
from prcut.training.assigner.predict import assign_labels, assign_probs, represent_rows


class PredictMixin(
    InputMixin,
    ExemplarMixin,
    LayerMixin,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
):
    """Gives an estimator ``predict``, ``predict_proba``, ``transform`` and ``score``."""

    def predict(self, X: Any, level: int = 0) -> np.ndarray:  # noqa: N803
        """Return the cluster of every row of X, int64, shape (n_samples,), in one of the layers.

        With ``affinity="precomputed"``, X are the similarities of new rows to those of ``fit``,
        shape (n_samples, n_samples_of_fit).
        """
        assigner, rows = self._ready(X)
        clusters = self._merged(level)[assign_labels(assigner, rows)]
        near = subtract_origin(rows, assigner.far_origin)
        return self._refuse_outliers(near, clusters, assigner.column_scales)

    def predict_proba(self, X: Any, level: int = 0) -> np.ndarray:  # noqa: N803
        """Return the cluster probabilities, float32, shape (n_samples, n_clusters), in a layer.

        What independent starts and neighbours said of rows like these, as in ``probabilities_``.
        """
        return self._sum_probs(assign_probs(*self._ready(X)), level)

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the bottleneck's activations, or the logits of the clusters without one."""
        return represent_rows(*self._ready(X))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """Return how much better than by chance X is cut, without labels: 1 is perfect, 0 chance.

        ``1 - J / (n_clusters - 1)``, where J is the objective of the predicted labels on the
        neighbour graph of X and ``n_clusters - 1`` its value for labels drawn at random.
        """
        config = self._config()
        assigner, rows = self._ready(X)
        n_clusters = assigner.n_clusters
        if n_clusters == 1:
            return 0.0
        graph = self._graph(X, rows, config, assigner.column_scales)
        balance_weight = getattr(self, "balance_weight_", config.training_balance)
        score = score_labels(graph, assign_labels(assigner, rows), n_clusters, balance_weight)
        return 1 - score.objective / (n_clusters - 1)
