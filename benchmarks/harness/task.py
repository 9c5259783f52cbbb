"""What every method of the harness is given, and what is said of a method."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from prcut.graph.similarity_graph import SimilarityGraph

__all__ = ["Method", "Task"]


class Task(NamedTuple):
    """Rows, their graph and the wanted number of clusters; no labels, so none can be used."""

    rows: np.ndarray
    """float32 (n_samples, n_features)."""
    graph: SimilarityGraph
    """The graph on which every method's cuts are measured, and which graph methods are given."""
    n_clusters: int
    seed: int


class Method(NamedTuple):
    """A way to cluster, with what a reader must know to judge its row of a table."""

    title: str
    """The name that tables show."""
    run: Callable[[Task], np.ndarray]
    """int64 labels (n_samples,), −1 for rows left out as noise."""
    packages: tuple[str, ...]
    """Distributions whose versions decide the result."""
    on_graph: bool = False
    """Whether it clusters the task's graph (then the time of its neighbours is added)."""
    given_k: bool = True
    """Whether it is given the number of clusters."""
    seeded: bool = True
    """Whether seeds differ: one run is enough where they do not."""
    modules: tuple[str, ...] = ()
    """Modules that take seconds to import, which is done before the clock starts."""
