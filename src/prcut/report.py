"""A clustering as one HTML file: what was clustered and how, what came out, what deserves a look.

``prcut report RUN`` and :func:`write_report` make it; with a second run it shows what moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import prcut
from prcut.advice import advise
from prcut.errors import InvalidInputError
from prcut.inspection import Inspection, inspect_run
from prcut.matching import adjusted_rand, count_shared, match_counts, max_nmi
from prcut.plot import (
    ClusterMapDisplay,
    ClusterSizesDisplay,
    ConfidenceDisplay,
    ConfusionDisplay,
    CutMatrixDisplay,
    HistoryDisplay,
    MovesDisplay,
    cluster_colors,
)
from prcut.progress import Progress
from prcut.report_page import chip, draw, figure, image_uri, page, section, table, text
from prcut.row_contents import RowLabels, read_images, read_labels, read_texts

__all__ = ["write_report"]

# clusters that are shown with examples: the largest, and the least sure of the others
_LARGEST, _LEAST_SURE = 32, 8
# examples of each kind in a card: pictures, texts, mere numbers of rows
_IMAGES, _TEXTS, _NUMBERS = 6, 4, 5
# lines of a table of clusters, of pairs and of moves
_MOST_LINES, _PAIRS, _MOVES = 300, 12, 12
# letters of a text
_LETTERS = 180
# of a table of classes and clusters
_MOST_CELLS = 20_000_000

_WIDE, _SQUARE = (5.0, 3.1), (5.0, 4.3)


@dataclass(frozen=True)
class _Contents:
    """What rows stand for, read when it is needed."""

    source: Any
    texts: Any = None
    images: Any = None

    @property
    def n_examples(self) -> int:
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
        lines = (
            f"<li>{shown[row]}{f' <span>{note}</span>' if note else ''}</li>"
            for row, note in zip(rows.tolist(), notes, strict=True)
        )
        return f'<ul class="{kind}">{"".join(lines)}</ul>'


class _Scores(NamedTuple):
    """How clusters match classes."""

    shared: np.ndarray | None
    accuracy: float | None
    nmi: float
    ari: float
    names: list[str]


def write_report(
    run: str | Path | Inspection,
    path: str | Path,
    *,
    against: str | Path | Inspection | None = None,
    data: Any = None,
    texts: Any = None,
    images: Any = None,
    labels: Any = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Write the report of a run, or of two side by side, as one self-contained HTML file.

    Parameters
    ----------
    run : str, path or Inspection
        A run folder, or what :func:`prcut.inspection.inspect_assigner` found;
        :meth:`prcut.PRCut.report` makes that of an estimator.
    path : str or path
        The file.
    against : str, path or Inspection, optional
        Another run on the same rows: the report then shows what moved.
    data : array, or path or URI, optional
        What was clustered, where the run does not say or it has moved.
    texts, images, labels : optional
        What rows stand for, and their classes: see :mod:`prcut.row_contents`.
    on_progress : callable, optional
        Called with a :class:`prcut.progress.Progress`.
    """
    one = _inspection(run, data, on_progress)
    contents = _Contents(one.source, texts, images)
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
        content = _comparison(one, other, contents, classes)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")


def _inspection(
    run: str | Path | Inspection, data: Any, on_progress: Callable[[Progress], None] | None
) -> Inspection:
    if isinstance(run, Inspection):
        return run
    return inspect_run(run, data=data, on_progress=on_progress)


# -- one run ---------------------------------------------------------------------------------


def _report(one: Inspection, contents: _Contents, classes: RowLabels | None) -> str:
    colors = _colors(one)
    scores = None if classes is None else _score(classes, one)
    parts = [
        _tiles(_headline(one, scores)),
        _warnings(advise(one)),
        _map_section(one),
        _how_section(one),
        _cut_section(one, colors),
        "" if scores is None else _label_section(scores, colors),
        _cluster_section(one, contents, colors, scores),
        _table_section(one, colors, scores),
    ]
    return page(
        f"{one.name}: {one.n_clusters:,} clusters",
        _subtitle(one),
        parts,
        links=_links(parts),
        footer=_footer(one),
        figures=_figures(one, scores),
    )


def _subtitle(one: Inspection) -> str:
    seen = len(one.rows)
    rows = f"{one.source.n_samples:,} rows of {one.source.n_features:,} features"
    if seen < one.source.n_samples:
        rows += f", {seen:,} of them looked at, spread over all"
    data = one.about.get("data")
    return rows + (f" from {Path(str(data)).name}" if data else "")


def _footer(one: Inspection) -> str:
    return (
        f"prcut {prcut.__version__}. The map is a t-SNE of a sample, into which all other rows "
        f"were put. Looking at the rows took {one.seconds:.0f} s."
    )


def _headline(one: Inspection, scores: _Scores | None) -> list[tuple[str, str]]:
    used = int((one.sizes > 0).sum())
    tiles = [
        ("rows", f"{one.source.n_samples:,}"),
        ("clusters in use", f"{used:,} of {one.n_clusters:,}"),
    ]
    if (better := one.better_than_chance) is not None:
        tiles.append(("better cut than by chance", f"{better:.1%}"))
    if (ratio := one.bound_ratio) is not None and math.isfinite(ratio):
        tiles.append(("times the best cut, at most", f"{ratio:.2f}×"))
    if "cut_share" in one.about:
        tiles.append(("of the weight cut by level 1", f"{one.about['cut_share']:.1%}"))
    tiles.append(("mean confidence", f"{one.confidence.mean():.3f}"))
    if scores is not None:
        if scores.accuracy is not None:
            tiles.append(("accuracy after matching", f"{scores.accuracy:.1%}"))
        tiles += [("NMI with the classes", f"{scores.nmi:.3f}"), ("ARI", f"{scores.ari:.3f}")]
    return tiles


def _tiles(tiles: Iterable[tuple[str, str]]) -> str:
    inside = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in tiles
    )
    return f'<dl class="tiles">{inside}</dl>'


def _warnings(advice: list[str]) -> str:
    if not advice:
        return ""
    lines = "".join(f"<li>{text(one[0].upper() + one[1:])}</li>" for one in advice)
    return section("warnings", "What deserves a look", f"<ul>{lines}</ul>", kind="warnings")


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
        '<div class="pair">',
        figure(map_, what + "Near rows are alike; far ones may be anything.", kind="map"),
        "<div>",
        figure(
            sizes,
            f"Rows of a cluster: {spread[0]:,} to {spread[2]:,}, half below {spread[1]:,}.",
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
    return cluster_colors(int(one.first_level[-1]) + 1)[one.first_level]


def _how_section(one: Inspection) -> str:
    facts = table([], [(text(name), text(value)) for name, value in _facts(one).items()])
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


def _facts(one: Inspection) -> dict[str, str]:
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
    return f"{bound}, so this one is at most {ratio:.2f} times the best"


def _cut_section(one: Inspection, colors: np.ndarray) -> str:
    if one.links is None or one.link_shares is None or one.n_clusters < 2:
        return ""
    cut = 1 - np.trace(one.links) / max(one.links.sum(), 1e-300)
    picture = draw(
        "cut", CutMatrixDisplay(one.links).plot, _SQUARE, "Weight between clusters as a matrix"
    )
    caption = (
        f"{cut:.1%} of the graph's weight lies between clusters. A line shows where the weight "
        "that leaves a cluster goes, in per cent of all its weight."
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
        (chip(i, colors[i]), chip(j, colors[j]), f"{shares[i, j]:.1%}", f"{shares[j, i]:.1%}")
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
        '<p class="soft" style="margin-top:12px">With fewer clusters these would merge first '
        f"(what it adds to the objective): {', '.join(steps)}.</p>"
    )


# -- classes ---------------------------------------------------------------------------------


def _score(classes: RowLabels, one: Inspection) -> _Scores:
    labels = one.labels.astype(np.int64)
    shared, accuracy = None, None
    if len(classes.names) * one.n_clusters <= _MOST_CELLS:
        shared = count_shared(classes.codes, labels, len(classes.names), one.n_clusters)
        accuracy = float(shared[match_counts(shared)].sum() / len(labels))
    nmi, ari = max_nmi(classes.codes, labels), adjusted_rand(classes.codes, labels)
    return _Scores(shared, accuracy, nmi, ari, classes.names)


def _label_section(scores: _Scores, colors: np.ndarray) -> str:
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
        elsewhere = f"{chip(away, colors[away])} {rest[away] / sizes[i]:.0%}" if rest[away] else ""
        mate = chip(j, colors[j]) if j >= 0 else "none"
        lines.append((text(scores.names[i]), mate, f"{share:.0%}", elsewhere))
    heads = ["class", "cluster", "rows in it", "most others in"]
    caption = "Every class is matched with one cluster at most, so that the most rows are right."
    return section(
        "classes",
        "Clusters and classes",
        f'<div class="pair">{figure(picture, caption)}',
        f"<div>{table(heads, lines, numbers=(2,))}</div></div>",
    )


# -- clusters --------------------------------------------------------------------------------


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
    one: Inspection, contents: _Contents, colors: np.ndarray, scores: _Scores | None
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
    one: Inspection, cluster: int, colors: np.ndarray, scores: _Scores | None
) -> list[str]:
    """Lines about a cluster: confidence, neighbours, classes."""
    lines = [f"confidence {one.mean_confidence[cluster]:.2f}"]
    shares = one.link_shares
    if shares is not None and one.n_clusters > 1:
        others = shares[cluster].copy()
        others[cluster] = 0
        lines[0] += f", {others.sum():.0%} of its weight is cut"
        near = [int(other) for other in np.argsort(-others)[:3] if others[other] >= 0.005]
        if near:
            names = ", ".join(f"{chip(o, colors[o])} {others[o]:.0%}" for o in near)
            lines.append(f"next to {names}")
    if scores is not None and scores.shared is not None:
        counts = scores.shared[:, cluster]
        top = [int(i) for i in np.argsort(-counts)[:3] if counts[i] >= 0.02 * counts.sum()]
        lines.append(
            ", ".join(f"{text(scores.names[i])} {counts[i] / counts.sum():.0%}" for i in top)
        )
    return lines


def _table_section(one: Inspection, colors: np.ndarray, scores: _Scores | None) -> str:
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
            line.append(f"{1 - one.link_shares[cluster, cluster]:.1%}")
        if scores is not None and scores.shared is not None:
            counts = scores.shared[:, cluster]
            line.append(text(scores.names[int(counts.argmax())]))
            line.append(f"{counts.max() / counts.sum():.0%}")
        lines.append(line)
    heads = ["cluster", "rows", "confidence"]
    heads += ["weight cut"] if one.link_shares is not None else []
    heads += ["most frequent class", "share"] if scores and scores.shared is not None else []
    title = "All clusters" if len(order) == len(used) else f"The {len(order)} largest clusters"
    return section("all", title, table(heads, lines, numbers=(1, 2, 3, 5)))


def _links(parts: Iterable[str]) -> dict[str, str]:
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


def _figures(one: Inspection, scores: _Scores | None) -> dict[str, Any]:
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
    if one.n_clusters <= 10 * _MOST_LINES:
        found["cluster_sizes"] = one.sizes.tolist()
    if scores is not None:
        found |= {"accuracy": scores.accuracy, "nmi": scores.nmi, "ari": scores.ari}
    return found


# -- two runs --------------------------------------------------------------------------------


def _comparison(
    one: Inspection, other: Inspection, contents: _Contents, classes: RowLabels | None
) -> str:
    names = _two_names(one, other)
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
    scored = None if classes is None else (_score(classes, one), _score(classes, other))
    advice = [f"{names[0]}: {line}" for line in advise(one)]
    advice += [f"{names[1]}: {line}" for line in advise(other)]
    parts = [
        _tiles(tiles),
        _moved_section(one, other, shared, mates, colors, contents, names),
        _two_maps(one, other, mates, n_colors, names),
        _side_by_side(one, other, scored, names),
        _warnings(advice),
    ]
    figures: dict[str, Any] = {
        "first": _figures(one, scored and scored[0]),
        "second": _figures(other, scored and scored[1]),
        "moved_share": float(moved.mean()),
        "ari": adjusted_rand(first, second),
    }
    return page(
        f"{names[0]} and {names[1]}",
        f"What moved between two clusterings of the same {one.source.n_samples:,} rows",
        parts,
        links=_links(parts),
        footer=_footer(one),
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
    contents: _Contents,
    names: tuple[str, str],
) -> str:
    picture = draw("moves", MovesDisplay(shared, names).plot, _SQUARE, "What moved, as a matrix")
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
    heads = [f"cluster of {names[0]}", f"of {names[1]}", "rows", "of the first"]
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
    scored: tuple[_Scores, _Scores] | None,
    names: tuple[str, str],
) -> str:
    facts = [_facts(run) for run in (one, other)]
    for place, run in enumerate((one, other)):
        facts[place] |= dict(_headline(run, scored[place] if scored else None))
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


def _shorten(words: str) -> str:
    """A text in one line of a bounded length."""
    words = " ".join(words.split())
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1].rstrip()}…"
