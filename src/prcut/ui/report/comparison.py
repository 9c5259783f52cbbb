"""Two runs side by side: what moved between their clusters."""

from __future__ import annotations

from typing import Any

import numpy as np

from prcut.errors import InvalidInputError
from prcut.numerics.matching import adjusted_rand, count_shared, match_counts, max_nmi
from prcut.ui.colors import cluster_colors
from prcut.ui.plot import ClusterMapDisplay, MovesDisplay
from prcut.ui.report.diagnostics import diagnose
from prcut.ui.report.inspection import Inspection
from prcut.ui.report.page import draw, make_chip, render
from prcut.ui.report.parts import (
    MOST_MATCHED,
    RowContents,
    describe_settings,
    largest_entries,
    list_figures,
    list_headline,
    score_classes,
)
from prcut.ui.report.row_contents import RowLabels

# moves shown with examples
_MOVES = 12


def render_comparison(
    first: Inspection, second: Inspection, contents: RowContents, classes: RowLabels | None
) -> str:
    """Render the page of two runs on the same rows."""
    if first.n_clusters * second.n_clusters > MOST_MATCHED:
        raise InvalidInputError(
            f"{first.n_clusters:,} and {second.n_clusters:,} clusters are too many to match; "
            "compare runs with fewer."
        )
    runs, names = (first, second), (first.name, second.name)
    if first.name == second.name:
        names = f"{first.name} (first)", f"{second.name} (second)"
    labels = first.labels.astype(np.int64), second.labels.astype(np.int64)
    shared = count_shared(*labels, first.n_clusters, second.n_clusters)
    matches = _match(shared)
    moves = _list_moves(first, second, shared, matches, contents.n_examples)
    scores = [None if classes is None else score_classes(classes, run) for run in runs]
    scored = list(zip(runs, scores, strict=True))
    return render(
        "comparison.html",
        first=first,
        second=second,
        names=names,
        seconds=first.seconds,
        figures={
            "first": list_figures(*scored[0]),
            "second": list_figures(*scored[1]),
            "moved_share": float((matches[labels[1]] != labels[0]).mean()),
            "ari": adjusted_rand(*labels),
        },
        nmi=max_nmi(*labels),
        matrix=draw("moves", MovesDisplay(shared, names).plot, (5.0, 4.3), "Rows that moved"),
        moves=moves,
        contents=contents.read(np.concatenate([np.empty(0, int), *(m["rows"] for m in moves)])),
        maps=_draw_maps(first, second, matches, names),
        settings=[describe_settings(run) | list_headline(run, score) for run, score in scored],
        warnings=[
            f"{name}: {warning}"
            for name, run in zip(names, runs, strict=True)
            for warning in diagnose(run)
        ],
    )


def _match(shared: np.ndarray) -> np.ndarray:
    """Match every cluster of the second run with one of the first, or a number beyond them."""
    first, second = match_counts(shared)
    matches = np.full(shared.shape[1], -1)
    matches[second] = first
    alone = matches < 0
    matches[alone] = shared.shape[0] + np.arange(int(alone.sum()))
    return matches


def _count_colors(first: Inspection, matches: np.ndarray) -> int:
    return max(first.n_clusters, int(matches.max()) + 1)


def _list_moves(
    first: Inspection, second: Inspection, shared: np.ndarray, matches: np.ndarray, n_examples: int
) -> list[dict[str, Any]]:
    """List the largest moves, each with the rows of the highest confidence in both runs."""
    counts = shared.copy()
    counts[matches[None, :] == np.arange(first.n_clusters)[:, None]] = 0  # rows that stayed
    # a cluster of the second run has the colour of its match
    colors = cluster_colors(_count_colors(first, matches))
    confidence = np.minimum(first.confidence, second.confidence)
    moves = []
    for i, j in largest_entries(counts, _MOVES):
        moved = np.flatnonzero((first.labels == i) & (second.labels == j))
        surest = moved[np.argsort(-confidence[moved], kind="stable")[:n_examples]]
        chips = {"first": make_chip(i, colors[i]), "second": make_chip(j, colors[matches[j]])}
        moved_by = {"count": int(counts[i, j]), "fraction": counts[i, j] / first.sizes[i]}
        moves.append({**chips, **moved_by, "rows": first.rows[surest]})
    return moves


def _draw_maps(
    first: Inspection, second: Inspection, matches: np.ndarray, names: tuple[str, str]
) -> list[Any]:
    """Draw the same map in the clusters of both runs, matched ones in the same colour."""
    n_colors = _count_colors(first, matches)
    numbers = np.full(n_colors, -1)
    numbers[matches] = np.arange(second.n_clusters)
    texts = [str(number) for number in numbers]
    displays = (
        ClusterMapDisplay(first.coords, first.labels, n_colors),
        ClusterMapDisplay(first.coords, matches[second.labels], n_colors, names=texts),
    )
    return [
        draw(f"map{number}", display.plot, (5.2, 5.0), f"Map of the rows by {names[number]}")
        for number, display in enumerate(displays)
    ]
