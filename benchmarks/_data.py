"""Data sets for the benchmarks, found in ``PRCUT_DATA`` or where Debian's packages put them."""

import gzip
import os
import sys
from pathlib import Path

import numpy as np


def fashion_mnist() -> np.ndarray:
    """The 60,000 training images as float32 rows in [0, 1]; ends the script where absent."""
    name = "train-images-idx3-ubyte.gz"
    folders = [Path("/usr/share/datasets/fashion-mnist")]
    if given := os.environ.get("PRCUT_DATA"):
        folders = [Path(given), Path(given) / "fashion-mnist", *folders]
    for folder in folders:
        if (folder / name).exists():
            pixels = np.frombuffer(
                gzip.decompress((folder / name).read_bytes()), np.uint8, offset=16
            )
            return pixels.reshape(-1, 784).astype(np.float32) / 255
    print(
        f"Fashion-MNIST ({name}) is in none of {', '.join(map(str, folders))}: nothing measured.\n"
        "Install Debian's dataset-fashion-mnist, or set PRCUT_DATA to a folder that has it."
    )
    sys.exit(0 if os.environ.get("CI") else 2)
