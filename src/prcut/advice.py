"""What deserves a look in a clustering, and what to do about it: only what was measured."""

from __future__ import annotations

import numpy as np

from prcut.inspection import Inspection

__all__ = ["advise"]

# a cluster below this share of the mean size is nearly empty
_NEARLY_EMPTY = 0.05
# a cluster with more than this share of the rows, and so many times the mean, is a giant
_GIANT, _TIMES_MEAN = 0.5, 3
# rows are unsure below this probability; more than this share of them is said
_UNSURE, _MANY = 0.5, 0.1
# better than chance by less than this is hardly better
_HARDLY = 0.3
# share of a cluster's weight to one other from which they are hardly apart
_HARDLY_APART = 0.3
# share of the partition that the assigner should have learned
_LEARNED = 0.95
# relative fall of the objective over the last tenth from which it had not stalled
_STILL_FALLING = 0.01
# clusters named in a warning
_NAMED = 8


def advise(inspection: Inspection) -> list[str]:
    """Warnings, each of which says what to do; none where nothing is wrong."""
    rules = (_sizes, _confidence, _cut, _graph, _learning)
    return [advice for rule in rules for advice in rule(inspection)]


def _sizes(inspection: Inspection) -> list[str]:
    sizes, n_clusters = inspection.sizes, inspection.n_clusters
    n_rows, found = sizes.sum(), []
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        found.append(
            f"{len(empty)} of {n_clusters} clusters without rows ({_list(empty)}): ask for "
            f"{n_clusters - len(empty)} clusters, or raise the balance weight (--balance)."
        )
    small = np.flatnonzero((sizes > 0) & (sizes < _NEARLY_EMPTY * n_rows / n_clusters))
    if len(small):
        found.append(
            f"{len(small)} of {n_clusters} clusters with less than {_NEARLY_EMPTY:.0%} of the mean "
            f"size ({_list(small)}): look at their rows, which may be outliers or repeats to be "
            "dropped; fewer clusters or a higher balance weight (--balance) would dissolve them."
        )
    largest = int(sizes.argmax())
    share = sizes[largest] / n_rows
    if n_clusters > 1 and share > _GIANT and share > _TIMES_MEAN / n_clusters:
        found.append(
            f"cluster {largest} has {share:.0%} of the rows: raise the balance weight (--balance), "
            "or ask for more clusters if its examples below are not of one kind."
        )
    return found


def _confidence(inspection: Inspection) -> list[str]:
    unsure = float((inspection.confidence < _UNSURE).mean())
    if inspection.n_clusters < 2 or unsure <= _MANY:
        return []
    return [
        f"{unsure:.0%} of the rows have a probability below {_UNSURE} in their own cluster: treat "
        "them as undecided, ask for fewer clusters, or train longer (--steps) or with a hidden "
        "layer (--hidden 256)."
    ]


def _cut(inspection: Inspection) -> list[str]:
    found = []
    better = inspection.better_than_chance
    if better is not None and better < _HARDLY:
        found.append(
            f"the graph is cut only {max(better, 0):.0%} better than by chance: the features hold "
            "no such clusters as they are; try another representation, --metric cosine, or "
            "another number of clusters."
        )
    shares = inspection.link_shares
    if shares is None:
        return found
    between = shares.copy()
    np.fill_diagonal(between, 0.0)
    near = np.argwhere(between > _HARDLY_APART)
    if len(near):
        order = np.argsort(-between[tuple(near.T)])
        pairs = [f"{i} to {j} ({between[i, j]:.0%})" for i, j in near[order[:_NAMED]].tolist()]
        more = f" and {len(near) - _NAMED} more" if len(near) > _NAMED else ""
        found.append(
            f"some clusters send much of their weight to one other: {', '.join(pairs)}{more}; "
            "compare their examples, and ask for fewer clusters if they show the same."
        )
    return found


def _graph(inspection: Inspection) -> list[str]:
    n_components, n_clusters = inspection.n_components, inspection.n_clusters
    if n_components is None or n_components <= n_clusters:
        return []
    return [
        f"the graph falls into {n_components:,} parts, more than the {n_clusters} clusters, so "
        "some clusters join rows that nothing links: raise the number of neighbours (--neighbors)."
    ]


def _learning(inspection: Inspection) -> list[str]:
    found = []
    if inspection.found_labels is not None:
        learned = float((inspection.found_labels == inspection.labels).mean())
        if learned < _LEARNED:
            found.append(
                f"the model gives {learned:.0%} of the rows the cluster that the search found: "
                "raise max_steps (--steps) or the hidden layer (--hidden 512), or use labels_."
            )
    about, objective = inspection.about, inspection.history.get("objective")
    if objective is None or about.get("solver") != "train" or len(objective) < 40:
        return found
    if about.get("n_steps") == about.get("max_steps"):
        tenth = len(objective) // 10
        before, last = np.mean(objective[-2 * tenth : -tenth]), np.mean(objective[-tenth:])
        fall = float((before - last) / max(abs(before), 1e-12))
        if fall > _STILL_FALLING:
            found.append(
                f"the objective was still falling, by {fall:.1%} over the last tenth of the steps: "
                "raise their number (--steps)."
            )
    return found


def _list(clusters: np.ndarray) -> str:
    """Numbers of clusters, the first few."""
    named = ", ".join(map(str, clusters[:_NAMED].tolist()))
    return f"{named}, …" if len(clusters) > _NAMED else named
