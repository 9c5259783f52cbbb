"""All that `prcut bench` compares: the peers, and PRCut in the ways its tables need."""

from __future__ import annotations

from typing import Any

import numpy as np

from prcut.bench.label_similarity import LABEL_METHODS
from prcut.bench.peers import PEERS
from prcut.bench.task import Method, Task
from prcut.errors import InvalidInputError

__all__ = ["METHODS"]

_PACKAGES = ("prcut", "torch", "faiss-cpu")


def _fit(task: Task, *, graph: Any = None, **options: Any) -> np.ndarray:
    from prcut.estimator import PRCut

    model = PRCut(task.n_clusters, random_state=task.seed, **options).fit(task.rows, graph=graph)
    labels: np.ndarray = model.labels_
    return labels


def _own_graph(task: Task) -> np.ndarray:
    return _fit(task)


def _given_graph(task: Task) -> np.ndarray:
    return _fit(task, graph=task.graph)


def _cut_alone(task: Task) -> np.ndarray:
    return _fit(task, graph=task.graph, balance_weight=0)


def _refuse(task: Task) -> np.ndarray:  # noqa: ARG001
    raise InvalidInputError("this method learns from labels; it is only in table1.")


METHODS: dict[str, Method] = {
    **PEERS,
    **{key: Method(title, _refuse, _PACKAGES) for key, title in LABEL_METHODS.items()},
    "prcut": Method("PRCut", _own_graph, _PACKAGES),
    "prcut_graph": Method("PRCut, same graph", _given_graph, _PACKAGES, on_graph=True),
    "prcut_cut": Method("PRCut, same graph, no balance", _cut_alone, _PACKAGES, on_graph=True),
}
