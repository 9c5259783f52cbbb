"""The figures of the documents, each drawn by the functions it is about.

    python docs/making/figures.py           # the README's picture and table, from the results
    python docs/making/figures.py FOLDER    # all of them, light and dark

The site draws them anew at every build; only the README's picture is committed.
"""

from __future__ import annotations

import functools
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from peers import SHOWN, TITLES, peer_points, write_readme_table

ROOT = Path(__file__).parent.parent.parent
README_PICTURE = ROOT / "docs/peers.svg"


class Palette(NamedTuple):
    """Colours for one background."""

    ink: str
    muted: str
    faint: str
    paper: str
    series: tuple[str, ...]


LIGHT = Palette(
    *("#24292f", "#6b7280", "#c9ced6", "#ffffff"),
    ("#0b63b0", "#d2691e", "#2f8f5b", "#8a4fbf", "#b5892a", "#c23b5a", "#3c8d99", "#7d6b5d"),
)
DARK = Palette(
    *("#e6e8ec", "#a6adb8", "#525a68", "#1f2129"),
    ("#64b1f5", "#f5a25d", "#62cf97", "#c49af0", "#e3c05c", "#f07f9b", "#6fcbd6", "#c7b4a3"),
)

Figures = dict[str, Callable[[Palette], Figure]]


def all_figures() -> dict[str, bytes]:
    """Every figure for both palettes: ``figures/NAME.svg`` and ``figures/NAME-dark.svg``."""
    made = {}
    for name, draw in FIGURES.items():
        made[f"figures/{name}.svg"] = as_svg(draw, LIGHT)
        made[f"figures/{name}-dark.svg"] = as_svg(draw, DARK)
    return made


def as_svg(
    draw: Callable[[Palette], Figure],
    palette: Palette,
    *,
    facecolor: str = "none",
    description: str | None = None,
) -> bytes:
    """Return the same bytes for the same figure."""
    style = {
        "svg.hashsalt": "prcut",
        "font.size": 9,
        "text.color": palette.ink,
        "axes.labelcolor": palette.muted,
        "axes.edgecolor": palette.faint,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": "none",
        "xtick.color": palette.muted,
        "ytick.color": palette.muted,
        "legend.frameon": False,
        "axes.prop_cycle": mpl.cycler(color=palette.series),
    }
    with mpl.rc_context(style):
        file = io.BytesIO()
        metadata = {"Date": None, "Description": description}
        draw(palette).savefig(file, format="svg", facecolor=facecolor, metadata=metadata)
    return file.getvalue()


# -- why the ratio cut ---------------------------------------------------------------------------


def why_ratio_cut(palette: Palette) -> Figure:
    """Show that the cut with the fewest edges takes one row off, and the ratio cut does not."""
    from prcut import SimilarityGraph, ratio_cut

    spiral = np.arange(14)[:, None] ** 0.5 * 0.26  # as the seeds of a sunflower
    angle = np.arange(14) * 2.4
    group = spiral * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rows = np.concatenate([group - [1.15, 0], group + np.array([1.15, 0]), [[3.0, 0.5]]])
    near = np.argsort(np.linalg.norm(rows[:, None] - rows, axis=2), axis=1)
    neighbors = np.stack([[other for other in order[1:] if other != 28][:3] for order in near])
    neighbors[-1, 1:] = -1  # the last row hangs on one edge
    # three bridges, so that the two groups are joined by more than the last row is
    left, right = np.argsort(-rows[:14, 0])[:3], 14 + np.argsort(rows[14:28, 0])[:3]
    by_height = [side[np.argsort(rows[side, 1])] for side in (left, right)]
    neighbors[by_height[0], 2] = by_height[1]
    graph = SimilarityGraph.from_neighbors(neighbors)
    partitions = {
        "fewest edges cut": np.arange(29) == 28,
        "lowest ratio cut": np.arange(29) >= 14,
    }
    figure = Figure(figsize=(7.4, 2.7), layout="constrained")
    for axes, (title, in_second) in zip(figure.subplots(1, 2), partitions.items(), strict=True):
        labels = torch.from_numpy(in_second.astype(np.int64))
        source, target, _ = graph.edges
        is_cut = labels[source] != labels[target]
        n_cut = int(is_cut.sum()) // 2
        value = ratio_cut(graph.weight, labels, 2).item()
        _draw_edges(axes, rows, graph.edges, palette, is_cut.numpy())
        colors = np.array(palette.series)[labels.numpy()]
        axes.scatter(*rows.T, s=26, c=colors, zorder=3, linewidths=0)
        sizes = np.bincount(labels.numpy())
        axes.set_title(
            f"{title}: {n_cut} edge{'s' if n_cut > 1 else ''}\n"
            f"½ ({n_cut}/{sizes[0]} + {n_cut}/{sizes[1]}) = {value:.2f}"
        )
        _bare(axes)
    return figure


def _draw_edges(
    axes: Any, rows: np.ndarray, edges: Any, palette: Palette, is_strong: Any = None
) -> None:
    source, target, _ = edges
    ends = rows[np.stack([source, target], axis=1)]
    strong = np.zeros(len(ends), dtype=bool) if is_strong is None else is_strong
    axes.add_collection(LineCollection(ends[~strong], colors=palette.faint, lw=0.7, zorder=1))
    axes.add_collection(LineCollection(ends[strong], colors=palette.series[5], lw=1.8, zorder=2))


def _bare(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_aspect("equal")


# -- what the surrogate does ---------------------------------------------------------------------


def surrogate(palette: Palette) -> Figure:
    """Show the exact expectation, its surrogate and its bound, as assignments become certain."""
    from prcut import expected_ratio_cut
    from prcut.numerics.expectation import ratio_cut_upper_bound
    from prcut.numerics.objective import soft_graph_ratio_cut

    figure = Figure(figsize=(7.4, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    graph = _ring(24)
    certainty = np.linspace(0, 1, 41)
    curves = {
        "upper bound": ratio_cut_upper_bound,
        "exact expectation": expected_ratio_cut,
        "surrogate": soft_graph_ratio_cut,
    }
    values = {
        name: [curve(graph.weight, _half_sure(24, sure)).item() for sure in certainty]
        for name, curve in curves.items()
    }
    for number, (name, line) in enumerate(values.items()):
        color = palette.series[(2, 0, 1)[number]]
        left.plot(certainty, line, label=name, color=color, lw=1.8)
    left.set_title("24 rows on a ring, two halves")
    left.set_xlabel("certainty of every row")
    left.set_ylabel("ratio cut")
    left.legend()

    n_rows = [8, 16, 32, 64, 128, 256, 512, 1024]
    for number, name in enumerate(("upper bound", "surrogate")):
        gap = []
        for n in n_rows:
            ring, probs = _ring(n), _half_sure(n, 0.5)
            exact = expected_ratio_cut(ring.weight, probs).item()
            gap.append(abs(curves[name](ring.weight, probs).item() / exact - 1))
        color = palette.series[(2, 1)[number]]
        right.loglog(n_rows, gap, marker="o", ms=3.5, label=name, color=color, lw=1.5)
    right.set_title("relative distance to the exact value")
    right.set_xlabel("rows (certainty ½)")
    right.set_xticks([10, 100, 1000], ["10", "100", "1000"])
    right.set_xticks([], minor=True)
    right.legend()
    return figure


def _ring(n_rows: int) -> Any:
    from prcut import SimilarityGraph

    here = np.arange(n_rows)
    return SimilarityGraph.from_neighbors(
        np.stack([(here + 1) % n_rows, (here + 2) % n_rows], axis=1)
    )


def _half_sure(n_rows: int, certainty: float) -> torch.Tensor:
    """Two halves: probability ½ at certainty 0, 1 for the right half at certainty 1."""
    first = torch.where(torch.arange(n_rows) < n_rows // 2, 1.0, -1.0).double()
    return torch.stack([0.5 + 0.5 * certainty * first, 0.5 - 0.5 * certainty * first], dim=1)


# -- walks ---------------------------------------------------------------------------------------


@functools.cache
def _moons(n_rows: int = 220) -> tuple[np.ndarray, Any]:
    from sklearn.datasets import make_moons

    from prcut import build_graph

    rows = make_moons(n_rows, noise=0.07, random_state=2)[0].astype(np.float32)
    return rows, build_graph(rows, n_neighbors=6, similarity="mean", max_components=2)


def walks(palette: Palette) -> Figure:
    """Where a walk of one and of eight steps may end, by the kernel W(D⁻¹W)^(s−1)."""
    rows, graph = _moons()
    step = graph.to_scipy() / np.asarray(graph.degree)[:, None]
    start = int(np.argmin(np.linalg.norm(rows - (-0.85, 0.5), axis=1)))
    figure = Figure(figsize=(7.4, 2.5), layout="constrained")
    reach = np.eye(len(rows))[start]
    ends = {1: None, 8: _walk(step.tocsr(), start, 8)}
    for axes, n_steps in zip(figure.subplots(1, 2), ends, strict=True):
        reach = np.eye(len(rows))[start]
        for _ in range(n_steps):
            reach = reach @ step
        _draw_edges(axes, rows, graph.edges, palette)
        order = np.argsort(reach)
        shade = np.sqrt(reach / reach.max())
        colors = [mpl.colors.to_rgba(palette.series[0], s) for s in shade[order]]
        axes.scatter(*rows.T, s=9, color=palette.faint, zorder=2, linewidths=0)
        axes.scatter(*rows[order].T, s=26, c=colors, zorder=3, linewidths=0)
        axes.scatter(*rows[start], s=46, color=palette.series[1], zorder=5, linewidths=0)
        if (path := ends[n_steps]) is not None:
            axes.plot(*rows[path].T, color=palette.series[1], lw=1.6, zorder=4)
            axes.scatter(*rows[path[-1]], s=46, color=palette.series[5], zorder=5, linewidths=0)
        n_reached = int((reach > 0).sum())
        title = "1 step: an edge" if n_steps == 1 else f"{n_steps} steps, one walk drawn"
        axes.set_title(f"{title}; {n_reached} rows can be reached")
        _bare(axes)
    return figure


def _walk(step: Any, start: int, n_steps: int) -> list[int]:
    """Return the first walk that meets no row twice, since that is the easiest to see."""
    for seed in range(1000):
        rng, path = np.random.default_rng(seed), [start]
        for _ in range(n_steps):
            row = step[[path[-1]]]
            path.append(int(rng.choice(row.indices, p=row.data / row.data.sum())))
        if len(set(path)) > n_steps:
            break
    return path


# -- blocks --------------------------------------------------------------------------------------


def blocks(palette: Palette) -> Figure:
    """One block: its core, its halo, and edges that all lie inside."""
    from prcut.graph.blocks.cells import nearest_cells

    rng = np.random.default_rng(5)
    rows = rng.normal(size=(600, 2)).astype(np.float32)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True) / 2.2)
    angles = np.arange(6) * np.pi / 3
    ring = 1.35 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    centroids = np.concatenate([[[0.0, 0.0]], ring]).astype(np.float32)
    cells = nearest_cells(centroids, rows, 2, "euclidean")
    chosen = 1
    core, halo = cells[:, 0] == chosen, cells[:, 1] == chosen
    figure = Figure(figsize=(7.4, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for cell in range(len(centroids)):
        members = rows[cells[:, 0] == cell]
        left.scatter(*members.T, s=9, color=palette.series[cell], linewidths=0)
    left.scatter(*centroids.T, marker="+", s=60, color=palette.ink, lw=1.4)
    left.set_title("cells: the rows nearest to each centroid")
    others = ~(core | halo)
    right.scatter(*rows[others].T, s=6, color=palette.faint, linewidths=0)
    inside = np.flatnonzero(core | halo)
    distance = np.linalg.norm(rows[core][:, None] - rows[inside], axis=2)
    for row, near in zip(np.flatnonzero(core), np.argsort(distance, axis=1)[:, 1:4], strict=True):
        for other in inside[near]:
            right.plot(*rows[[row, other]].T, color=palette.muted, lw=0.5, zorder=1)
    right.scatter(*rows[core].T, s=11, color=palette.series[chosen], label="core", linewidths=0)
    right.scatter(
        *rows[halo].T, s=13, facecolors="none", edgecolors=palette.series[0], lw=0.9, label="halo"
    )
    right.set_title("one block: core, halo, the core's edges")
    right.legend(loc="lower left", bbox_to_anchor=(-0.02, -0.04))
    for axes in (left, right):
        _bare(axes)
    return figure


# -- the search ----------------------------------------------------------------------------------


def search(palette: Palette) -> Figure:
    """Show what the stages of a fit make of two moons."""
    from prcut.search.fragments import find_fragments

    rows, graph = _moons(400)
    fragments = find_fragments(graph.to_scipy(), 24, np.random.default_rng(0))
    model = _model_of_moons()
    figure = Figure(figsize=(7.4, 2.1), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    many = np.array(palette.series)[fragments % len(palette.series)]
    first.scatter(*rows.T, s=7, c=many, linewidths=0)
    first.set_title(f"{fragments.max() + 1} fragments of the graph")
    two = np.array(palette.series)
    second.scatter(*rows.T, s=7, c=two[model.labels_], linewidths=0)
    second.set_title("clusters of fragments, refined")
    grid = np.stack(np.meshgrid(np.linspace(-1.4, 2.4, 90), np.linspace(-0.9, 1.4, 60)), axis=-1)
    probs = model.predict_proba(grid.reshape(-1, 2).astype(np.float32))
    colors = np.stack([mpl.colors.to_rgb(color) for color in palette.series[:2]])
    image = (probs @ colors).reshape(60, 90, 3)
    third.imshow(image, extent=(-1.4, 2.4, -0.9, 1.4), origin="lower", alpha=0.65, aspect="equal")
    third.scatter(*rows.T, s=3, color=palette.ink, linewidths=0)
    third.set_title("what the assigner has learned")
    for axes in (first, second, third):
        _bare(axes)
        axes.set_xlim(-1.4, 2.4)
        axes.set_ylim(-0.9, 1.4)
    return figure


@functools.cache
def _model_of_moons() -> Any:
    from prcut import PRCut

    rows, graph = _moons(400)
    return PRCut(n_clusters=2, random_state=0).fit(rows, graph=graph)


# -- choosing k ----------------------------------------------------------------------------------


def merges(palette: Palette) -> Figure:
    """Show what fewer clusters cost: the merge tree of a fit with too many."""
    left = np.arange(15, 0, -1)
    figure = Figure(figsize=(7.4, 2.6), layout="constrained")
    axes = figure.add_subplot()
    colors = [palette.series[0] if k >= 8 else palette.series[1] for k in left]
    axes.bar(left, _costs_of_merges(), color=colors, width=0.7)
    axes.invert_xaxis()
    axes.set_xticks(left)
    axes.set_xlabel("clusters left after the merge")
    axes.set_ylabel("added to the objective")
    axes.set_title("1,500 rows from 8 Gaussians, fitted with 16 clusters, then merged")
    return figure


@functools.cache
def _costs_of_merges() -> np.ndarray:
    from sklearn.datasets import make_blobs

    from prcut import PRCut

    rows = make_blobs(1500, n_features=16, centers=8, cluster_std=3.0, random_state=1)[0]
    model = PRCut(n_clusters=16, max_steps=10, random_state=0)  # the assigner is not shown
    costs: np.ndarray = model.fit(rows).merge_tree_.costs
    return costs


# -- the peers -----------------------------------------------------------------------------------

_MARKERS = "o<sD^vPX"


def peers(palette: Palette) -> Figure:
    """Accuracy against time, a panel per data set."""
    figure = Figure(figsize=(9.2, 6.4), layout="constrained")
    panels = figure.subplots(2, 4, sharex=True, sharey=True)
    for axes, (dataset, points) in zip(panels.flat, peer_points().items(), strict=True):
        for method, (seconds, acc) in points.items():
            if method not in SHOWN and not method.startswith("prcut"):
                axes.scatter(seconds, acc, s=14, color=palette.faint, linewidths=0)
        for number, method in reversed(list(enumerate(SHOWN))):
            if method in points:
                color, marker = palette.series[number], _MARKERS[number]
                if method == "prcut":  # a ring, which covers no other method
                    axes.scatter(
                        *points[method],
                        s=90,
                        color="none",
                        edgecolors=color,
                        linewidths=2,
                        zorder=4,
                    )
                else:
                    axes.scatter(
                        *points[method], s=40, color=color, marker=marker, linewidths=0, zorder=3
                    )
        # the three efforts
        efforts = [points[name] for name in ("prcut_fast", "prcut", "prcut_best") if name in points]
        axes.plot(*zip(*efforts, strict=True), color=palette.series[0], lw=1, marker=".", zorder=2)
        axes.set_xscale("log")
        axes.set_xlim(0.05, 1500)
        axes.set_xticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1000"])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 1)
        axes.grid(color=palette.faint, lw=0.5, alpha=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, labelsize=10)
        axes.set_title(TITLES[dataset].replace(", ", "\n"), fontsize=11)
    figure.supxlabel("seconds, graph included (one thread)", fontsize=11, color=palette.muted)
    figure.supylabel("accuracy (Hungarian matching)", fontsize=11, color=palette.muted)
    handles = [
        mpl.lines.Line2D([], [], ls="", marker=_MARKERS[n], color=palette.series[n], label=name)
        for n, name in enumerate(SHOWN.values())
    ]
    handles[0].set(markersize=9, markerfacecolor="none", markeredgewidth=2)
    handles.append(
        mpl.lines.Line2D([], [], ls="", marker="o", ms=4, color=palette.faint, label="other peers")
    )
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=5,
        fontsize=11,
        columnspacing=1.2,
        handletextpad=0.2,
    )
    return figure


FIGURES: Figures = {
    "why-ratio-cut": why_ratio_cut,
    "surrogate": surrogate,
    "walks": walks,
    "blocks": blocks,
    "search": search,
    "merges": merges,
    "peers": peers,
}


def write_readme_picture() -> None:
    """On white, with its numbers inside, which a test compares with the records."""
    numbers = json.dumps(peer_points())
    README_PICTURE.write_bytes(as_svg(peers, LIGHT, facecolor=LIGHT.paper, description=numbers))


if __name__ == "__main__":
    write_readme_picture()
    write_readme_table()
    if len(sys.argv) > 1:
        for name, content in all_figures().items():
            file = Path(sys.argv[1]) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
