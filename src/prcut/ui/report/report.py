"""Write a clustering as one HTML file: settings, map, sizes, cut, examples and warnings.

``prcut report RUN``, ``PRCut.report`` and :func:`write_report` make it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prcut.curate.names import read_names
from prcut.errors import InvalidInputError
from prcut.numerics.matching import adjusted_rand, count_shared, match_counts, max_nmi
from prcut.runs.update import FinishedRun
from prcut.runtime.folder import Folder, parsing
from prcut.runtime.progress import Progress
from prcut.ui.plot import ClusterSizesDisplay, ConfusionDisplay, CutMatrixDisplay
from prcut.ui.report.diagnostics import LOW_CONFIDENCE, diagnose
from prcut.ui.report.explorer import choose_points, collect_points
from prcut.ui.report.inspection import Inspection, inspect_run
from prcut.ui.report.page import draw, load_script, render
from prcut.ui.report.row_contents import RowLabels, check_contents, read_contents, read_labels

# largest clusters, which get a card with examples: about ten screens
_MOST_CARDS = 40
# examples of each kind in a card: six pictures fit a line, four texts are as high as two lines
_IMAGES = 6
_TEXTS = 4
# texts, or images, that are read for the map: more would not fit into the page's 2 MB
_READ_TEXTS = 20_000
_READ_IMAGES = 3_000
# neighbours or classes of a cluster that are named
_NAMED = 3
# smaller fractions of a cluster's weight, or of its rows, are not named
_LEAST_NAMED = 0.01
# entries of the largest table of classes and clusters that is matched
_MOST_MATCHED = 20_000_000
# a larger ratio of the cut to its lower bound is not shown: the bound is too loose
_VAGUE = 100
# pictures in inches, two of which fit side by side on the page
_WIDE = (5.0, 3.1)
_SQUARE = (5.0, 4.3)
_SOLVERS = {
    "search": "search on the graph, then distilled into the assigner",
    "train": "training of the assigner on pairs",
}


class ClassScores(NamedTuple):
    """Agreement of clusters and classes; too many classes have no ``shared`` and no accuracy."""

    classes: RowLabels
    shared: np.ndarray | None
    accuracy: float | None
    nmi: float
    ari: float


def write_report(
    run: Any,
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
        Names of the clusters, by default the names that ``prcut name`` wrote into the run, or
        numbers.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress`.
    """
    contents = {"texts": texts, "images": images}
    if isinstance(run, Inspection):
        inspection = run
    elif isinstance(run, str | Path):
        finished = FinishedRun.open(run, data)
        # before any row is read: a missing column is reported at once
        check_contents(finished.source, **contents, labels=labels)
        inspection = inspect_run(finished, on_progress=on_progress)
        if names is None and (saved := read_names(run, inspection.n_clusters)) is not None:
            names = [cluster.name for cluster in saved.clusters]
    elif data is None:
        raise InvalidInputError("the report of an estimator needs its rows: pass data.")
    else:
        inspection = run.inspect(data, on_progress=on_progress)
    n_clusters, sizes = inspection.n_clusters, inspection.sizes
    if names is not None and (isinstance(names, str) or len(names) != n_clusters):
        raise InvalidInputError(f"{len(names)} names for {n_clusters=}; pass one name per cluster.")
    named = [""] * n_clusters if names is None else [" ".join(str(one).split()) for one in names]
    scores = None
    if labels is not None:
        classes = read_labels(inspection.source, labels, inspection.rows)
        scores = score_classes(classes, inspection)
    largest = np.argsort(-sizes, kind="stable")[:_MOST_CARDS]
    shown = sorted(largest[sizes[largest] > 0].tolist())
    examples = inspection.examples(_TEXTS if images is None else _IMAGES)
    points = choose_points(inspection, examples)
    n_read = 0 if texts is None else _READ_TEXTS
    on_map = inspection.rows[points[: n_read if images is None else _READ_IMAGES]]
    cards = [np.concatenate([examples[one].typical, examples[one].ambiguous]) for one in shown]
    known = read_contents(inspection.source, np.concatenate([*cards, on_map]), **contents)
    with parsing(f"plan.json or result.json of {inspection.name}"):
        settings = describe_settings(inspection)

    pictures = {"sizes": draw(ClusterSizesDisplay(sizes).plot, _WIDE)}
    if inspection.links is not None and n_clusters > 1:
        pictures["cut"] = draw(CutMatrixDisplay(inspection.links).plot, _SQUARE)
    if scores is not None and scores.shared is not None:
        table = ConfusionDisplay(scores.shared, scores.classes.names)
        pictures["confusion"] = draw(table.plot, _SQUARE)
    page = render(
        "report.html",
        **load_script("explorer.js"),
        inspection=inspection,
        names=named,
        points=collect_points(inspection, points, known, named, scores and scores.classes),
        scores=scores,
        tiles=list_headline(inspection, scores),
        warnings=[*diagnose(inspection)],
        pictures=pictures,
        settings=settings,
        median_size=int(np.median(sizes)),
        low_confidence=(inspection.confidence < LOW_CONFIDENCE).mean(),
        shown={cluster: _describe_cluster(inspection, cluster, scores) for cluster in shown},
        examples=examples,
        contents=known,
    )
    file = Path(path)
    Folder(file.parent).write_bytes(file.name, iter([page.encode()]))


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
    return ClassScores(classes, shared, accuracy, nmi, ari)


def list_headline(inspection: Inspection, scores: ClassScores | None) -> dict[str, str]:
    """List the figures at the top of the page by name."""
    ratio, about = inspection.bound_ratio, inspection.about
    vague = ratio is not None and ratio >= _VAGUE
    tiles = {
        "rows": f"{inspection.source.n_samples:,}",
        "clusters in use": f"{inspection.n_used:,} of {inspection.n_clusters:,}",
        "outliers": _format(about.get("n_outliers"), ","),
        "better cut than by chance": _format(inspection.better_than_chance, ".1%"),
        "ratio cut over its lower bound": _format(None if vague else ratio, ".2f"),
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
        "seconds": _format(total, ",.0f"),
    }
    return {name: str(value) for name, value in settings.items() if value is not None}


def _format(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
