"""Warnings about a clustering: each names what was measured and the remedy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from prcut.ui.report.inspection import Inspection

# a cluster below this fraction of the mean size is nearly empty
_NEARLY_EMPTY = 0.05
# a cluster with more than this fraction of the rows, and this many times the mean, is a giant
_GIANT, _TIMES_MEAN = 0.5, 3
# rows are unsure below this probability (those of a search have .6 at least); warn if more than
# this fraction of them is
_UNSURE, _MANY_UNSURE = 0.8, 0.3
# below this score the cut is hardly better than that of random labels
_HARDLY_BETTER = 0.3
# two clusters are hardly separate if one sends this fraction of its weight to the other
_HARDLY_SEPARATE = 0.3
# fraction of the partition that the assigner should reproduce
_LEARNED = 0.95
# training had not converged if the objective fell by this fraction over the last tenth
_STILL_FALLING = 0.01
# number of clusters named in a warning
_NAMED = 8


def diagnose(inspection: Inspection) -> list[str]:
    """Return warnings, each with its remedy; none where nothing is wrong."""
    rules = (_check_sizes, _check_confidence, _check_cut, _check_graph, _check_learning)
    return [warning for rule in rules for warning in rule(inspection)]


def _check_sizes(inspection: Inspection) -> Iterator[str]:
    sizes, n_clusters = inspection.sizes, inspection.n_clusters
    n_rows = sizes.sum()
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        yield (
            f"{len(empty)} of {n_clusters} clusters have no rows ({_list(empty)}). Ask for "
            f"{n_clusters - len(empty)} clusters, or raise the balance weight (--balance)."
        )
    small = np.flatnonzero((sizes > 0) & (sizes < _NEARLY_EMPTY * n_rows / n_clusters))
    if len(small):
        yield (
            f"{len(small)} of {n_clusters} clusters have less than {_NEARLY_EMPTY:.0%} of the mean "
            f"size ({_list(small)}). Check their rows: outliers and duplicates can be removed. Ask "
            "for fewer clusters or raise the balance weight (--balance) to dissolve them."
        )
    largest = int(sizes.argmax())
    fraction = sizes[largest] / n_rows
    if n_clusters > 1 and fraction > _GIANT and fraction > _TIMES_MEAN / n_clusters:
        yield (
            f"Cluster {largest} has {fraction:.0%} of the rows. Raise the balance weight "
            "(--balance), or ask for more clusters if its examples are of several kinds."
        )


def _check_confidence(inspection: Inspection) -> Iterator[str]:
    unsure = float((inspection.confidence < _UNSURE).mean())
    if inspection.n_clusters > 1 and unsure > _MANY_UNSURE:
        yield (
            f"{unsure:.0%} of the rows have a probability below {_UNSURE} in their own cluster. "
            "Treat them as undecided, or ask for fewer clusters."
        )


def _check_cut(inspection: Inspection) -> Iterator[str]:
    better = inspection.better_than_chance
    if better is not None and better < _HARDLY_BETTER:
        yield (
            f"The cut is only {max(better, 0):.0%} better than that of random labels: the features "
            "do not separate these clusters. Try other features, --metric cosine, or another "
            "number of clusters."
        )
    fractions = inspection.link_fractions
    if fractions is None:
        return
    between = fractions.copy()
    np.fill_diagonal(between, 0.0)
    near = np.argwhere(between > _HARDLY_SEPARATE)
    if len(near):
        order = np.argsort(-between[tuple(near.T)])
        pairs = [f"{i} to {j} ({between[i, j]:.0%})" for i, j in near[order[:_NAMED]].tolist()]
        more = f" and {len(near) - _NAMED} more" if len(near) > _NAMED else ""
        yield (
            f"Some clusters send much of their weight to a single other one: {', '.join(pairs)}"
            f"{more}. Compare their examples; ask for fewer clusters if they look the same."
        )


def _check_graph(inspection: Inspection) -> Iterator[str]:
    n_components, n_clusters = inspection.n_components, inspection.n_clusters
    if n_components is not None and n_components > n_clusters:
        yield (
            f"The graph has {n_components:,} connected components, more than the {n_clusters} "
            "clusters, so some clusters join rows that no path links. Raise the number of "
            "neighbours (--neighbors)."
        )


def _check_learning(inspection: Inspection) -> Iterator[str]:
    if inspection.partition is not None:
        learned = float((inspection.partition == inspection.labels).mean())
        if learned < _LEARNED:
            yield (
                f"The model reproduces the searched partition on only {learned:.0%} of the rows. "
                "Raise max_steps (--steps), widen the hidden layer (--hidden 512), or use labels_."
            )
    fall = _last_fall(inspection)
    if fall > _STILL_FALLING:
        yield (
            f"The objective was still falling, by {fall:.1%} over the last tenth of the steps. "
            "Train longer (--steps)."
        )


def _last_fall(inspection: Inspection) -> float:
    """Measure by which fraction the objective fell over the last tenth of a full training."""
    about, objective = inspection.about, inspection.history.get("objective")
    if objective is None or about.get("solver") != "train" or len(objective) < 40:
        return 0.0
    if about.get("n_steps") != about.get("max_steps"):  # it stopped because it had converged
        return 0.0
    tenth = len(objective) // 10
    before, last = np.mean(objective[-2 * tenth : -tenth]), np.mean(objective[-tenth:])
    return float((before - last) / max(abs(before), 1e-12))


def _list(clusters: np.ndarray) -> str:
    """List the first few cluster numbers."""
    named = ", ".join(map(str, clusters[:_NAMED].tolist()))
    return f"{named}, …" if len(clusters) > _NAMED else named
