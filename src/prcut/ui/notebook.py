"""Tables and small pictures that a notebook shows of a fitted estimator and its history."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from prcut.runtime.progress import Step

# as in prcut.ui.plot, without loading matplotlib
_COLORS = {"objective": "#1f77b4", "cut": "#ff7f0e", "confidence": "#2ca02c"}
# more clusters than this share bars
_BARS = 100
_TABLE = '<table style="font-size:90%;text-align:left;border-collapse:collapse">'


class History(dict[str, np.ndarray]):
    """Training records by name, and the steps of the search, as a notebook shows them.

    >>> history = History(step=np.arange(3), objective=np.array([3.0, 2.0, 1.0]))
    >>> "<svg" in history._repr_html_()
    True
    """

    def __init__(self, *records: Any, steps: Sequence[Step] = (), **more: np.ndarray) -> None:
        super().__init__(*records, **more)
        self.steps = tuple(steps)

    def _repr_html_(self) -> str:
        """List the steps of the search; draw the curves of training, with their last values."""
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{seconds:.2f} s</td>"
            f"<td>{'' if np.isnan(objective) else f'J = {objective:.4f}'}</td></tr>"
            for name, seconds, objective in self.steps
        )
        return (f"{_TABLE}{rows}</table>" if rows else "") + self._curves()

    def _curves(self) -> str:
        step = self.get("step", np.empty(0))
        if not len(step):
            return "<p>No training steps yet.</p>"
        cells = "".join(
            f'<td style="padding:4px 12px 4px 0"><span style="color:{color}">{name}</span> '
            f"{self[name][-1]:.4g}<br>{_curve(self[name], color)}</td>"
            for name, color in _COLORS.items()
            if name in self
        )
        return f"{_TABLE}<caption>{step[-1]:,} steps</caption><tr>{cells}</tr></table>"


class FittedClusters(Protocol):
    """What :func:`results_html` needs of a fitted estimator; scores are shown where it has them."""

    n_clusters_: int
    labels_: np.ndarray


def results_html(model: FittedClusters) -> str:
    """Show the scores of a fitted estimator and the sizes of its clusters."""
    sizes = np.bincount(model.labels_[model.labels_ >= 0], minlength=model.n_clusters_)
    n_outliers = len(model.labels_) - int(sizes.sum())
    figures: dict[str, Any] = {
        "rows": f"{len(model.labels_):,}",
        "clusters in use": f"{np.count_nonzero(sizes)} of {model.n_clusters_}",
        "belong nowhere": f"{n_outliers:,}" if n_outliers else None,
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
    return (
        f"{_TABLE}<tr>{heads}<th>rows per cluster, largest first</th></tr>"
        f"<tr>{cells}<td>{_bars(np.sort(sizes)[::-1])}</td></tr></table>"
    )


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _curve(values: np.ndarray, color: str) -> str:
    """Draw a curve as SVG, from 0 or the minimum to the maximum."""
    width, height = 160, 40
    low, high = min(0.0, float(np.min(values))), max(float(np.max(values)), 1e-12)
    across = np.linspace(1, width - 1, len(values)) if len(values) > 1 else np.array([width / 2])
    up = height - 1 - (height - 2) * (np.asarray(values, float) - low) / (high - low)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="curve"><polyline '
        f'points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/></svg>'
    )


def _bars(sizes: np.ndarray) -> str:
    """Draw sorted sizes as SVG bars, each of one cluster or the mean of several."""
    width, height = 240, 36
    groups = np.array_split(sizes, min(len(sizes), _BARS))
    tall = np.array([float(group.mean()) for group in groups]) / max(1, sizes.max())
    step = width / len(tall)
    bars = "".join(
        f'<rect x="{i * step:.1f}" y="{height * (1 - t):.1f}" width="{0.85 * step:.1f}" '
        f'height="{height * t:.1f}" fill="#1f77b4"/>'
        for i, t in enumerate(tall)
    )
    return (
        f'<svg width="{width}" height="{height}" role="img" '
        f'aria-label="from {sizes.max():,} to {sizes.min():,} rows">{bars}</svg>'
    )
