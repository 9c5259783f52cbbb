"""Rows of the tables with their classes: pixels, or embeddings that are computed once."""

import os
import sys
from pathlib import Path

import numpy as np
from benchmarks.harness.contest.sets import load_contest_set
from benchmarks.harness.datasets import load_dataset
from benchmarks.harness.encoders import embed_once
from benchmarks.harness.inputs import load_bench_dataset

from prcut.errors import PRCutError

_ENCODERS = {"images": "efficientnet-lite0", "texts": "minilm"}
_RAW = ("digits", "usps", "coil20", "mnist", "fashion_mnist")
_N_CIFAR10 = 5000
# embeddings that may lie beside the data sets, so that no encoder is needed
_KEPT = {"banking77": "banking77_minilm.npz", "cifar10": "cifar10_test5k_efflite0_224.npz"}


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 rows and their classes; end, saying so, where the data cannot be had."""
    try:
        if name in _RAW:
            data = load_bench_dataset(name, "all")
            return data.pixels().reshape(len(data.labels), -1), data.labels
        kept = Path(os.environ.get("PRCUT_DATA", ".")) / _KEPT.get(name, "none")
        if kept.is_file():
            with np.load(kept) as file:
                return file["features"].astype(np.float32), file["y"].astype(np.int64)
        if name == "trec":
            return load_contest_set(name)
        data = load_dataset(name, "test" if name == "cifar10" else "all")
        n_rows = _N_CIFAR10 if name == "cifar10" else None
        items = data.items[:n_rows]
        return embed_once(items, _ENCODERS[data.kind]), data.labels[:n_rows]
    except PRCutError as error:
        print(f"{error}\nNothing was measured.")
        sys.exit(0 if os.environ.get("CI") else 2)
