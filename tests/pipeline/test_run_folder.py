from pathlib import Path

import numpy as np
import pytest

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.pipeline.config import FitConfig
from prcut.pipeline.run import fit_run
from prcut.pipeline.run_folder import check_finished, read_history, read_plan, read_result
from prcut.runtime.folder import Folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    rows = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    fit_run(rows, path, FitConfig.of("default", 2, n_neighbors=8, max_steps=30), device="cpu")
    return path


def test_a_finished_run_is_read_back(run: Path) -> None:
    result = read_result(str(run))
    assert result is not None
    assert (result.n_clusters, result.n_samples, result.mode) == (2, 200, "memory")
    assert read_plan(Folder(run))["n_clusters"] == 2
    check_finished(Folder(run))
    history = read_history(Folder(run))
    assert history["step"].tolist() == list(range(10, result.n_steps + 1, 10))
    assert "cluster_sizes" not in history


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    assert read_result(str(tmp_path)) is None
    assert read_history(Folder(tmp_path)) == {}
    with pytest.raises(InvalidInputError, match="is not a run folder"):
        read_plan(Folder(tmp_path))
    with pytest.raises(InvalidInputError, match="not finished; resume it with"):
        check_finished(Folder(tmp_path))
    (tmp_path / "history.parquet").write_bytes(b"no")
    with pytest.raises(CorruptFileError, match=r"history\.parquet cannot be read"):
        read_history(Folder(tmp_path))
