"""Tables that a notebook shows of a fitted estimator and its history."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from prcut.runtime.progress import Step

_TABLE = '<table style="font-size:90%;text-align:left;border-collapse:collapse">'


class History(dict[str, np.ndarray]):
    """Training records by name, and the steps of the search, as a notebook shows them.

    >>> History(step=np.arange(1, 31))._repr_html_()
    '<p>30 steps of training</p>'
    """

    def __init__(self, *records: Any, steps: Sequence[Step] = (), **more: np.ndarray) -> None:
        super().__init__(*records, **more)
        self.steps = tuple(steps)

    def _repr_html_(self) -> str:
        """List the steps of the search, and count the steps of training."""
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{seconds:.2f} s</td>"
            f"<td>{'' if objective is None else f'J = {objective:.4f}'}</td></tr>"
            for name, seconds, objective in self.steps
        )
        step = self.get("step", np.empty(0))
        trained = f"<p>{step[-1]:,} steps of training</p>" if len(step) else ""
        return (f"{_TABLE}{rows}</table>" if rows else "") + trained


def results_html(model: Any) -> str:
    """Show the scores of a fitted estimator and the sizes of its clusters."""
    sizes = np.bincount(model.labels_[model.labels_ >= 0], minlength=model.n_clusters_)
    n_outliers = len(model.labels_) - int(sizes.sum())
    figures: dict[str, Any] = {
        "rows": f"{len(model.labels_):,}",
        "clusters in use": f"{np.count_nonzero(sizes)} of {model.n_clusters_}",
        "outliers": f"{n_outliers:,}" if n_outliers else None,
        "rows per cluster": f"{sizes.min():,} to {sizes.max():,}",
        "ratio cut": _number(getattr(model, "ratio_cut_", None)),
        "objective": _number(getattr(model, "objective_", None)),
        "neighbours": getattr(model, "n_neighbors_", None),
        "balance weight": _number(getattr(model, "balance_weight_", None)),
    }
    shown = {name: value for name, value in figures.items() if value is not None}
    heads = "".join(f'<th style="padding-right:12px">{name}</th>' for name in shown)
    cells = "".join(
        f'<td style="padding-right:12px">{html.escape(str(value))}</td>' for value in shown.values()
    )
    return f"{_TABLE}<tr>{heads}</tr><tr>{cells}</tr></table>"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"
