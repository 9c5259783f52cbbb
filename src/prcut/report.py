"""A clustering as one HTML file: what was clustered and how, what came out, what deserves a look.

``prcut report RUN`` and :func:`write_report` make it; with a second run it shows what moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from prcut.advice import advise
from prcut.assignment import assign_labels
from prcut.cuts import ratio_cut
from prcut.errors import InvalidInputError
from prcut.inspection import Inspection, RowSource, inspect_assigner, inspect_run
from prcut.matching import match_counts
from prcut.objective import hard_objective
from prcut.plot import (
    ClusterMapDisplay,
    ClusterSizesDisplay,
    ConfidenceDisplay,
    ConfusionDisplay,
    CutMatrixDisplay,
    HistoryDisplay,
    cluster_colors,
)
from prcut.progress import Progress
from prcut.report_comparison import comparison_page
from prcut.report_page import chip, draw, figure, page, percent, section, table, text
from prcut.report_parts import (
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
from prcut.row_contents import RowLabels, read_labels
from prcut.storage import Folder

if TYPE_CHECKING:
    from prcut.estimator import PRCut

__all__ = ["write_report"]

# clusters that are shown with examples: the largest, and the least sure of the others
_LARGEST, _LEAST_SURE = 32, 8
# lines of a table of clusters, and of pairs
_MOST_LINES, _PAIRS = 300, 12

_WIDE, _SQUARE = (5.0, 3.1), (5.0, 4.3)


def write_report(
    run: str | Path | Inspection | PRCut,
    path: str | Path,
    *,
    against: str | Path | Inspection | PRCut | None = None,
    data: Any = None,
    texts: Any = None,
    images: Any = None,
    labels: Any = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Write the report of a run, or of two side by side, as one self-contained HTML file.

    Parameters
    ----------
    run : str, path, PRCut or Inspection
        A run folder, a fitted estimator, or what was found by looking at one of them.
    path : str or path
        The file.
    against : str, path, PRCut or Inspection, optional
        Another run on the same rows: the report then shows what moved.
    data : array, or path or URI, optional
        The rows: of an estimator always, of a run where it does not say or they have moved.
    texts, images, labels : optional
        What rows stand for, and their classes: see :mod:`prcut.row_contents`.
    on_progress : callable, optional
        Called with a :class:`prcut.progress.Progress`.
    """
    one = _inspection(run, data, on_progress)
    contents = RowShower(one.source, texts, images)
    classes = None if labels is None else read_labels(one.source, labels, one.rows)
    if against is None:
        content = _report(one, contents, classes)
    else:
        other = _inspection(against, None if isinstance(against, Inspection) else data, on_progress)
        if not np.array_equal(one.rows, other.rows):
            raise InvalidInputError(
                f"{one.name} has n_samples={one.source.n_samples} rows, {other.name} "
                f"{other.source.n_samples}; only runs on the same rows can be compared."
            )
        content = comparison_page(one, other, contents, classes)
    file = Path(path)
    Folder(file.parent).write_bytes(file.name, iter([content.encode()]))


def _inspection(
    run: str | Path | Inspection | PRCut,
    data: Any,
    on_progress: Callable[[Progress], None] | None,
) -> Inspection:
    if isinstance(run, Inspection):
        return run
    if isinstance(run, str | Path):
        return inspect_run(run, data=data, on_progress=on_progress)
    if data is None:
        raise InvalidInputError("the report of an estimator needs its rows: give data.")
    return _inspect_estimator(run, data, on_progress)


def _inspect_estimator(
    model: PRCut, rows: Any, on_progress: Callable[[Progress], None] | None
) -> Inspection:
    assigner, features = model._ready(rows)
    config = model._config()
    graph = model._graph(rows if model._is_precomputed else features, config)
    labels = torch.from_numpy(assign_labels(assigner, features))
    balance = getattr(model, "balance_weight_", config.in_use.balance_weight)
    k = assigner.n_clusters
    objective = hard_objective(graph.weight, labels, k, balance_weight=balance)
    found = getattr(model, "labels_", np.empty(0))
    is_known = config.solver == "search" and len(found) == len(labels)
    about = {
        **asdict(config),
        **asdict(config.in_use),
        "hidden": assigner.hidden,
        "n_neighbors": getattr(model, "n_neighbors_", config.n_neighbors),
        "balance_weight": balance,
        "n_steps": getattr(model, "n_steps_", None),
        "objective": float(objective),
        "ratio_cut": float(ratio_cut(graph.weight, labels, k)),
    }
    return inspect_assigner(
        assigner,
        RowSource(features),
        name=type(model).__name__,
        about=about,
        graph=graph,
        history=getattr(model, "history_", {}),
        found_labels=found if is_known else None,
        on_progress=on_progress,
    )


# -- one run -----------------------------------------------------------------------------------


def _report(one: Inspection, contents: RowShower, classes: RowLabels | None) -> str:
    colors = _colors(one)
    scores = None if classes is None else score_classes(classes, one)
    parts = [
        tile_list(headline(one, scores)),
        warning_section(advise(one)),
        _map_section(one),
        _how_section(one),
        _cut_section(one, colors),
        "" if scores is None else _label_section(scores, colors),
        _cluster_section(one, contents, colors, scores),
        _table_section(one, colors, scores),
    ]
    return page(
        f"{one.name}: {one.n_clusters:,} clusters",
        _describe_rows(one),
        parts,
        links=links_of(parts),
        footer=describe_making(one),
        figures=figures_of(one, scores),
    )


def _describe_rows(one: Inspection) -> str:
    seen = len(one.rows)
    rows = f"{one.source.n_samples:,} rows of {one.source.n_features:,} features"
    if seen < one.source.n_samples:
        rows += f", {seen:,} of them looked at, spread over all"
    data = one.about.get("data")
    return rows + (f" from {Path(str(data)).name}" if data else "")


def _map_section(one: Inspection) -> str:
    labels, n_colors = _map_labels(one)
    map_ = draw(
        "map",
        ClusterMapDisplay(one.places, labels, n_colors).plot,
        (6.4, 6.0),
        f"Map of {len(one.rows):,} rows in {one.n_clusters} clusters",
    )
    sizes = draw("sizes", ClusterSizesDisplay(one.sizes).plot, _WIDE, "Rows of every cluster")
    sure = draw(
        "confidence", ConfidenceDisplay(one.confidence).plot, _WIDE, "Histogram of the confidence"
    )
    kind = "clusters of the first level" if one.first_level is not None else "clusters"
    what = f"All {len(one.rows):,} rows, coloured by {kind}, by what the model's last layer sees. "
    spread = (one.sizes.min(), int(np.median(one.sizes)), one.sizes.max())
    unsure = (one.confidence < 0.5).mean()
    return section(
        "map",
        "Map of the rows",
        '<div class="pair wide-first">',
        figure(map_, what + "Near rows are alike; far ones may be anything.", kind="map"),
        "<div>",
        figure(
            sizes,
            f"Rows of a cluster: {spread[0]:,} to {spread[2]:,}, half below {spread[1]:,}; "
            "dashed, the mean.",
        ),
        figure(sure, f"{unsure:.1%} of the rows have less than 0.5 in their own cluster."),
        "</div></div>",
    )


def _map_labels(one: Inspection) -> tuple[np.ndarray, int]:
    """What the map is coloured by: of levels the first, else more colours than can be told."""
    if one.first_level is None:
        return one.labels, one.n_clusters
    return one.first_level[one.labels], int(one.first_level[-1]) + 1


def _colors(one: Inspection) -> np.ndarray:
    if one.first_level is None:
        return cluster_colors(one.n_clusters)
    colors: np.ndarray = cluster_colors(int(one.first_level[-1]) + 1)[one.first_level]
    return colors


def _how_section(one: Inspection) -> str:
    facts = table([], [(text(name), text(value)) for name, value in facts_of(one).items()])
    if not one.history:
        return section("how", "How it was clustered", facts)
    curves = draw("history", HistoryDisplay(one.history).plot, _WIDE, "Training curves")
    searched = one.about.get("solver") == "search"
    caption = (
        "How the assigner learned what the search had found: the expected cut of its "
        "probabilities comes down to that of the clusters."
        if searched
        else "Training of the start that was kept, a point per ten steps."
    )
    return section(
        "how",
        "How it was clustered",
        f'<div class="pair"><div>{facts}</div>',
        figure(curves, caption),
        "</div>",
    )


def _cut_section(one: Inspection, colors: np.ndarray) -> str:
    if one.links is None or one.link_shares is None or one.n_clusters < 2:
        return ""
    cut = 1 - np.trace(one.links) / max(one.links.sum(), 1e-300)
    picture = draw(
        "cut", CutMatrixDisplay(one.links).plot, _SQUARE, "Weight between clusters as a matrix"
    )
    much = "Less than 0.1%" if cut < 0.0005 else f"{cut:.1%}"
    caption = (
        f"{much} of the graph's weight lies between clusters. A line shows where the weight that "
        "leaves a cluster goes, in per cent of all its weight."
    )
    return section(
        "cut",
        "Cut between clusters",
        '<div class="pair">',
        figure(picture, caption),
        f"<div>{_neighbors(one, colors)}{_merges(one, colors)}</div></div>",
    )


def _neighbors(one: Inspection, colors: np.ndarray) -> str:
    links, shares = one.links, one.link_shares
    assert links is not None  # noqa: S101
    between = np.triu(links, 1)
    volume = links.sum(1)
    # of the smaller of the two, so that small clusters beside large ones are found
    weight = between / np.maximum(np.minimum(volume[:, None], volume), 1e-300)
    order = np.argsort(-weight, axis=None)[:_PAIRS]
    pairs = [(int(i), int(j)) for i, j in zip(*np.unravel_index(order, weight.shape), strict=True)]
    lines = [
        (chip(i, colors[i]), chip(j, colors[j]), percent(shares[i, j]), percent(shares[j, i]))
        for i, j in pairs
        if between[i, j] > 0
    ]
    if not lines:
        return "<p>No edge joins two clusters.</p>"
    heads = ["cluster", "neighbour", "weight there", "and back"]
    return "<h3>Closest neighbours</h3>" + table(heads, lines, numbers=(2, 3))


def _merges(one: Inspection, colors: np.ndarray) -> str:
    tree = one.merges
    if tree is None or one.n_clusters < 3:
        return ""
    steps = []
    for (i, j), cost in zip(tree.children[:4].tolist(), tree.costs[:4].tolist(), strict=False):
        if max(i, j) < one.n_clusters:
            steps.append(f"{chip(i, colors[i])} with {chip(j, colors[j])} ({cost:+.3f})")
    if not steps:
        return ""
    return (
        '<p class="soft" style="margin-top:12px">By the cut alone these would merge first '
        f"(what that changes in the objective): {', '.join(steps)}.</p>"
    )


# -- classes -----------------------------------------------------------------------------------


def _label_section(scores: ClassScores, colors: np.ndarray) -> str:
    shared = scores.shared
    if shared is None:
        return ""
    picture = draw(
        "confusion", ConfusionDisplay(shared, scores.names).plot, _SQUARE, "Classes and clusters"
    )
    classes, clusters = match_counts(shared)
    sizes = np.maximum(shared.sum(1), 1)
    right = shared[classes, clusters] / sizes[classes]
    order = np.argsort(right)[:_MOST_LINES]
    matched = {int(i): (int(j), float(r)) for i, j, r in zip(classes, clusters, right, strict=True)}
    lines = []
    for i in (*np.setdiff1d(np.arange(len(scores.names)), classes), *classes[order]):
        j, share = matched.get(int(i), (-1, 0.0))
        rest = shared[i].copy()
        rest[j if j >= 0 else []] = 0
        away = int(rest.argmax())
        elsewhere = (
            f"{chip(away, colors[away])} {percent(rest[away] / sizes[i])}" if rest[away] else ""
        )
        mate = chip(j, colors[j]) if j >= 0 else "none"
        name = _class_name(scores.names[i])
        lines.append((name, mate, f"{share:.0%}", elsewhere))
    heads = ["class", "cluster", "rows in it", "most others in"]
    caption = "Every class is matched with one cluster at most, so that the most rows are right."
    return section(
        "classes",
        "Clusters and classes",
        f'<div class="pair">{figure(picture, caption)}',
        f"<div>{table(heads, lines, numbers=(2,))}</div></div>",
    )


# -- clusters ----------------------------------------------------------------------------------


def _class_name(name: str) -> str:
    """A name that breaks after underscores."""
    return f'<span class="name">{text(name).replace("_", "_<wbr>")}</span>'


def _shown(one: Inspection) -> np.ndarray:
    """Clusters that get a card: the largest, and the least sure of the others."""
    used = np.flatnonzero(one.sizes)
    if len(used) <= _LARGEST + _LEAST_SURE:
        return used
    by_size = used[np.argsort(-one.sizes[used], kind="stable")]
    rest = by_size[_LARGEST:]
    unsure = rest[np.argsort(one.mean_confidence[rest], kind="stable")[:_LEAST_SURE]]
    return np.concatenate([by_size[:_LARGEST], unsure])


def _cluster_section(
    one: Inspection, contents: RowShower, colors: np.ndarray, scores: ClassScores | None
) -> str:
    clusters = _shown(one)
    examples = one.examples(contents.n_examples)
    wanted = [np.concatenate([examples[c].typical, examples[c].ambiguous]) for c in clusters]
    shown = contents.read(np.concatenate(wanted))
    cards = []
    for cluster in clusters.tolist():
        example = examples[cluster]
        notes = [
            f"{f'or {runner} · ' if runner >= 0 else ''}{sure:.2f}"
            for runner, sure in zip(
                example.runner_up.tolist(), example.confidence.tolist(), strict=True
            )
        ]
        plain = [""] * len(example.typical)
        cards.append(
            f'<article class="cluster"><header><h3>{chip(cluster, colors[cluster])}</h3>'
            f"<span>{_size_words(one, cluster)}</span></header>"
            f"<p>{'<br>'.join(_about_cluster(one, cluster, colors, scores))}</p>"
            f"<h4>Most typical</h4>{contents.items(shown, example.typical, plain)}"
            f"<h4>Most ambiguous</h4>{contents.items(shown, example.ambiguous, notes)}</article>"
        )
    rule = "Typical rows lie nearest to the middle of their cluster, ambiguous ones have the "
    rule += "lowest probability of it; beside them stand the cluster that comes next and that "
    rule += "probability."
    n_used = int((one.sizes > 0).sum())
    if len(clusters) < n_used:
        rule += (
            f" Of {n_used:,} clusters the {_LARGEST} largest are shown, and of the others the "
            f"{_LEAST_SURE} with the lowest confidence."
        )
    return section(
        "clusters",
        "Clusters",
        f"<p>{text(rule)}</p>",
        f'<div class="clusters">{"".join(cards)}</div>',
    )


def _size_words(one: Inspection, cluster: int) -> str:
    size = int(one.sizes[cluster])
    return f"{size:,} rows, {size / len(one.rows):.1%}"


def _about_cluster(
    one: Inspection, cluster: int, colors: np.ndarray, scores: ClassScores | None
) -> list[str]:
    """Lines about a cluster: confidence, neighbours, classes."""
    lines = [f"confidence {one.mean_confidence[cluster]:.2f}"]
    shares = one.link_shares
    if shares is not None and one.n_clusters > 1:
        others = shares[cluster].copy()
        others[cluster] = 0
        lines[0] += f", {percent(others.sum())} of its weight is cut"
        near = [int(other) for other in np.argsort(-others)[:3] if others[other] >= 0.005]
        if near:
            names = ", ".join(f"{chip(o, colors[o])} {percent(others[o])}" for o in near)
            lines.append(f"next to {names}")
    if scores is not None and scores.shared is not None:
        counts = scores.shared[:, cluster]
        top = [int(i) for i in np.argsort(-counts)[:3] if counts[i] >= 0.02 * counts.sum()]
        lines.append(
            ", ".join(f"{text(scores.names[i])} {percent(counts[i] / counts.sum())}" for i in top)
        )
    return lines


def _table_section(one: Inspection, colors: np.ndarray, scores: ClassScores | None) -> str:
    """All clusters as a table, where not all have a card."""
    used = np.flatnonzero(one.sizes)
    if len(_shown(one)) == len(used):
        return ""
    order = used[np.argsort(-one.sizes[used], kind="stable")][:_MOST_LINES]
    lines = []
    for cluster in order.tolist():
        line = [
            chip(cluster, colors[cluster]),
            f"{one.sizes[cluster]:,}",
            f"{one.mean_confidence[cluster]:.3f}",
        ]
        if one.link_shares is not None:
            line.append(percent(1 - one.link_shares[cluster, cluster]))
        if scores is not None and scores.shared is not None:
            counts = scores.shared[:, cluster]
            most = scores.names[int(counts.argmax())]
            line.append(_class_name(most))
            line.append(f"{counts.max() / counts.sum():.0%}")
        lines.append(line)
    heads = ["cluster", "rows", "confidence"]
    heads += ["weight cut"] if one.link_shares is not None else []
    heads += ["most frequent class", "share"] if scores and scores.shared is not None else []
    title = "All clusters" if len(order) == len(used) else f"The {len(order)} largest clusters"
    return section("all", title, table(heads, lines, numbers=(1, 2, 3, 5)))
