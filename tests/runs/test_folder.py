"""The folder of a run: its plan, which is written once, and what a finished run opens as."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs

from prcut import PRCut
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.fit.config import FitConfig
from prcut.runs.folder import choose_mode, plan_run
from prcut.runs.labels import RowLabels, assign_parquet
from prcut.runs.run import fit_run
from prcut.runtime.folder import Folder
from prcut.runtime.sources import ArraySource

ROWS = make_blobs(300, 5, centers=3, cluster_std=3, random_state=1)[0].astype(np.float32)
CONFIG = FitConfig.of("default", 3, n_neighbors=10, max_steps=50, n_init=1, seed=5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its labels."""
    path = tmp_path_factory.mktemp("runs") / "run"
    result = fit_run(ROWS, path, CONFIG, device="cpu")
    partition = RowLabels(Folder(path / "partition"))
    assign_parquet(result.assigner, ROWS, path / "labels", partition=partition, device="cpu")
    return path


def test_a_run_without_labels_opens_with_its_partition(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("labels"))
    assert PRCut.load(run).objective_ == json.loads((run / "result.json").read_text())["objective"]
    model = PRCut.load(tmp_path / "run")
    np.testing.assert_array_equal(model.labels_, PRCut.load(run).labels_)


def test_other_folders_are_refused_and_models_open_as_before(run: Path, tmp_path: Path) -> None:
    assert PRCut.load(run / "model").n_clusters_ == 3
    shutil.copytree(run, tmp_path / "run")
    pq.write_table(pq.read_table(run / "labels").slice(0, 9), tmp_path / "run/labels/more.parquet")
    with pytest.raises(CorruptFileError, match=r"has labels_ of shape \(309,\)"):
        PRCut.load(tmp_path / "run")
    (tmp_path / "run/result.json").unlink()
    with pytest.raises(InvalidInputError, match="is a run that is not finished"):
        PRCut.load(tmp_path / "run")


SOURCE = ArraySource(np.zeros((1000, 8), np.float32))
PLANNED = FitConfig.of("default", 4, n_neighbors=10)


def test_what_fits_in_memory_stays_there() -> None:
    assert choose_mode(SOURCE, 10, 10**9)[0] == "memory"
    assert choose_mode(SOURCE, 10, 10**3)[0] == "disk"
    assert choose_mode(SOURCE, 10, 10**9, on_disk=True)[0] == "disk"


def test_a_plan_is_written_once(tmp_path: Path) -> None:
    path = str(tmp_path)
    first = plan_run(path, SOURCE, PLANNED, 10**3)
    again = plan_run(path, SOURCE, PLANNED, 10**12)
    assert first.mode == again.mode == "disk"
    assert first.key == again.key
    assert first.n_neighbors == 10
    with pytest.raises(InvalidInputError, match="begun with another n_clusters"):
        plan_run(path, SOURCE, FitConfig.of("default", 5, n_neighbors=10), None)
