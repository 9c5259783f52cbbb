"""Runs that continue others: ids that last, files of the earlier run untouched, kills survived."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs

from killed import contents, kill_after, needs_fork
from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.fit.config import FitConfig
from prcut.runs.labels import RowLabels
from prcut.runs.run import fit_run
from prcut.runs.update import FinishedRun, update_run
from prcut.runtime.folder import Folder
from prcut.training.assigner.predict import assign_labels

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
ROWS, CLASSES = make_blobs(1800, 6, centers=5, cluster_std=1.5, random_state=5)
ROWS = ROWS.astype(np.float32)
WEEK = np.arange(len(ROWS)) % 3
CONFIG = FitConfig.of("default", 4, n_neighbors=10, max_steps=50, n_init=1)


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three weeks: a fifth class appears in the second, the first is gone in the third."""
    folder = tmp_path_factory.mktemp("weeks")
    chosen = (WEEK == 0) & (CLASSES < 4), WEEK == 1, (WEEK == 2) & (CLASSES > 0)
    for number, rows in enumerate(chosen, 1):
        np.save(folder / f"week{number}.npy", ROWS[rows])
        np.save(folder / f"classes{number}.npy", CLASSES[rows])
    for name, memory in (("run", None), ("disk", 1000)):
        fit_run(f"{folder}/week1.npy", folder / name, CONFIG, memory=memory, device="cpu")
    return folder


@pytest.mark.costly("three updates, one after the other, of a run on disk")
def test_a_class_appears_and_another_is_gone(weeks: Path, tmp_path: Path) -> None:
    before = contents(weeks / "disk")
    old = FinishedRun.open(weeks / "disk")
    second = update_run(weeks / "disk", f"{weeks}/week2.npy", tmp_path / "two", device="cpu")
    assert contents(weeks / "disk") == before
    assert second.n_clusters == 5
    written = json.loads((tmp_path / "two/result.json").read_text())
    assert [(one["kind"], one["cluster"]) for one in written["changes"]] == [("birth", 4)]
    assert written["cluster_ids"] == [0, 1, 2, 3, 4]
    assert pq.read_table(tmp_path / "two/renamed.parquet").num_rows == written["n_renamed"]
    labels = RowLabels(Folder(tmp_path / "two/partition")).read(0, second.n_samples)
    classes = np.load(weeks / "classes2.npy")
    assert (labels == 4)[classes == 4].mean() > 0.97
    rows = np.load(weeks / "week2.npy")
    known = classes < 4
    assert (assign_labels(old.fit.assigner, rows)[known] == labels[known]).mean() > 0.95

    # two runs later the first class has no rows, and its id is not given again
    third = update_run(tmp_path / "two", f"{weeks}/week3.npy", tmp_path / "three", device="cpu")
    assert third.n_clusters == 5  # it is among the rows of the second week
    last = update_run(tmp_path / "three", f"{weeks}/week3.npy", tmp_path / "four", device="cpu")
    changes = json.loads((tmp_path / "four/result.json").read_text())["changes"]
    gone = np.bincount(labels[classes == 0]).argmax()
    assert [(one["kind"], one["cluster"]) for one in changes] == [("death", gone)]
    assert last.n_clusters == 4
    names = FinishedRun.open(tmp_path / "four").fit.names
    assert names.n_given == 5
    assert gone not in names.ids


def test_an_update_that_was_finished_is_not_made_again(weeks: Path, tmp_path: Path) -> None:
    where = weeks / "run", f"{weeks}/week2.npy", tmp_path / "two"
    update_run(*where, device="cpu")
    before = contents(tmp_path / "two")
    update_run(*where, device="cpu")
    assert contents(tmp_path / "two") == before
    with pytest.raises(InvalidInputError, match="was begun with another stickiness"):
        update_run(*where, stickiness=0.3, device="cpu")
    with pytest.raises(InvalidInputError, match="was begun with another"):
        update_run(weeks / "run", f"{weeks}/week2.npy", weeks / "run", device="cpu")


@pytest.mark.costly("a run and an update that refuse rows")
def test_an_update_refuses_rows_as_the_run_does(weeks: Path, tmp_path: Path) -> None:
    config = replace(CONFIG, outliers=0.05)
    fit_run(f"{weeks}/week1.npy", tmp_path / "run", config, device="cpu")
    update_run(tmp_path / "run", f"{weeks}/week2.npy", tmp_path / "two", device="cpu")
    model = PRCut.load(tmp_path / "two")
    assert model.outliers == 0.05
    assert 0 < (model.predict(np.load(weeks / "week2.npy")) == -1).mean() <= 0.06
    assert (model.predict(np.full((3, 6), 99, np.float32)) == -1).all()


@needs_fork
@pytest.mark.costly("an update, and half of one")
def test_a_killed_update_leaves_the_run_and_is_made_again(weeks: Path, tmp_path: Path) -> None:
    before = contents(weeks / "run")
    where = weeks / "run", f"{weeks}/week2.npy", tmp_path / "two"
    kill_after(4, lambda: update_run(*where, device="cpu"))
    assert contents(weeks / "run") == before
    assert not (tmp_path / "two/result.json").exists()
    assert update_run(*where, device="cpu").n_clusters == 5
    assert contents(weeks / "run") == before


def test_what_cannot_be_continued_is_refused(weeks: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((50, 9), np.float32))
    with pytest.raises(InvalidInputError, match="n_features=9"):
        update_run(weeks / "run", f"{tmp_path}/wide.npy", tmp_path / "out")
    with pytest.raises(InvalidInputError, match="is not what"):
        FinishedRun.open(weeks / "run", f"{weeks}/week2.npy")
    with pytest.raises(InvalidInputError, match="not a run folder"):
        FinishedRun.open(tmp_path)
    fit_run(ROWS[:300], tmp_path / "array", CONFIG, device="cpu")
    with pytest.raises(InvalidInputError, match="does not record where its data are"):
        FinishedRun.open(tmp_path / "array")
    assert FinishedRun.open(tmp_path / "array", ROWS[:300]).source.n_samples == 300
