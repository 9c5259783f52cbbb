"""What reports of one run and of two share: examples of rows, headline figures, facts, warnings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import prcut
from prcut.inspection import Inspection
from prcut.matching import adjusted_rand, count_shared, match_counts, max_nmi
from prcut.report_page import image_uri, section, text
from prcut.row_contents import RowLabels, read_images, read_texts

__all__ = [
    "MOST_CELLS",
    "ClassScores",
    "RowShower",
    "describe_making",
    "facts_of",
    "figures_of",
    "headline",
    "links_of",
    "score_classes",
    "tile_list",
    "warning_section",
]

# examples of each kind in a card: pictures, texts, mere numbers of rows
_IMAGES, _TEXTS, _NUMBERS = 6, 4, 5
# letters of a text
_LETTERS = 180
# of a table of classes or of another run's clusters, and clusters, which are matched
MOST_CELLS = 20_000_000
# clusters whose sizes machines are given
_MOST_SIZES = 3000


@dataclass(frozen=True)
class RowShower:
    """What rows stand for, read when it is needed."""

    source: Any
    texts: Any = None
    images: Any = None

    @property
    def n_examples(self) -> int:
        """Rows of each kind to show of a cluster."""
        if self.images is not None:
            return _IMAGES
        return _TEXTS if self.texts is not None else _NUMBERS

    def read(self, rows: np.ndarray) -> dict[int, str]:
        """Markup for every row."""
        rows = np.unique(rows)
        if not len(rows):
            return {}
        words = [""] * len(rows)
        if self.texts is not None:
            words = [_shorten(one) for one in read_texts(self.source, self.texts, rows)]
        if self.images is not None:
            uris = [image_uri(one) for one in read_images(self.source, self.images, rows)]
            shown = [
                f'<img src="{uri}" alt="{text(word or f"row {row}")}" title="{text(word)}">'
                for uri, word, row in zip(uris, words, rows.tolist(), strict=True)
            ]
        elif self.texts is not None:
            shown = [text(word) for word in words]
        else:
            shown = [f"row {row:,}" for row in rows.tolist()]
        return dict(zip(rows.tolist(), shown, strict=True))

    def items(self, shown: Mapping[int, str], rows: np.ndarray, notes: Sequence[str]) -> str:
        """A list of rows, each with a note below or behind it."""
        kind = "thumbs" if self.images is not None else "texts"
        if kind == "thumbs":  # there is no room beside one another
            notes = [note.replace(" · ", "<br>") for note in notes]
        lines = (
            f"<li>{shown[row]}{f' <span>{note}</span>' if note else ''}</li>"
            for row, note in zip(rows.tolist(), notes, strict=True)
        )
        return f'<ul class="{kind}">{"".join(lines)}</ul>'


class ClassScores(NamedTuple):
    """How clusters match classes."""

    shared: np.ndarray | None
    accuracy: float | None
    nmi: float
    ari: float
    names: list[str]


def score_classes(classes: RowLabels, one: Inspection) -> ClassScores:
    """How the clusters match classes of the rows that were looked at."""
    labels = one.labels.astype(np.int64)
    shared, accuracy = None, None
    if len(classes.names) * one.n_clusters <= MOST_CELLS:
        shared = count_shared(classes.codes, labels, len(classes.names), one.n_clusters)
        accuracy = float(shared[match_counts(shared)].sum() / len(labels))
    nmi, ari = max_nmi(classes.codes, labels), adjusted_rand(classes.codes, labels)
    return ClassScores(shared, accuracy, nmi, ari, classes.names)


def headline(one: Inspection, scores: ClassScores | None) -> list[tuple[str, str]]:
    """Names and values of the figures that come first."""
    used = int((one.sizes > 0).sum())
    tiles = [
        ("rows", f"{one.source.n_samples:,}"),
        ("clusters in use", f"{used:,} of {one.n_clusters:,}"),
    ]
    if (better := one.better_than_chance) is not None:
        tiles.append(("better cut than by chance", f"{better:.1%}"))
    # a bound that is a hundredth of the cut says nothing
    if (ratio := one.bound_ratio) is not None and ratio < 100:
        tiles.append(("times the best cut, at most", f"{ratio:.2f}×"))
    if "cut_share" in one.about:
        tiles.append(("of the weight cut by level 1", f"{one.about['cut_share']:.1%}"))
    tiles.append(("mean confidence", f"{one.confidence.mean():.3f}"))
    if scores is not None:
        if scores.accuracy is not None:
            tiles.append(("accuracy after matching", f"{scores.accuracy:.1%}"))
        tiles += [("NMI with the classes", f"{scores.nmi:.3f}"), ("ARI", f"{scores.ari:.3f}")]
    return tiles


def tile_list(tiles: Iterable[tuple[str, str]]) -> str:
    """Names and values, large."""
    inside = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in tiles
    )
    return f'<dl class="tiles">{inside}</dl>'


def warning_section(advice: list[str]) -> str:
    """What :func:`prcut.advice.advise` has to say, or nothing."""
    if not advice:
        return ""
    lines = "".join(f"<li>{text(one[0].upper() + one[1:])}</li>" for one in advice)
    return section("warnings", "What deserves a look", f"<ul>{lines}</ul>", kind="warnings")


def facts_of(one: Inspection) -> dict[str, str]:
    """What was clustered and how, in words."""
    about = one.about
    solvers = {
        "search": "searched on the graph, then taught to the assigner",
        "train": "assigner trained on pairs",
    }
    # levels have their settings in one place, since every level has them
    config: Mapping[str, Any] = about.get("config") or about
    found: dict[str, Any] = {
        "data": about.get("data"),
        "column": about.get("column"),
        "rows": f"{one.source.n_samples:,} of {one.source.n_features:,} features",
        "clusters": f"{one.n_clusters:,}",
        "levels": " × ".join(map(str, about["levels"])) if "levels" in about else None,
        "found by": solvers.get(str(config.get("solver"))),
    }
    if config.get("metric"):
        neighbors = config.get("n_neighbors")
        count = f"{neighbors} nearest neighbours" if neighbors else "nearest neighbours"
        found["graph"] = f"{count}, {config['metric']}, weights {config.get('similarity')}"
    place = {"memory": "in memory", "disk": "on disk, in blocks"}.get(str(about.get("mode")))
    found["graph was"] = place
    hidden = config.get("hidden")
    if hidden is not None:
        layers = ", ".join(map(str, hidden)) or "none: linear"
        narrow = f", bottleneck {config['bottleneck']}" if config.get("bottleneck") else ""
        found["hidden layers"] = layers + narrow
    for name, shown in (("balance_weight", "balance weight"), ("seed", "seed")):
        if config.get(name) is not None:
            found[shown] = f"{config[name]:.4g}"
    if about.get("n_steps") is not None:
        found["steps"] = f"{about['n_steps']:,}"
    for name, shown in (("objective", "objective"), ("ratio_cut", "ratio cut")):
        if about.get(name) is not None:
            found[shown] = f"{about[name]:.5g}"
    found["certificate"] = _certificate(one)
    seconds = about.get("seconds")
    if isinstance(seconds, dict):
        found["took"] = ", ".join(f"{name} {value:,.0f} s" for name, value in seconds.items())
    elif seconds is not None:
        found["took"] = f"{seconds:,.0f} s"
    return {name: str(value) for name, value in found.items() if value is not None}


def _certificate(one: Inspection) -> str:
    ratio = one.bound_ratio
    if one.bound is None or ratio is None:
        if one.about.get("mode") in ("disk", "levels"):
            return "none: the graph is not in one piece"
        return "none: the eigenvalues of so large a graph would take too long"
    used = int((one.sizes > 0).sum())
    bound = f"no partition into {used} clusters has a ratio cut below {one.bound.value:.5g}"
    if not math.isfinite(ratio):
        return f"{bound}: nothing is known, as the graph is not connected"
    return f"{bound}, so this one is at most {ratio:,.3g} times the best"


def describe_making(one: Inspection) -> str:
    """What made the page."""
    return (
        f"prcut {prcut.__version__}. The map is a t-SNE of a sample, into which all other rows "
        f"were put. Looking at the rows took {one.seconds:.0f} s."
    )


def links_of(parts: Iterable[str]) -> dict[str, str]:
    """Ids and titles of the sections that there are."""
    titles = {
        "warnings": "Warnings",
        "moved": "What moved",
        "map": "Map",
        "how": "How",
        "cut": "Cut",
        "classes": "Classes",
        "clusters": "Clusters",
        "all": "All clusters",
    }
    there = "\n".join(part[:80] for part in parts)
    return {key: name for key, name in titles.items() if f'<section id="{key}"' in there}


def figures_of(one: Inspection, scores: ClassScores | None) -> dict[str, Any]:
    """For machines: the same numbers."""
    ratio = one.bound_ratio
    found: dict[str, Any] = {
        "prcut": prcut.__version__,
        "name": one.name,
        "n_samples": one.source.n_samples,
        "n_features": one.source.n_features,
        "n_clusters": one.n_clusters,
        "used_clusters": int((one.sizes > 0).sum()),
        "objective": one.about.get("objective"),
        "ratio_cut": one.about.get("ratio_cut"),
        "better_than_chance": one.better_than_chance,
        "lower_bound": None if one.bound is None else one.bound.value,
        "times_the_best_at_most": ratio if ratio is not None and math.isfinite(ratio) else None,
        "mean_confidence": float(one.confidence.mean()),
    }
    if one.n_clusters <= _MOST_SIZES:
        found["cluster_sizes"] = one.sizes.tolist()
    if scores is not None:
        found |= {"accuracy": scores.accuracy, "nmi": scores.nmi, "ari": scores.ari}
    return found


def _shorten(words: str) -> str:
    """A text in one line of a bounded length."""
    words = " ".join(words.split())
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1].rstrip()}…"
