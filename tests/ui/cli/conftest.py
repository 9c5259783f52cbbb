"""Data and a finished run, for every test of the command line."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs

from prcut.ui.cli.commands import main


@pytest.fixture(scope="package")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Blobs as a .npy file and as three Parquet files with names and numbers of the rows."""
    folder = tmp_path_factory.mktemp("data")
    rows, labels = make_blobs(1500, 8, centers=4, cluster_std=3.0, random_state=3)
    rows = rows.astype(np.float32)
    rows[:, -1] = 1  # a constant column is remarked on
    np.save(folder / "rows.npy", rows)
    np.save(folder / "labels.npy", labels)
    (folder / "parts").mkdir()
    for number in range(3):
        part = slice(500 * number, 500 * number + 500)
        numbers = np.arange(1500)[part] + 10**12
        columns = {"name": [f"é{n}" for n in numbers], "id": numbers, "e": list(rows[part])}
        pq.write_table(pa.table(columns), folder / f"parts/{number}.parquet")
    return folder


@pytest.fixture(scope="package")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    path = tmp_path_factory.mktemp("runs") / "run"
    options = ["--steps", "50", "--n-init", "1", "--neighbors", "10", "--device", "cpu"]
    code = main(["fit", f"{data}/rows.npy", "-k", "4", "--out", str(path), *options, "--quiet"])
    assert code == 0
    return path
