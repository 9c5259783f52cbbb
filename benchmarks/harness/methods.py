"""All that the harness compares: the peers, and PRCut in the ways its tables need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.harness.contest.peers import CONTEST_PEERS
from benchmarks.harness.label_similarity import LABEL_METHODS
from benchmarks.harness.peers import PEERS
from benchmarks.harness.task import Method, Task

from prcut.errors import InvalidInputError

__all__ = ["METHODS"]

_PACKAGES = ("prcut", "torch", "faiss-cpu")


def _prcut(*, on_graph: bool = False, **options: Any) -> Callable[[Task], np.ndarray]:
    """On the graph of the table, or on the one that these options make of the rows."""

    def run(task: Task) -> np.ndarray:
        from prcut.estimator import PRCut

        model = PRCut(task.n_clusters, random_state=task.seed, **options)
        labels: np.ndarray = model.fit(task.rows, graph=task.graph if on_graph else None).labels_
        return labels

    return run


def _refuse(task: Task) -> np.ndarray:  # noqa: ARG001
    raise InvalidInputError(
        "this method cannot be run on rows alone: it learns from labels in table1, or has records "
        "of an earlier version only."
    )


# the records of these stay in tables 3 and 4; what ran them is in release 0.2
_RECORDED = {
    "hycut": Method("HyCut (pgcuts' algorithm, written anew)", _refuse, ("torch",), on_graph=True),
    "kahip": Method("KaHIP", _refuse, ("kahip",), on_graph=True),
    "minibatch_kmeans": Method("MiniBatchKMeans (scikit-learn)", _refuse, ("scikit-learn",)),
    "turtle": Method("TURTLE (written anew)", _refuse, ("torch",)),
    "spectral_refined": Method("SpectralClustering, refined by prcut", _refuse, (), on_graph=True),
    "spectralnet": Method("SpectralNet", _refuse, ("spectralnet", "torch")),
}
METHODS: dict[str, Method] = {
    **PEERS,
    **CONTEST_PEERS,
    **_RECORDED,
    **{key: Method(title, _refuse, _PACKAGES) for key, title in LABEL_METHODS.items()},
    "prcut": Method("PRCut", _prcut(), _PACKAGES),
    "prcut_fast": Method("PRCut, fast", _prcut(effort="fast"), _PACKAGES),
    "prcut_best": Method("PRCut, best", _prcut(effort="best"), _PACKAGES),
    "prcut_graph": Method("PRCut, same graph", _prcut(on_graph=True), _PACKAGES, on_graph=True),
    "prcut_trained": Method("PRCut, trained", _prcut(solver="train"), _PACKAGES),
    "prcut_trained_graph": Method(
        "PRCut, trained, same graph",
        _prcut(on_graph=True, solver="train"),
        _PACKAGES,
        on_graph=True,
    ),
    "prcut_trained_cut": Method(
        "PRCut, trained, same graph, balance .1",
        _prcut(on_graph=True, solver="train", balance_weight=0.1),
        _PACKAGES,
        on_graph=True,
    ),
    **{
        f"prcut_published_{space}": Method(
            "PRCut as published", _prcut(preset=f"paper-{space}"), _PACKAGES
        )
        for space in ("pixels", "representations")
    },
    "prcut_cut": Method(
        "PRCut, same graph, no balance",
        _prcut(on_graph=True, balance_weight=0.0),
        _PACKAGES,
        on_graph=True,
    ),
}
