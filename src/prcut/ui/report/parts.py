"""What reports of one run and of two share: examples, scores, headline figures, settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import prcut
from prcut.numerics.matching import adjusted_rand, count_shared, match_counts, max_nmi
from prcut.pipeline.names import clean_text
from prcut.runtime.sources import Source
from prcut.ui.report.inspection import Inspection
from prcut.ui.report.page import image_uri
from prcut.ui.report.row_contents import RowLabels, read_images, read_texts

# examples of each kind in a card, where rows are images, texts, or only numbers
_IMAGES, _TEXTS, _NUMBERS = 6, 4, 5
_TEXT_LENGTH = 180
# entries of the largest table whose rows and columns are matched
MOST_MATCHED = 20_000_000
# the figures for machines hold the sizes of at most so many clusters
_MOST_SIZES = 3000
_SOLVERS = {
    "search": "search on the graph, then distilled into the assigner",
    "train": "training of the assigner on pairs",
}
_MODES = {"memory": "in memory", "disk": "on disk, in blocks"}


@dataclass(frozen=True)
class RowContents:
    """Where to read what rows stand for."""

    source: Source
    texts: Any = None
    images: Any = None

    @property
    def n_examples(self) -> int:
        """Number of typical, and of ambiguous, rows to show of a cluster."""
        if self.images is not None:
            return _IMAGES
        return _TEXTS if self.texts is not None else _NUMBERS

    def read(self, rows: np.ndarray) -> dict[int, tuple[str | None, str | None]]:
        """Read text and image of the rows in one pass, by number."""
        rows = np.unique(rows)
        texts: list[Any] = [None] * len(rows)
        images = texts
        if self.texts is not None and len(rows):
            found = read_texts(self.source, self.texts, rows)
            texts = [clean_text(text, _TEXT_LENGTH) for text in found]
        if self.images is not None and len(rows):
            images = [image_uri(image) for image in read_images(self.source, self.images, rows)]
        return dict(zip(rows.tolist(), zip(texts, images, strict=True), strict=True))


def largest_entries(table: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Find the largest positive entries of a table, the largest first."""
    order = np.argsort(-table, axis=None, kind="stable")[:most]
    lines, columns = np.unravel_index(order, table.shape)
    entries = zip(lines.tolist(), columns.tolist(), strict=True)
    return [(i, j) for i, j in entries if table[i, j] > 0]


class ClassScores(NamedTuple):
    """How clusters match classes; ``shared`` and accuracy are None where there are too many."""

    shared: np.ndarray | None
    accuracy: float | None
    nmi: float
    ari: float
    names: list[str]


def score_classes(classes: RowLabels, inspection: Inspection) -> ClassScores:
    """Score the clusters against the classes of the inspected rows."""
    labels, n_clusters = inspection.labels.astype(np.int64), inspection.n_clusters
    shared, accuracy = None, None
    if len(classes.names) * n_clusters <= MOST_MATCHED:
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
    """Describe in words what was clustered and how."""
    about = inspection.about
    settings: dict[str, Any] = {
        "data": about.get("data"),
        "column": about.get("column"),
        "rows": f"{inspection.source.n_samples:,} of {inspection.source.n_features:,} features",
        "clusters": f"{inspection.n_clusters:,}",
        "method": _SOLVERS.get(str(about.get("solver"))),
        "graph": _describe_graph(about),
        "graph kept": _MODES.get(str(about.get("mode"))),
        "hidden layers": _describe_layers(about),
        "balance weight": _format(about.get("balance_weight"), ".4g"),
        "seed": _format(about.get("seed"), ".0f"),
        "steps": _format(about.get("n_steps"), ","),
        "objective": _format(about.get("objective"), ".5g"),
        "ratio cut": _format(about.get("ratio_cut"), ".5g"),
        "certificate": _describe_certificate(inspection),
        "time": _describe_time(about.get("seconds")),
    }
    return {name: str(value) for name, value in settings.items() if value is not None}


def _format(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)


def _describe_graph(config: Mapping[str, Any]) -> str | None:
    if not config.get("metric"):
        return None
    count = f"{config['n_neighbors']} " if config.get("n_neighbors") else ""
    return f"{count}nearest neighbours, {config['metric']}, weights {config.get('similarity')}"


def _describe_layers(config: Mapping[str, Any]) -> str | None:
    if config.get("hidden") is None:
        return None
    layers = ", ".join(map(str, config["hidden"])) or "none: linear"
    return layers + (f", bottleneck {config['bottleneck']}" if config.get("bottleneck") else "")


def _describe_time(seconds: Any) -> str | None:
    if isinstance(seconds, dict):
        return ", ".join(f"{name} {value:,.0f} s" for name, value in seconds.items())
    return None if seconds is None else f"{seconds:,.0f} s"


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
        return f"{bound}, which says nothing, because the graph is not connected"
    return f"{bound}, so this one is at most {ratio:,.3g} times the best"


def list_figures(inspection: Inspection, scores: ClassScores | None) -> dict[str, Any]:
    """List the figures of the page for machines."""
    ratio = inspection.bound_ratio
    figures: dict[str, Any] = {
        "prcut": prcut.__version__,
        "name": inspection.name,
        "n_samples": inspection.source.n_samples,
        "n_features": inspection.source.n_features,
        "n_clusters": inspection.n_clusters,
        "used_clusters": inspection.n_used,
        "n_outliers": inspection.about.get("n_outliers"),
        "objective": inspection.about.get("objective"),
        "ratio_cut": inspection.about.get("ratio_cut"),
        "better_than_chance": inspection.better_than_chance,
        "lower_bound": None if inspection.bound is None else inspection.bound.value,
        "times_the_best_at_most": ratio if ratio is not None and math.isfinite(ratio) else None,
        "mean_confidence": float(inspection.confidence.mean()),
    }
    if inspection.n_clusters <= _MOST_SIZES:
        figures["cluster_sizes"] = inspection.sizes.tolist()
    if scores is not None:
        figures |= {"accuracy": scores.accuracy, "nmi": scores.nmi, "ari": scores.ari}
    return figures
