"""Imported once by the process that runs are forked from: the methods, and UMAP compiled."""

import os
from contextlib import suppress

# of the ways in which Numba shares work, the only one that may be used before a fork and after it
os.environ.update(NUMBA_THREADING_LAYER="workqueue", NUMBA_NUM_THREADS="1")

import benchmarks.harness.worker  # noqa: F401
import numpy as np
from benchmarks.harness.methods import METHODS
from benchmarks.harness.task import Task

from prcut import build_graph
from prcut.errors import InvalidInputError

_rows = np.random.default_rng(0).normal(size=(5000, 8)).astype(np.float32)
with suppress(InvalidInputError):  # UMAP is not there: its runs will say so
    for _some in (_rows[:600], _rows):  # beyond 4,096 rows it searches neighbours by other code
        METHODS["umap_hdbscan"].run(Task(_some, build_graph(_some, 5), 2, 0))
