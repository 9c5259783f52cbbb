"""Write a clustering as one HTML file: settings, map, sizes, cut, examples and warnings.

``prcut report RUN``, ``PRCut.report`` and :func:`write_report` make it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prcut.curate.names import read_names
from prcut.errors import InvalidInputError
from prcut.numerics.matching import adjusted_rand, count_shared, match_counts, max_nmi
from prcut.runtime.folder import Folder, parsing
from prcut.runtime.progress import Progress
from prcut.ui.plot import (
    ClusterMapDisplay,
    ClusterSizesDisplay,
    ConfusionDisplay,
    CutMatrixDisplay,
    cluster_colors,
)
from prcut.ui.report.diagnostics import diagnose
from prcut.ui.report.explorer import choose_points, collect_points
from prcut.ui.report.inspection import Inspectable, Inspection, inspect_run
from prcut.ui.report.page import draw, load_script, make_chip, render
from prcut.ui.report.row_contents import RowContents, RowLabels, read_labels

# largest clusters, which get a card with examples: about ten screens
_MOST_CARDS = 40
# neighbours or classes of a cluster that are named
_NAMED = 3
# smaller fractions of a cluster's weight, or of its rows, are not named
_LEAST_NAMED = 0.01
# entries of the largest table of classes and clusters that is matched
_MOST_MATCHED = 20_000_000
# pictures in inches, two of which fit side by side on the page
_MAP = (6.4, 6.0)
_WIDE = (5.0, 3.1)
_SQUARE = (5.0, 4.3)
_SOLVERS = {
    "search": "search on the graph, then distilled into the assigner",
    "train": "training of the assigner on pairs",
}


class ClassScores(NamedTuple):
    """How clusters match classes; ``shared`` and accuracy are None where there are too many."""

    shared: np.ndarray | None
    accuracy: float | None
    nmi: float
    ari: float
    names: list[str]


def write_report(
    run: str | Path | Inspectable | Inspection,
    path: str | Path,
    *,
    data: Any = None,
    texts: Any = None,
    images: Any = None,
    labels: Any = None,
    names: Sequence[str] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Write the report of a run as one self-contained HTML file.

    Parameters
    ----------
    run : str, path, PRCut or Inspection
        A run folder, a fitted estimator, or the inspection of one of them.
    path : str or path
        The HTML file.
    data : array, or path or URI, optional
        The rows: required for an estimator, and for a run that does not record them or whose data
        have moved.
    texts, images, labels : optional
        Contents and classes of the rows: see :mod:`prcut.ui.report.row_contents`.
    names : sequence of str, optional
        Names of the clusters, by default those that ``prcut name`` wrote into the run, or else
        their numbers.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress`.
    """
    if isinstance(run, Inspection):
        inspection = run
    elif isinstance(run, str | Path):
        inspection = inspect_run(run, data=data, on_progress=on_progress)
    elif data is None:
        raise InvalidInputError("the report of an estimator needs its rows: pass data.")
    else:
        inspection = run.inspect(data, on_progress=on_progress)
    classes = None if labels is None else read_labels(inspection.source, labels, inspection.rows)
    if names is None and isinstance(run, str | Path):
        saved = read_names(run, inspection.n_clusters)
        names = None if saved is None else [cluster.name for cluster in saved.clusters]
    contents = RowContents(inspection.source, texts, images)
    with parsing(f"plan.json or result.json of {inspection.name}"):
        settings = describe_settings(inspection)
    page = _render(inspection, settings, contents, classes, names)
    file = Path(path)
    Folder(file.parent).write_bytes(file.name, iter([page.encode()]))


def _render(
    inspection: Inspection,
    settings: dict[str, str],
    contents: RowContents,
    classes: RowLabels | None,
    names: Sequence[str] | None,
) -> str:
    """Read the contents of the rows that are shown, draw the pictures, and fill the template."""
    n_clusters = inspection.n_clusters
    if names is not None and (isinstance(names, str) or len(names) != n_clusters):
        raise InvalidInputError(f"{len(names)} names for {n_clusters=}; pass one name per cluster.")
    named = [""] * n_clusters if names is None else [" ".join(str(one).split()) for one in names]
    scores = None if classes is None else score_classes(classes, inspection)
    largest = np.argsort(-inspection.sizes, kind="stable")[:_MOST_CARDS]
    shown = sorted(largest[inspection.sizes[largest] > 0].tolist())
    examples = inspection.examples(contents.n_examples)
    points = choose_points(inspection, examples)
    cards = [np.concatenate([examples[c].typical, examples[c].ambiguous]) for c in shown]
    on_map = inspection.rows[points[: contents.n_readable]]
    known = contents.read(np.concatenate([*cards, on_map]))
    return render(
        "report.html",
        **load_script("explorer.js"),
        points=collect_points(inspection, points, known, named, classes),
        names=named,
        inspection=inspection,
        scores=scores,
        tiles=list_headline(inspection, scores),
        warnings=diagnose(inspection),
        pictures=_draw_pictures(inspection, scores),
        median_size=int(np.median(inspection.sizes)),
        settings=settings,
        chips=[make_chip(number, color) for number, color in enumerate(cluster_colors(n_clusters))],
        shown={cluster: _describe_cluster(inspection, cluster, scores) for cluster in shown},
        examples=examples,
        contents=known,
    )


def _draw_pictures(inspection: Inspection, scores: ClassScores | None) -> dict[str, Any]:
    """Draw the pictures that the inspection allows, by name."""
    map_label = f"Map of {len(inspection.rows):,} rows in {inspection.n_clusters} clusters"
    rows = ClusterMapDisplay(inspection.coords, inspection.labels, inspection.n_clusters)
    sizes = ClusterSizesDisplay(inspection.sizes)
    pictures = {
        "map": draw("map", rows.plot, _MAP, map_label),
        "sizes": draw("sizes", sizes.plot, _WIDE, "Rows per cluster"),
    }
    if inspection.links is not None and inspection.n_clusters > 1:
        cut = CutMatrixDisplay(inspection.links)
        pictures["cut"] = draw("cut", cut.plot, _SQUARE, "Weight between clusters")
    if scores is not None and scores.shared is not None:
        table = ConfusionDisplay(scores.shared, scores.names)
        pictures["confusion"] = draw("confusion", table.plot, _SQUARE, "Classes and clusters")
    return pictures


def _describe_cluster(
    inspection: Inspection, cluster: int, scores: ClassScores | None
) -> dict[str, Any]:
    """Collect the cut, the neighbours and the classes of a cluster."""
    about: dict[str, Any] = {"cut": None, "neighbors": [], "classes": []}
    if inspection.link_fractions is not None and inspection.n_clusters > 1:
        others = inspection.link_fractions[cluster].copy()
        others[cluster] = 0
        about |= {"cut": others.sum(), "neighbors": _choose_largest(others)}
    if scores is not None and scores.shared is not None:
        fractions = scores.shared[:, cluster] / inspection.sizes[cluster]
        about["classes"] = _choose_largest(fractions)
    return about


def _choose_largest(fractions: np.ndarray) -> list[tuple[int, float]]:
    """Choose the few largest fractions, with their positions."""
    order = np.argsort(-fractions)[:_NAMED].tolist()
    return [(i, fractions[i]) for i in order if fractions[i] >= _LEAST_NAMED]


def score_classes(classes: RowLabels, inspection: Inspection) -> ClassScores:
    """Score the clusters against the classes of the inspected rows."""
    labels, n_clusters = inspection.labels.astype(np.int64), inspection.n_clusters
    shared, accuracy = None, None
    if len(classes.names) * n_clusters <= _MOST_MATCHED:
        shared = count_shared(classes.codes, labels, len(classes.names), n_clusters)
        accuracy = float(shared[match_counts(shared)].sum() / len(labels))
    nmi, ari = max_nmi(classes.codes, labels), adjusted_rand(classes.codes, labels)
    return ClassScores(shared, accuracy, nmi, ari, classes.names)


def list_headline(inspection: Inspection, scores: ClassScores | None) -> dict[str, str]:
    """List the figures at the top of the page by name."""
    ratio, about = inspection.bound_ratio, inspection.about
    tiles = {
        "rows": f"{inspection.source.n_samples:,}",
        "clusters in use": f"{inspection.n_used:,} of {inspection.n_clusters:,}",
        "rows that belong nowhere": _format(about.get("n_outliers"), ","),
        "better cut than by chance": _format(inspection.better_than_chance, ".1%"),
        "times the best cut, at most": None if ratio is None or ratio >= 100 else f"{ratio:.2f}×",
        "mean confidence": f"{inspection.confidence.mean():.3f}",
    }
    if scores is not None:
        tiles |= {
            "accuracy against the classes": _format(scores.accuracy, ".1%"),
            "NMI with the classes": f"{scores.nmi:.3f}",
            "ARI": f"{scores.ari:.3f}",
        }
    return {name: value for name, value in tiles.items() if value is not None}


def describe_settings(inspection: Inspection) -> dict[str, str]:
    """Describe the data, the graph, the method and the outcome in words."""
    about = inspection.about
    graph = about.get("metric") and (
        f"{about.get('n_neighbors') or ''} nearest neighbours, {about['metric']}, "
        f"weights {about.get('similarity')}"
    )
    seconds = about.get("seconds")
    total = sum(seconds.values()) if isinstance(seconds, dict) else seconds
    settings: dict[str, Any] = {
        "data": about.get("data"),
        "column": about.get("column"),
        "rows": f"{inspection.source.n_samples:,} of {inspection.source.n_features:,} features",
        "clusters": f"{inspection.n_clusters:,}",
        "method": _SOLVERS.get(str(about.get("solver"))),
        "graph": graph,
        "hidden layers": ", ".join(map(str, about.get("hidden") or ())) or "none: linear",
        "balance weight": _format(about.get("balance_weight"), ".4g"),
        "seed": _format(about.get("seed"), ".0f"),
        "objective": _format(about.get("objective"), ".5g"),
        "ratio cut": _format(about.get("ratio_cut"), ".5g"),
        "certificate": _describe_certificate(inspection),
        "seconds": _format(total, ",.0f"),
    }
    return {name: str(value) for name, value in settings.items() if value is not None}


def _format(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)


def _describe_certificate(inspection: Inspection) -> str:
    ratio = inspection.bound_ratio
    if inspection.bound is None or ratio is None:
        if inspection.about.get("mode") == "disk":
            return "none: the whole graph is not in memory"
        return "none: the eigenvalues of so large a graph would take too long"
    bound = (
        f"no partition into {inspection.n_used} clusters has a ratio cut below "
        f"{inspection.bound.value:.5g}"
    )
    if not math.isfinite(ratio):
        return f"{bound}, which is no bound at all, because the graph is not connected"
    return f"{bound}, so this one is at most {ratio:,.3g} times the best"
