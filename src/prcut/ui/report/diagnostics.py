"""Warnings about a clustering: each names a measurement and the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from prcut.ui.report.inspection import Inspection

# a cluster below this fraction of the mean size is nearly empty
_NEARLY_EMPTY = 0.05
# a cluster with more than this fraction of the rows, and ...
_GIANT = 0.5
# ... this many times the mean size, is suspect
_TIMES_MEAN = 3
# probabilities below this are low: a search gives 0.6 at least
LOW_CONFIDENCE = 0.8
# warn if this fraction of the rows has low probabilities
_MANY_LOW = 0.3
# below this score the cut is hardly better than that of random labels
_HARDLY_BETTER = 0.3
# two clusters are hardly separate if one sends this fraction of its weight to the other
_HARDLY_SEPARATE = 0.3
# fraction of the partition that the assigner should reproduce
_LEARNED = 0.95
# number of clusters, or of pairs, named in a warning
_NAMED = 8


def diagnose(inspection: Inspection) -> Iterator[str]:
    """Yield warnings, each with its remedy; none where nothing is wrong."""
    sizes, n_clusters = inspection.sizes, inspection.n_clusters
    mean_size = sizes.sum() / n_clusters
    if len(empty := np.flatnonzero(sizes == 0)):
        yield (
            f"{len(empty)} of {n_clusters} clusters have no rows ({_list(empty.tolist())}). "
            f"Ask for {n_clusters - len(empty)} clusters, or raise the balance weight (--balance)."
        )
    if len(small := np.flatnonzero((sizes > 0) & (sizes < _NEARLY_EMPTY * mean_size))):
        yield (
            f"{len(small)} of {n_clusters} clusters have less than {_NEARLY_EMPTY:.0%} of the mean "
            f"size ({_list(small.tolist())}). Check their rows, and remove outliers and "
            "duplicates. Ask for fewer clusters or raise the balance weight (--balance)."
        )
    largest = int(sizes.argmax())
    fraction = sizes[largest] / sizes.sum()
    if n_clusters > 1 and fraction > _GIANT and sizes[largest] > _TIMES_MEAN * mean_size:
        yield (
            f"Cluster {largest} has {fraction:.0%} of the rows. Raise the balance weight "
            "(--balance), or ask for more clusters if its examples are of several kinds."
        )
    low = float((inspection.confidence < LOW_CONFIDENCE).mean())
    if n_clusters > 1 and low > _MANY_LOW:
        yield (
            f"{low:.0%} of the rows have a probability below {LOW_CONFIDENCE} in their own "
            "cluster. Treat them as undecided, or ask for fewer clusters."
        )
    better = inspection.better_than_chance
    if better is not None and better < _HARDLY_BETTER:
        yield (
            f"The cut is only {max(better, 0):.0%} better than that of random labels: the features "
            "do not separate these clusters. Try other features, --metric cosine, or another "
            "number of clusters."
        )
    if inspection.link_fractions is not None:
        between = inspection.link_fractions.copy()
        np.fill_diagonal(between, 0.0)
        near = np.argwhere(between > _HARDLY_SEPARATE)
        near = near[np.argsort(-between[tuple(near.T)])]
        if len(near):
            pairs = [f"{i} to {j} ({between[i, j]:.0%})" for i, j in near.tolist()]
            yield (
                f"Some clusters send much of their weight to a single other one: {_list(pairs)}. "
                "Compare their examples; ask for fewer clusters if they look the same."
            )
    n_components = inspection.n_components
    if n_components is not None and n_components > n_clusters:
        yield (
            f"The graph has {n_components:,} connected components, more than the {n_clusters} "
            "clusters, so some clusters join rows that no path links. Raise the number of "
            "neighbours (--neighbors)."
        )
    if inspection.partition is not None:
        learned = float((inspection.partition == inspection.labels).mean())
        if learned < _LEARNED:
            yield (
                f"The model reproduces the searched partition on only {learned:.0%} of the rows. "
                "Raise max_steps (--steps), widen the hidden layer (--hidden 512), or use labels_."
            )


def _list(items: Sequence[object]) -> str:
    """List the first few items."""
    return ", ".join(map(str, items[:_NAMED])) + (", …" if len(items) > _NAMED else "")
