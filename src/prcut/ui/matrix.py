"""Tables of percentages as pictures: cuts between clusters, classes against clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prcut.numerics.matching import match_counts

# lines or columns that are named, and that leave room for values
MOST_TICKS, _MOST_WRITTEN = 25, 10
_MATRIX_PIXELS = 360
# longer names would leave no room for the picture
_NAME_LENGTH = 24


def percent_of_rows(table: np.ndarray) -> Any:
    """Divide every row by its sum, in percent; a row of zeros stays zero."""
    total = table.sum(1, keepdims=True)
    return np.divide(100 * table, total, out=np.zeros(table.shape), where=total > 0)


def draw_matched(
    ax: Any, shared: np.ndarray, color: str, label: str, names: Sequence[str] | None = None
) -> None:
    """Draw a table with its columns ordered like the rows they match, then by size."""
    lines, columns = match_counts(shared)
    rest = np.setdiff1d(np.arange(shared.shape[1]), columns)
    by_size = np.argsort(-shared[:, rest].sum(0), kind="stable")
    order = np.concatenate([columns[np.argsort(lines)], rest[by_size]])
    draw_matrix(ax, percent_of_rows(shared[:, order]), color, label, names, order)


def draw_matrix(
    ax: Any,
    values: np.ndarray,
    color: str,
    label: str,
    names: Sequence[str] | None = None,
    columns: np.ndarray | None = None,
) -> None:
    """Draw a table as a picture, with the names of its lines and the numbers of its columns."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    n_lines, n_columns = values.shape
    values = _pool(values)
    picture = ax.imshow(
        values,
        # nearly transparent where nothing is, which suits any background
        cmap=LinearSegmentedColormap.from_list("fading", [to_rgba(color, 0.04), to_rgba(color)]),
        vmin=0,
        aspect="equal" if max(values.shape) <= 2 * min(values.shape) else "auto",
        extent=(-0.5, n_columns - 0.5, n_lines - 0.5, -0.5),
        interpolation="none",
    )
    bar = ax.figure.colorbar(picture, ax=ax, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label(label, parse_math=False)
    if n_lines <= MOST_TICKS:
        shown = range(n_lines) if names is None else [shorten(name) for name in names]
        ax.set_yticks(range(n_lines), shown, fontsize=8, parse_math=False)
    if n_columns <= MOST_TICKS:
        numbers = range(n_columns) if columns is None else columns
        ax.set_xticks(range(n_columns), numbers, fontsize=8)
    elif columns is not None:
        ax.set_xticks([])  # positions are not the numbers of the clusters
    if max(values.shape) <= _MOST_WRITTEN:
        _write_values(ax, values)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def shorten(text: str, length: int = _NAME_LENGTH) -> str:
    """Cut a text off at a length."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def _write_values(ax: Any, values: np.ndarray) -> None:
    import matplotlib as mpl

    dark = 0.55 * np.nanmax(values)
    for line, column in np.argwhere(values >= 0.5):
        value = values[line, column]
        color = "white" if value > dark else mpl.rcParams["text.color"]
        ax.text(column, line, f"{value:.0f}", ha="center", va="center", fontsize=7, color=color)


def _pool(values: np.ndarray) -> np.ndarray:
    """Take the maximum over blocks of lines and columns that are too many for a picture."""
    for axis, length in enumerate(values.shape):
        if length > _MATRIX_PIXELS:
            starts = np.linspace(0, length, _MATRIX_PIXELS, endpoint=False).astype(int)
            values = np.fmax.reduceat(values, starts, axis=axis)
    return values
