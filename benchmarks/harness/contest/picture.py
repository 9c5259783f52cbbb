"""The critical-difference picture: mean ranks on a line, bars over methods that do not differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.contest.scoreboard import Scoreboard, mean_ranks
from benchmarks.harness.contest.significance import find_cliques
from benchmarks.harness.methods import METHODS

from prcut.errors import PRCutError

__all__ = ["draw_ranks"]

_OURS, _OTHERS, _TEXT = "#0b5fa5", "#777777", "#333333"
_FIRST_ROW, _ROW_STEP, _BAR_STEP = 0.9, 0.55, 0.22


def draw_ranks(board: Scoreboard, path: Path, title: str) -> None:
    """Draw mean ranks by NMI as an SVG file."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PRCutError(f"plots need matplotlib ({error}): pip install 'prcut[bench]'.") from error

    # text stays text, and the same records give the same file
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "contest", "font.size": 9}):
        figure = Figure()
        FigureCanvasAgg(figure)
        _draw(figure, board)
        figure.suptitle(title, fontsize=10, color=_TEXT)
        figure.savefig(path, metadata={"Date": None})


def _draw(figure: Any, board: Scoreboard) -> None:
    scores = board.scores["nmi"]
    ranks = mean_ranks(scores)
    order = [int(i) for i in ranks.argsort(kind="stable")]
    cliques = find_cliques(scores, order)
    n_methods, n_left = len(order), (len(order) + 1) // 2
    first_row = _FIRST_ROW + _BAR_STEP * len(cliques)
    depth = first_row + _ROW_STEP * n_left
    figure.set_size_inches(10, 1.0 + 0.5 * depth)
    axes = figure.add_axes((0.32, 0.02, 0.36, 0.86))
    _draw_axis(axes, n_methods, depth)
    _draw_cliques(axes, [ranks[i] for i in order], cliques)
    for place, i in enumerate(order):
        is_left = place < n_left
        y = first_row + _ROW_STEP * (place if is_left else n_methods - 1 - place)
        _draw_method(axes, board.methods[i], ranks[i], y, side=-1 if is_left else n_methods)


def _draw_axis(axes: Any, n_methods: int, depth: float) -> None:
    axes.set_xlim(1, n_methods)
    axes.set_ylim(depth, -0.6)
    axes.axis("off")
    axes.plot([1, n_methods], [0, 0], color=_TEXT, lw=1, clip_on=False)
    for rank in range(1, n_methods + 1):
        axes.plot([rank, rank], [0, -0.12], color=_TEXT, lw=1, clip_on=False)
        axes.text(rank, -0.2, str(rank), ha="center", va="bottom", color=_TEXT)


def _draw_cliques(axes: Any, ranks: Sequence[float], cliques: Sequence[range]) -> None:
    for level, clique in enumerate(cliques):
        y = 0.35 + _BAR_STEP * level
        ends = [ranks[clique[0]] - 0.05, ranks[clique[-1]] + 0.05]
        axes.plot(ends, [y, y], color=_TEXT, lw=3, solid_capstyle="butt", clip_on=False)


def _draw_method(axes: Any, method: str, rank: float, y: float, side: int) -> None:
    """Lead a line from the rank to the method's name, left of the axis or right of it."""
    is_left, is_ours = side < 0, method.startswith("prcut")
    colour = _OURS if is_ours else _OTHERS
    end = 0.8 if is_left else side + 0.2
    axes.plot([rank, rank, end], [0, y, y], color=colour, lw=1, clip_on=False)
    name = METHODS[method].title + ("" if METHODS[method].given_k else "¹")
    text = f"{name}  {rank:.2f} " if is_left else f" {rank:.2f}  {name}"
    align, weight = "right" if is_left else "left", "bold" if is_ours else "normal"
    axes.text(end, y, text, ha=align, va="center", color=colour, weight=weight, clip_on=False)
