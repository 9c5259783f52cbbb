from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs

from prcut.fit.config import FitConfig
from prcut.runs.run import fit_run
from prcut.ui.report.inspection import Inspection, inspect_run
from report_samples import EVIL

SMALL = {"max_steps": 40, "n_init": 1, "n_neighbors": 8}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on 300 rows of Parquet, of which every text is an attack."""
    where = tmp_path_factory.mktemp("report")
    rows, classes = make_blobs(300, 4, centers=3, cluster_std=1.5, random_state=0)
    table = pa.table(
        {
            "vector": list(rows.astype(np.float32)),
            "text": [f"{EVIL} {i}" for i in range(300)],
            "class": [f"<b>class {c}</b>" for c in classes],
        }
    )
    pq.write_table(table, where / "rows.parquet")
    data = str(where / "rows.parquet")
    fit_run(data, where / "run", FitConfig.of("default", 3, **SMALL), device="cpu")
    return where


@pytest.fixture(scope="session")
def inspected(folder: Path) -> Inspection:
    return inspect_run(folder / "run")
