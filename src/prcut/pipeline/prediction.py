"""What a fitted estimator says of rows: labels, probabilities, a representation, a score."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from prcut.graph.row_index import RowIndex
from prcut.graph.rows import subtract_origin
from prcut.pipeline.estimator_input import InputMixin
from prcut.pipeline.layers import LayerMixin
from prcut.pipeline.outliers import ExemplarMixin
from prcut.pipeline.score import score_labels
from prcut.training.assigner.predict import assign_labels, assign_probs, represent_rows

# probability of the cluster of a row of the fit: the share of the votes that a row has for its own
_LEAST_SHARE = 0.6


class PredictMixin(
    InputMixin,
    ExemplarMixin,
    LayerMixin,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
):
    """Gives an estimator ``predict``, ``predict_proba``, ``transform`` and ``score``."""

    clusters_: np.ndarray
    probabilities_: np.ndarray
    # the rows of the fit; None where they are not known, as after partial_fit
    _seen: RowIndex | None = None

    def predict(self, X: Any, level: int = 0) -> np.ndarray:  # noqa: N803
        """Return the cluster of every row of X, int64, shape (n_samples,), in one of the layers.

        Rows of ``fit`` have the labels that it gave them; the assigner labels all others.
        With ``affinity="precomputed"``, X are the similarities of new rows to those of ``fit``,
        shape (n_samples, n_samples_of_fit).
        """
        checked, seen = self._find(X)
        merged, is_new = self._merged(level), seen < 0
        labels = np.empty(len(seen), np.int64)
        if not is_new.all():
            known = self.labels_[seen[~is_new]]
            labels[~is_new] = np.where(known < 0, -1, merged[known])
        if is_new.any():  # else nothing need be distilled
            assigner, rows = self._prepare(checked[np.flatnonzero(is_new)])
            near = subtract_origin(rows, assigner.far_origin)
            clusters = merged[assign_labels(assigner, rows)]
            labels[is_new] = self._refuse_outliers(near, clusters, assigner.column_scales)
        return labels

    def predict_proba(self, X: Any, level: int = 0) -> np.ndarray:  # noqa: N803
        """Return the cluster probabilities, float32, shape (n_samples, n_clusters), in a layer.

        What independent starts and neighbours said of rows like these, as in ``probabilities_``.
        """
        checked, seen = self._find(X)
        probs = assign_probs(*self._prepare(checked))
        return self._sum_probs(self._keep_labels(probs, seen), level)

    def _find(self, X: Any) -> tuple[Any, np.ndarray]:  # noqa: N803
        """Return X, checked, and which rows of the fit have the same values; −1 where none has."""
        check_is_fitted(self)
        checked = self._check(X, reset=False)
        seen = np.full(checked.shape[0], -1) if self._seen is None else self._seen.find(checked)
        return checked, seen

    def _keep_labels(self, probs: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Give rows of the fit the cluster they have, where the assigner finds another likelier."""
        rows = np.flatnonzero(seen >= 0)
        if not len(rows):  # a model that was loaded may have no labels
            return probs
        clusters = self.clusters_[seen[rows]]
        differs = probs[rows].argmax(1) != clusters
        rows, clusters, seen = rows[differs], clusters[differs], seen[rows[differs]]
        share = np.maximum(self.probabilities_[seen], _LEAST_SHARE)
        others = probs[rows]
        others[np.arange(len(rows)), clusters] = 0
        probs[rows] = others * ((1 - share) / others.sum(1))[:, None]
        probs[rows, clusters] = share
        return probs

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
        labels = assign_labels(assigner, rows)
        seen = self._find(X)[1]
        if (seen >= 0).any():
            labels[seen >= 0] = self.clusters_[seen[seen >= 0]]
        score = score_labels(graph, labels, n_clusters, balance_weight)
        return 1 - score.objective / (n_clusters - 1)
