"""Data sets for the benchmarks, found in ``PRCUT_DATA`` or where Debian's packages put them."""

import gzip
import os
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np


def fashion_mnist(split: str = "train") -> np.ndarray:
    """The images as float32 rows in [0, 1], 60,000 or 10,000; ends the script where absent."""
    pixels = _fashion_mnist(f"{_SPLITS[split]}-images-idx3-ubyte.gz", 16)
    return pixels.reshape(-1, 784).astype(np.float32) / 255


def fashion_mnist_labels(split: str = "train") -> np.ndarray:
    """The classes, for scoring only."""
    return _fashion_mnist(f"{_SPLITS[split]}-labels-idx1-ubyte.gz", 8)


_SPLITS = {"train": "train", "test": "t10k"}


def _fashion_mnist(name: str, offset: int) -> np.ndarray:
    folders = [*_given("fashion-mnist"), Path("/usr/share/datasets/fashion-mnist")]
    for folder in folders:
        if (folder / name).exists():
            content = gzip.decompress((folder / name).read_bytes())
            return np.frombuffer(content, np.uint8, offset=offset)
    return _absent(
        f"Fashion-MNIST ({name})", folders, "Install Debian's dataset-fashion-mnist, or set"
    )


def mnist() -> np.ndarray:
    """The 60,000 training digits as float32 rows in [0, 1]; ends the script where absent.

    Reads ``mnist.npz``, the file that Keras and others pass around, with ``x_train`` (60000, 28,
    28) in uint8.
    """
    name = "mnist.npz"
    folders = _given("mnist")
    for folder in folders:
        if (folder / name).exists():
            with np.load(folder / name) as file:
                return file["x_train"].reshape(-1, 784).astype(np.float32) / 255
    return _absent(f"MNIST ({name})", folders, "Set")


def _given(folder: str) -> list[Path]:
    given = os.environ.get("PRCUT_DATA")
    return [Path(given), Path(given) / folder] if given else []


def _absent(what: str, folders: list[Path], mend: str) -> NoReturn:
    looked = ", ".join(map(str, folders)) or "no folder"
    print(
        f"{what} was not found (looked in {looked}): nothing measured.\n"
        f"{mend} PRCUT_DATA to a folder that has it."
    )
    sys.exit(0 if os.environ.get("CI") else 2)
