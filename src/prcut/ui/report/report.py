"""A clustering as one HTML file: what was clustered and how, the result, and warnings.

``prcut report RUN`` and :func:`write_report` make it; with a second run it shows what moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prcut.errors import InvalidInputError
from prcut.numerics.matching import match_counts
from prcut.pipeline.names import read_names
from prcut.runtime.folder import Folder
from prcut.runtime.progress import Progress
from prcut.ui.colors import cluster_colors
from prcut.ui.plot import (
    AgreementDisplay,
    ClusterMapDisplay,
    ClusterSizesDisplay,
    ConfidenceDisplay,
    ConfusionDisplay,
    CutMatrixDisplay,
    HistoryDisplay,
)
from prcut.ui.report.comparison import render_comparison
from prcut.ui.report.diagnostics import diagnose
from prcut.ui.report.explorer import check_names, choose_contents, choose_points, collect_points
from prcut.ui.report.inspection import Inspectable, Inspection
from prcut.ui.report.page import draw, load_script, make_chip, render
from prcut.ui.report.parts import (
    ClassScores,
    RowContents,
    describe_settings,
    largest_entries,
    list_figures,
    list_headline,
    score_classes,
)
from prcut.ui.report.row_contents import RowLabels, read_labels
from prcut.ui.report.saved_run import inspect_run

# clusters shown with examples: the largest, and the least sure of the others
_LARGEST, _LEAST_SURE = 32, 8
# lines of a table of clusters, of pairs, and merges that are named
_MOST_LINES, _PAIRS, _MERGES = 300, 12, 4
# neighbours or classes of a cluster that are named
_NAMED = 3

_WIDE, _SQUARE = (5.0, 3.1), (5.0, 4.3)


def write_report(
    run: str | Path | Inspectable | Inspection,
    path: str | Path,
    *,
    against: str | Path | Inspectable | Inspection | None = None,
    data: Any = None,
    texts: Any = None,
    images: Any = None,
    labels: Any = None,
    names: Sequence[str] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Write the report of a run, or of two side by side, as one self-contained HTML file.

    Parameters
    ----------
    run : str, path, PRCut or Inspection
        A run folder, a fitted estimator, or the inspection of one of them.
    path : str or path
        The HTML file.
    against : str, path, PRCut or Inspection, optional
        Another run on the same rows: the report then shows what moved.
    data : array, or path or URI, optional
        The rows: required for an estimator, and for a run that does not record them or whose data
        have moved.
    texts, images, labels : optional
        What rows stand for, and their classes: see :mod:`prcut.ui.report.row_contents`.
    names : sequence of str, optional
        Names of the clusters, by default those that ``prcut name`` wrote into the run, or else
        their numbers; not used with ``against``.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress`.
    """
    inspection = _inspect(run, data, on_progress)
    contents = RowContents(inspection.source, texts, images)
    classes = None if labels is None else read_labels(inspection.source, labels, inspection.rows)
    if against is None:
        if names is None and isinstance(run, str | Path):
            saved = read_names(run, inspection.n_clusters)
            names = None if saved is None else [cluster.name for cluster in saved.clusters]
        content = _render_report(inspection, contents, classes, names)
    else:
        other = _inspect(against, data, on_progress)
        if not np.array_equal(inspection.rows, other.rows):
            raise InvalidInputError(
                f"{inspection.name} has n_samples={inspection.source.n_samples} rows, {other.name} "
                f"{other.source.n_samples}; only runs on the same rows can be compared."
            )
        content = render_comparison(inspection, other, contents, classes)
    file = Path(path)
    Folder(file.parent).write_bytes(file.name, iter([content.encode()]))


def _inspect(
    run: str | Path | Inspectable | Inspection,
    data: Any,
    on_progress: Callable[[Progress], None] | None,
) -> Inspection:
    if isinstance(run, Inspection):
        return run
    if isinstance(run, str | Path):
        return inspect_run(run, data=data, on_progress=on_progress)
    if data is None:
        raise InvalidInputError("the report of an estimator needs its rows: pass data.")
    return run.inspect(data, on_progress=on_progress)


def _render_report(
    inspection: Inspection,
    contents: RowContents,
    classes: RowLabels | None,
    names: Sequence[str] | None,
) -> str:
    named = check_names(names, inspection.n_clusters)
    scores = None if classes is None else score_classes(classes, inspection)
    used = np.flatnonzero(inspection.sizes)
    by_size = used[np.argsort(-inspection.sizes[used], kind="stable")]
    shown = _choose_shown(inspection, by_size)
    colors = cluster_colors(inspection.n_clusters)
    examples = inspection.examples(contents.n_examples)
    points = choose_points(inspection, examples)
    shown_on_map = choose_contents(inspection, points, contents)
    wanted = [np.concatenate([examples[c].typical, examples[c].ambiguous]) for c in shown]
    listed = by_size[:_MOST_LINES].tolist() if len(shown) < len(by_size) else []
    known = contents.read(np.concatenate([*wanted, shown_on_map]))
    return render(
        "report.html",
        **load_script("explorer.js"),
        points=collect_points(inspection, points, known, named, classes),
        names=named,
        inspection=inspection,
        scores=scores,
        seconds=inspection.seconds,
        figures=list_figures(inspection, scores),
        tiles=list_headline(inspection, scores),
        warnings=diagnose(inspection),
        pictures=_draw_pictures(inspection, scores),
        median_size=int(np.median(inspection.sizes)),
        settings=describe_settings(inspection),
        chips=[make_chip(cluster, color) for cluster, color in enumerate(colors)],
        closest=_list_closest(inspection),
        merges=_list_merges(inspection),
        class_lines=_list_classes(scores),
        shown={cluster: _describe_cluster(inspection, cluster, scores) for cluster in shown},
        n_largest=_LARGEST,
        n_unsure=_LEAST_SURE,
        examples=examples,
        contents=known,
        listed={cluster: _describe_cluster(inspection, cluster, scores) for cluster in listed},
    )


def _draw_pictures(inspection: Inspection, scores: ClassScores | None) -> dict[str, Any]:
    """Draw what there is, by name."""
    map_label = f"Map of {len(inspection.rows):,} rows in {inspection.n_clusters} clusters"
    rows = ClusterMapDisplay(inspection.coords, inspection.labels, inspection.n_clusters)
    confidence = ConfidenceDisplay(inspection.confidence)
    displays: dict[str, tuple[Any, tuple[float, float], str]] = {
        "map": (rows, (6.4, 6.0), map_label),
        "sizes": (ClusterSizesDisplay(inspection.sizes), _WIDE, "Rows per cluster"),
        "confidence": (confidence, _WIDE, "Histogram of the confidence"),
    }
    if inspection.agreement is not None:
        tried, agreed = inspection.agreement.T
        agreement = AgreementDisplay(tried, agreed, inspection.n_clusters)
        displays["agreement"] = agreement, _WIDE, "Agreement of searches"
    if inspection.history:
        displays["history"] = HistoryDisplay(inspection.history), _WIDE, "Training curves"
    if inspection.links is not None and inspection.n_clusters > 1:
        displays["cut"] = CutMatrixDisplay(inspection.links), _SQUARE, "Weight between clusters"
    if scores is not None and scores.shared is not None:
        confusion = ConfusionDisplay(scores.shared, scores.names)
        displays["confusion"] = confusion, _SQUARE, "Classes and clusters"
    return {
        name: draw(name, display.plot, size, label)
        for name, (display, size, label) in displays.items()
    }


def _list_closest(inspection: Inspection) -> list[tuple[int, int]]:
    """List the pairs of clusters with the most weight between them."""
    if inspection.links is None:
        return []
    volume = inspection.links.sum(1)
    # relative to the smaller of the two, so that small clusters beside large ones are found
    smaller = np.maximum(np.minimum(volume[:, None], volume), 1e-300)
    return largest_entries(np.triu(inspection.links, 1) / smaller, _PAIRS)


def _list_merges(inspection: Inspection) -> list[tuple[int, int, float]]:
    """List the first merges of two clusters that are both in the report, with their costs."""
    tree = inspection.merges
    if tree is None or inspection.n_clusters < 3:
        return []
    steps = zip(tree.children[:_MERGES].tolist(), tree.costs[:_MERGES].tolist(), strict=True)
    return [(i, j, cost) for (i, j), cost in steps if max(i, j) < inspection.n_clusters]


def _list_classes(scores: ClassScores | None) -> list[tuple[str, int | None, float, int, float]]:
    """List classes, the worst matched first, with their cluster, the next, and both fractions."""
    if scores is None or scores.shared is None:
        return []
    fractions = scores.shared / np.maximum(scores.shared.sum(1, keepdims=True), 1)
    classes, clusters = match_counts(scores.shared)
    matched = fractions[classes, clusters]
    fractions[classes, clusters] = 0  # the others remain
    worst = np.argsort(matched)[:_MOST_LINES]
    alone = np.setdiff1d(np.arange(len(scores.names)), classes)
    lines: list[tuple[int, int | None, float]] = [(number, None, 0.0) for number in alone.tolist()]
    lines += zip(classes[worst].tolist(), clusters[worst].tolist(), matched[worst], strict=True)
    return [
        (scores.names[number], *line, int(fractions[number].argmax()), fractions[number].max())
        for number, *line in lines
    ]


def _choose_shown(inspection: Inspection, by_size: np.ndarray) -> list[int]:
    """Choose the clusters that get a card."""
    largest, rest = by_size[:_LARGEST], by_size[_LARGEST:]
    if len(rest) <= _LEAST_SURE:
        return sorted(by_size.tolist())
    unsure = rest[np.argsort(inspection.mean_confidence[rest], kind="stable")[:_LEAST_SURE]]
    return [*largest.tolist(), *unsure.tolist()]


def _describe_cluster(
    inspection: Inspection, cluster: int, scores: ClassScores | None
) -> dict[str, Any]:
    """Collect the cut, the neighbours and the classes of a cluster."""
    about: dict[str, Any] = {"cut": None, "neighbors": [], "classes": []}
    if inspection.link_fractions is not None and inspection.n_clusters > 1:
        others = inspection.link_fractions[cluster].copy()
        others[cluster] = 0
        about |= {"cut": others.sum(), "neighbors": _choose_largest(others, 0.005)}
    if scores is not None and scores.shared is not None:
        fractions = scores.shared[:, cluster] / inspection.sizes[cluster]
        about["classes"] = _choose_largest(fractions, 0.02)
        about["main_class"] = int(fractions.argmax()), fractions.max()
    return about


def _choose_largest(fractions: np.ndarray, least: float) -> list[tuple[int, float]]:
    """Choose the few largest fractions that are not below ``least``, with their positions."""
    order = np.argsort(-fractions)[:_NAMED].tolist()
    return [(i, fractions[i]) for i in order if fractions[i] >= least]
