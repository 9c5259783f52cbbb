"""What this version wrote, the next one reads; what a later one wrote is refused in words."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fixtures.make import rows
from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.graph.saved import load_graph
from prcut.pipeline.config import FitConfig
from prcut.pipeline.run import fit_run
from prcut.pipeline.run_folder import read_plan
from prcut.runtime.folder import Folder
from prcut.training.assigner.predict import assign_labels
from prcut.training.assigner.saved import load_model
from prcut.training.assigner.saved_tree import load_levels

FORMATS = sorted(path for path in (Path(__file__).parent / "fixtures").glob("format-*"))


@pytest.fixture(params=FORMATS, ids=lambda path: path.name)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy: nothing that reads may write."""
    return Path(shutil.copytree(request.param, tmp_path / "written"))


def test_there_is_a_fixture() -> None:
    assert FORMATS


def test_estimators_runs_and_levels_give_the_labels_they_gave(written: Path) -> None:
    expected = {name: np.load(written / f"{name}.npy") for name in ("estimator", "run", "levels")}
    assert len(np.unique(expected["run"])) == 3
    np.testing.assert_array_equal(
        PRCut.load(written / "estimator").predict(rows()), expected["estimator"]
    )
    model = load_model(written / "run/model").assigner
    np.testing.assert_array_equal(assign_labels(model, rows()), expected["run"])  # type: ignore[arg-type]
    tree = load_levels(written / "levels").assigner
    np.testing.assert_array_equal(assign_labels(tree, rows()), expected["levels"])


def test_a_loaded_estimator_goes_on(written: Path) -> None:
    model = PRCut.load(written / "estimator")
    weight = next(model.assigner_.parameters()).clone()
    model.partial_fit(rows())
    assert not next(model.assigner_.parameters()).equal(weight)
    np.testing.assert_array_equal(model.labels_, np.load(written / "estimator.npy"))


def test_a_finished_run_is_finished_and_one_that_was_not_goes_on(written: Path) -> None:
    # format 1 was written when these were the defaults
    earlier = {"max_steps": 300, "batch_size": 512, "learning_rate": 3e-3, "n_init": 2}
    config = FitConfig.of("default", 3, n_neighbors=5, hidden=(16,), **earlier)
    found = fit_run(rows(), written / "run", config, device="cpu")
    weights = (written / "run/model/model.safetensors").read_bytes()
    (written / "run/result.json").unlink()
    graph = (written / "run/graph/indices.npy").stat().st_mtime_ns
    again = fit_run(rows(), written / "run", config, device="cpu")
    assert again.objective == pytest.approx(found.objective)
    assert (written / "run/graph/indices.npy").stat().st_mtime_ns == graph
    assert (written / "run/model/model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("estimator/config.json", lambda path: PRCut.load(path / "estimator")),
        ("run/model/config.json", lambda path: load_model(path / "run/model")),
        ("run/plan.json", lambda path: read_plan(Folder(path / "run"))),
        ("run/graph/graph.json", lambda path: load_graph(Folder(path / "run/graph"))),
        ("levels/levels.json", lambda path: load_levels(path / "levels")),
    ],
)
def test_a_later_format_is_refused(written: Path, file: str, read: object) -> None:
    content = json.loads((written / file).read_text())
    assert isinstance(content["format"], int)
    content["format"] = 99
    (written / file).write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match=r"has format 99, .* upgrade prcut"):
        read(written)  # type: ignore[operator]
