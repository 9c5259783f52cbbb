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


def _fit(task: Task, *, graph: Any = None, **options: Any) -> np.ndarray:
    from prcut.estimator import PRCut

    model = PRCut(task.n_clusters, random_state=task.seed, **options).fit(task.rows, graph=graph)
    labels: np.ndarray = model.labels_
    return labels


def _own_graph(**options: Any) -> Callable[[Task], np.ndarray]:
    """On the graph that these options make of the rows."""

    def run(task: Task) -> np.ndarray:
        return _fit(task, **options)

    return run


def _given_graph(**options: Any) -> Callable[[Task], np.ndarray]:
    """On the graph of the table."""

    def run(task: Task) -> np.ndarray:
        return _fit(task, graph=task.graph, **options)

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
    "prcut": Method("PRCut", _own_graph(), _PACKAGES),
    "prcut_fast": Method("PRCut, fast", _own_graph(effort="fast"), _PACKAGES),
    "prcut_best": Method("PRCut, best", _own_graph(effort="best"), _PACKAGES),
    "prcut_graph": Method("PRCut, same graph", _given_graph(), _PACKAGES, on_graph=True),
    "prcut_trained": Method("PRCut, trained", _own_graph(solver="train"), _PACKAGES),
    "prcut_trained_graph": Method(
        "PRCut, trained, same graph", _given_graph(solver="train"), _PACKAGES, on_graph=True
    ),
    "prcut_trained_cut": Method(
        "PRCut, trained, same graph, balance .1",
        _given_graph(solver="train", balance_weight=0.1),
        _PACKAGES,
        on_graph=True,
    ),
    **{
        f"prcut_published_{space}": Method(
            "PRCut as published", _own_graph(preset=f"paper-{space}"), _PACKAGES
        )
        for space in ("pixels", "representations")
    },
    "prcut_cut": Method(
        "PRCut, same graph, no balance", _given_graph(balance_weight=0.0), _PACKAGES, on_graph=True
    ),
}
