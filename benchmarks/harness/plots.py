"""Quality against time: a point per method, a picture per data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.harness.methods import METHODS
from benchmarks.harness.records import RunRecord
from benchmarks.harness.summary import run_seconds
from benchmarks.harness.task import Method

from prcut.errors import InvalidInputError, PRCutError

__all__ = ["plot_quality"]

_OURS, _OTHERS, _TEXT = "#0b5fa5", "#9a9a9a", "#555555"
# where a label may stand, in points from its marker: nearest first
_PLACES = [
    (dx, dy)
    for far in (1.0, 1.7, 2.6, 3.6)
    for dx, dy in (
        *((7, 0), (-7, 0), (6, 7 * far), (6, -7 * far)),
        *((-6, 7 * far), (-6, -7 * far), (0, 9 * far), (0, -9 * far)),
    )
]


class _Point(NamedTuple):
    title: str
    seconds: float
    acc: float
    low: float
    high: float
    is_ours: bool


def plot_quality(
    records: Sequence[RunRecord],
    path: str | Path,
    *,
    methods: Mapping[str, Method] = METHODS,
) -> None:
    """Draw accuracy over seconds, medians with the range over seeds, as a PNG or SVG file.

    Runs that are not done have neither and are named below the picture.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PRCutError(f"plots need matplotlib ({error}): pip install 'prcut[bench]'.") from error

    if Path(path).suffix not in (".png", ".svg"):
        raise InvalidInputError(f"{path} must end with .png or .svg.")
    points = _points(records, methods)
    if not points:
        raise InvalidInputError(f"no run for {path} is done, so there is nothing to draw.")
    # the same file for the same records
    with mpl.rc_context({"svg.hashsalt": "prcut", "font.size": 9}):
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _draw(axes, points)
        _name_axes(axes, records, methods)
        figure.draw_without_rendering()  # settles the layout that labels are placed in
        _place_labels(axes, points)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        is_svg = Path(path).suffix == ".svg"
        figure.savefig(path, dpi=150, metadata={"Date": None} if is_svg else None)


def _points(records: Sequence[RunRecord], methods: Mapping[str, Method]) -> list[_Point]:
    """One per method, and per graph where there are several."""
    several = len({record.spec.n_neighbors for record in records}) > 1
    groups: dict[tuple[str, int], list[RunRecord]] = {}
    for record in records:
        if record.result.status == "done":
            groups.setdefault((record.spec.method, record.spec.n_neighbors), []).append(record)
    points = []
    for (key, n_neighbors), runs in groups.items():
        acc = [record.result.acc or 0.0 for record in runs]
        seconds = median(run_seconds(record, methods) for record in runs)
        title = _title(key, methods) + (f", {n_neighbors} nb." if several else "")
        ours = key.startswith("prcut")
        points.append(_Point(title, max(seconds, 1e-3), median(acc), min(acc), max(acc), ours))
    return points


def _title(key: str, methods: Mapping[str, Method]) -> str:
    # a picture has no room for what stands in brackets
    return methods[key].title.partition(" (")[0] if key in methods else key


def _draw(axes: Any, points: Sequence[_Point]) -> None:
    for point in points:
        color = _OURS if point.is_ours else _OTHERS
        size = 46 if point.is_ours else 30
        axes.vlines(point.seconds, point.low, point.high, color=color, lw=1, alpha=0.6)
        axes.scatter(point.seconds, point.acc, s=size, color=color, zorder=3, linewidths=0)
    axes.set_xscale("log")
    axes.margins(x=0.16, y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#cccccc")
    axes.grid(color="#eeeeee", lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_TEXT, which="both", length=0)
    low, high = axes.get_xlim()
    ticks = [s for s in (0.01, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000) if low <= s <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)


def _name_axes(axes: Any, records: Sequence[RunRecord], methods: Mapping[str, Method]) -> None:
    spec = records[0].spec
    known = next(record.result for record in records if record.result.n_samples)
    axes.set_title(
        f"{spec.dataset}, {spec.representation}: {known.n_samples:,} rows, "
        f"{known.n_clusters} classes",
        loc="left",
        color="#222222",
        fontsize=10,
    )
    done = {record.spec.method for record in records if record.result.status == "done"}
    without = {
        record.spec.method: _title(record.spec.method, methods)
        + (f" (> {record.spec.time_limit:g} s)" if record.result.status == "timed out" else "")
        for record in records
        if record.spec.method not in done
    }
    label = "seconds, neighbours and graph included"
    if without:
        label += f"\nnot done: {', '.join(without.values())}"
    axes.set_xlabel(label, color=_TEXT)
    axes.set_ylabel("ACC", color=_TEXT)


def _place_labels(axes: Any, points: Sequence[_Point]) -> None:
    """Put each label at the nearest position free of markers and of the labels before it."""
    renderer = axes.figure.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    pixels = axes.transData.transform([(point.seconds, point.acc) for point in points])
    taken = [_box(x, y, x, y, 4.0) for x, y in pixels]
    # ours first: they may stand where they like
    for point in sorted(points, key=lambda point: not point.is_ours):
        best, best_cost, best_box = None, float("inf"), None
        for order, (dx, dy) in enumerate(_PLACES):
            text = axes.annotate(
                point.title,
                (point.seconds, point.acc),
                (dx, dy),
                textcoords="offset points",
                ha="left" if dx > 0 else "right" if dx < 0 else "center",
                va="center",
                color=_OURS if point.is_ours else _TEXT,
                fontweight="bold" if point.is_ours else "normal",
                fontsize=8.5,
            )
            extent = text.get_window_extent(renderer)
            box = _box(extent.x0, extent.y0, extent.x1, extent.y1, 1.0)
            outside = max(0.0, box[2] - frame.x1) + max(0.0, frame.x0 - box[0])
            cost = sum(_overlap(box, other) for other in taken) + 20 * outside + 0.5 * order
            if cost < best_cost:
                if best is not None:
                    best.remove()
                best, best_cost, best_box = text, cost, box
            else:
                text.remove()
        assert best_box is not None  # noqa: S101
        taken.append(best_box)


_Box = tuple[float, float, float, float]


def _box(x0: float, y0: float, x1: float, y1: float, margin: float) -> _Box:
    return x0 - margin, y0 - margin, x1 + margin, y1 + margin


def _overlap(one: _Box, other: _Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
