"""Data sets for the benchmarks: a script ends, saying so, where one cannot be had."""

import os
import sys
from pathlib import Path

import numpy as np
from benchmarks.harness.datasets import Dataset, load_dataset

from prcut.errors import PRCutError


def fashion_mnist(split: str = "train") -> np.ndarray:
    """Return the images as float32 rows in [0, 1], 60,000 or 10,000."""
    return _load("fashion_mnist", split).pixels()


def fashion_mnist_labels(split: str = "train") -> np.ndarray:
    """Return the classes, for scoring only."""
    return _load("fashion_mnist", split).labels


def mnist() -> np.ndarray:
    """Return the 60,000 training digits as float32 rows in [0, 1]."""
    return _load("mnist", "train").pixels()


def mnist_labels() -> np.ndarray:
    """Return the classes, for scoring only."""
    return _load("mnist", "train").labels


def banking77() -> tuple[list[str], np.ndarray, list[str]]:
    """Return the 13,083 texts, their MiniLM embeddings, and the names of their classes."""
    path = Path(os.environ.get("PRCUT_DATA", ".")) / "banking77_minilm.npz"
    if not path.exists():
        print(f"{path} is not there.\nNothing was measured.")
        sys.exit(0 if os.environ.get("CI") else 2)
    texts = _load("banking77", "all")
    with np.load(path) as file:
        features = file["features"].astype(np.float32)
    return list(texts.items), features, [texts.classes[label] for label in texts.labels]


def _load(name: str, split: str) -> Dataset:
    try:
        return load_dataset(name, split)
    except PRCutError as error:
        print(f"{error}\nNothing was measured.")
        sys.exit(0 if os.environ.get("CI") else 2)
