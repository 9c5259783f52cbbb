"""Two runs side by side: what moved between their clusters."""

from __future__ import annotations

from typing import Any

import numpy as np

from prcut.advice import advise
from prcut.errors import InvalidInputError
from prcut.inspection import Inspection
from prcut.matching import adjusted_rand, count_shared, match_counts, max_nmi
from prcut.plot import ClusterMapDisplay, MovesDisplay, cluster_colors
from prcut.report_page import chip, draw, figure, page, section, table, text
from prcut.report_parts import (
    MOST_CELLS,
    ClassScores,
    RowShower,
    describe_making,
    facts_of,
    figures_of,
    headline,
    links_of,
    score_classes,
    tile_list,
    warning_section,
)
from prcut.row_contents import RowLabels

__all__ = ["comparison_page"]

# moves that are shown with examples
_MOVES = 12


def comparison_page(
    one: Inspection, other: Inspection, contents: RowShower, classes: RowLabels | None
) -> str:
    """The page of two runs on the same rows."""
    names = _two_names(one, other)
    if one.n_clusters * other.n_clusters > MOST_CELLS:
        raise InvalidInputError(
            f"{one.n_clusters:,} and {other.n_clusters:,} clusters are too many to be matched; "
            "compare runs with fewer."
        )
    shared = count_shared(
        one.labels, other.labels.astype(np.int64), one.n_clusters, other.n_clusters
    )
    # clusters of the second are called by the colours of those they are matched with
    mates = _mates(shared)
    n_colors = max(one.n_clusters, int(mates.max()) + 1)
    colors = cluster_colors(n_colors)
    moved = mates[other.labels] != one.labels
    first, second = one.labels.astype(np.int64), other.labels.astype(np.int64)
    tiles = [
        ("rows", f"{one.source.n_samples:,}"),
        ("moved to another cluster", f"{moved.mean():.1%}"),
        ("adjusted Rand index", f"{adjusted_rand(first, second):.3f}"),
        ("NMI", f"{max_nmi(first, second):.3f}"),
        ("clusters", f"{one.n_clusters:,} → {other.n_clusters:,}"),
    ]
    scored = (
        None if classes is None else (score_classes(classes, one), score_classes(classes, other))
    )
    advice = [f"{names[0]}: {line}" for line in advise(one)]
    advice += [f"{names[1]}: {line}" for line in advise(other)]
    parts = [
        tile_list(tiles),
        _moved_section(one, other, shared, mates, colors, contents, names),
        _two_maps(one, other, mates, n_colors, names),
        _side_by_side(one, other, scored, names),
        warning_section(advice),
    ]
    figures: dict[str, Any] = {
        "first": figures_of(one, scored and scored[0]),
        "second": figures_of(other, scored and scored[1]),
        "moved_share": float(moved.mean()),
        "ari": adjusted_rand(first, second),
    }
    return page(
        f"{names[0]} and {names[1]}",
        f"What moved between two clusterings of the same {one.source.n_samples:,} rows",
        parts,
        links=links_of(parts),
        footer=describe_making(one),
        figures=figures,
    )


def _two_names(one: Inspection, other: Inspection) -> tuple[str, str]:
    if one.name != other.name:
        return one.name, other.name
    return f"{one.name} (first)", f"{other.name} (second)"


def _mates(shared: np.ndarray) -> np.ndarray:
    """For every cluster of the second, the matched one of the first, or a number beyond them."""
    first, second = match_counts(shared)
    mates = np.full(shared.shape[1], -1)
    mates[second] = first
    alone = mates < 0
    mates[alone] = shared.shape[0] + np.arange(int(alone.sum()))
    return mates


def _moved_section(
    one: Inspection,
    other: Inspection,
    shared: np.ndarray,
    mates: np.ndarray,
    colors: np.ndarray,
    contents: RowShower,
    names: tuple[str, str],
) -> str:
    picture = draw("moves", MovesDisplay(shared, names).plot, (5.0, 4.3), "What moved, as a matrix")
    counts = shared.copy()
    stayed = mates[None, :] == np.arange(one.n_clusters)[:, None]
    counts[stayed] = 0
    order = np.argsort(-counts, axis=None, kind="stable")[:_MOVES]
    moves = [
        (int(i), int(j))
        for i, j in zip(*np.unravel_index(order, counts.shape), strict=True)
        if counts[i, j]
    ]
    if not moves:
        return section("moved", "What moved", "<p>No row is in another cluster.</p>")
    n_shown = contents.n_examples
    rows = {
        (i, j): _surest(one, other, (one.labels == i) & (other.labels == j), n_shown)
        for i, j in moves
    }
    shown = contents.read(np.concatenate(list(rows.values())))
    lines, cards = [], []
    for i, j in moves:
        count = int(counts[i, j])
        share, to = count / one.sizes[i], chip(j, colors[mates[j]])
        lines.append((chip(i, colors[i]), to, f"{count:,}", f"{share:.1%}"))
        items = contents.items(shown, rows[i, j], [""] * len(rows[i, j]))
        cards.append(
            f'<article class="cluster"><header><h3>{chip(i, colors[i])} → {to}</h3>'
            f"<span>{count:,} rows, {share:.0%} of cluster {i}</span></header>"
            f"<h4>Rows that both runs are surest of</h4>{items}</article>"
        )
    heads = ["from", "to", "rows", "of its cluster"]
    caption = (
        "Clusters of the two are matched one to one, so that the fewest rows move; matched ones "
        "stand on the diagonal and have the same colour."
    )
    return section(
        "moved",
        "What moved",
        f'<div class="pair">{figure(picture, caption)}',
        f"<div><h3>Largest moves</h3>{table(heads, lines, numbers=(2, 3))}</div></div>",
        f'<div class="clusters" style="margin-top:18px">{"".join(cards)}</div>',
    )


def _surest(one: Inspection, other: Inspection, chosen: np.ndarray, n_rows: int) -> np.ndarray:
    places = np.flatnonzero(chosen)
    sure = np.minimum(one.confidence[places], other.confidence[places])
    return one.rows[places[np.argsort(-sure, kind="stable")[:n_rows]]]


def _two_maps(
    one: Inspection, other: Inspection, mates: np.ndarray, n_colors: int, names: tuple[str, str]
) -> str:
    own = np.full(n_colors, -1)
    own[mates] = np.arange(other.n_clusters)
    first = ClusterMapDisplay(one.places, one.labels, n_colors)
    second = ClusterMapDisplay(
        one.places, mates[other.labels], n_colors, names=[str(number) for number in own]
    )
    pictures = [
        figure(
            draw(f"map{place}", display.plot, (5.2, 5.0), f"Map of the rows by {name}"),
            f"{name}, by what the last layer of {names[0]} sees.",
            kind="map",
        )
        for place, (display, name) in enumerate(zip((first, second), names, strict=True))
    ]
    return section("map", "The same rows", f'<div class="pair">{"".join(pictures)}</div>')


def _side_by_side(
    one: Inspection,
    other: Inspection,
    scored: tuple[ClassScores, ClassScores] | None,
    names: tuple[str, str],
) -> str:
    facts = [facts_of(run) for run in (one, other)]
    for place, run in enumerate((one, other)):
        facts[place] |= dict(headline(run, scored[place] if scored else None))
    keys = list(dict.fromkeys([*facts[0], *facts[1]]))
    lines = []
    for key in keys:
        first, second = (text(fact.get(key, "–")) for fact in facts)
        same = first == second
        mark = (lambda value: value) if same else (lambda value: f"<strong>{value}</strong>")
        lines.append((text(key), mark(first), mark(second)))
    heads = f'<tr><th></th><th scope="col">{text(names[0])}</th><th scope="col">{text(names[1])}'
    inside = table([], lines).replace("<tr>", f"{heads}</th></tr><tr>", 1)
    return section("how", "Side by side", inside)
