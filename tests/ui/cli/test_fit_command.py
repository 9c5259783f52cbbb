"""Fits on disk, fits that were killed, and what goes to the files of labels."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from killed import contents, kill_after, needs_fork
from prcut import PRCut
from prcut.ui.cli.commands import main
from prcut.ui.cli.info import describe_path

# -- on disk -----------------------------------------------------------------------------------

N_FITTED, N_STRAY = 2000, 30


@pytest.fixture(scope="module")
def strays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows to fit, and new rows like them followed by strays."""
    folder = tmp_path_factory.mktemp("strays")
    rows, classes = make_blobs(2 * N_FITTED, 6, centers=5, cluster_std=2, random_state=1)
    far = np.random.default_rng(0).uniform(-60, 60, (N_STRAY, 6))
    np.save(folder / "rows.npy", rows[:N_FITTED].astype("f4"))
    np.save(folder / "classes.npy", classes[:N_FITTED])
    np.save(folder / "new.npy", np.vstack([rows[N_FITTED:], far]).astype("f4"))
    return folder


def fit_on_disk(strays: Path, run: Path) -> list[str]:
    options = ["-k", "5", "--outliers", ".05", "--effort", "fast", "--device", "cpu"]
    return ["fit", f"{strays}/rows.npy", "-o", str(run), *options, "--memory", "10K", "--resume"]


@pytest.fixture(scope="module")
def on_disk(strays: Path) -> Path:
    """A finished run on disk that refuses rows."""
    assert main([*fit_on_disk(strays, strays / "run"), "--quiet"]) == 0
    return strays / "run"


def read_refused(labels: Path) -> np.ndarray:
    """Return which rows belong nowhere, and check that their clusters are kept."""
    table = pq.read_table(labels)
    label, raw = table["label"].to_numpy(), table["cluster"].to_numpy()
    refused: np.ndarray = label == -1
    assert (raw[~refused] == label[~refused]).all()
    assert (raw >= 0).all()
    return refused


@pytest.mark.costly("a run on disk, which other tests look at")
def test_what_does_not_fit_in_memory_goes_through_the_disk(on_disk: Path, strays: Path) -> None:
    said = (on_disk / "log.txt").read_text()
    assert "10.0 kB may be used: the graph is built on disk, block by block" in said
    assert (on_disk / "blocks/manifest.json").exists()
    labels = pq.read_table(on_disk / "labels")
    assert labels["row"].to_pylist() == list(range(N_FITTED))
    truth = np.load(strays / "classes.npy")
    assert adjusted_rand_score(truth, labels["cluster"].to_numpy()) > 0.9
    assert describe_path(on_disk)["graph"] == "on disk, in blocks"


def test_rows_that_belong_nowhere_are_left_out_of_all_that_is_made(
    on_disk: Path, strays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = read_refused(on_disk / "labels")
    assert 0 < refused.mean() <= 0.05 + 0.01
    command = ["assign", str(on_disk), f"{strays}/new.npy", "--out", f"{tmp_path}/new"]
    assert main([*command, "--quiet", "--json"]) == 0
    later = read_refused(tmp_path / "new")
    assert later[-N_STRAY:].mean() > 0.9
    assert json.loads(capsys.readouterr().out)["outliers"] == later.sum()

    model = PRCut.load(on_disk)
    np.testing.assert_array_equal(model.labels_ == -1, refused)
    new = np.load(strays / "new.npy")
    np.testing.assert_array_equal(model.predict(new), pq.read_table(tmp_path / "new")["label"])

    assert main(["export", str(on_disk), "--centroids", f"{tmp_path}/centroids.parquet"]) == 0
    sizes = pq.read_table(tmp_path / "centroids.parquet")["size"].to_pylist()
    assert sizes == np.bincount(model.labels_[~refused]).tolist()
    assert main(["sample", str(on_disk), "--size", "500", "--out", f"{tmp_path}/sample"]) == 0
    drawn = pq.read_table(tmp_path / "sample")["label"].to_numpy()
    assert (len(drawn), drawn.min()) == (500, 0)


@needs_fork
@pytest.mark.costly("a run on disk, once more")
def test_a_run_on_disk_that_was_killed_ends_with_the_same_bytes(
    on_disk: Path, strays: Path, tmp_path: Path
) -> None:
    command = [*fit_on_disk(strays, tmp_path / "run"), "--quiet"]
    (tmp_path / "run").mkdir()
    # as if the very first file had not been whole
    (tmp_path / "run/log.txt").touch()
    unfinished = tmp_path / "run/.plan.json.4f6c5635.prcut-tmp"
    unfinished.write_text("{")
    for n_files in (3, 30, 20):  # resumed each time
        kill_after(n_files, lambda: main(command))
    assert main(command) == 0
    assert not unfinished.exists()
    model = "model/model.safetensors", "model/fit.safetensors"
    for part in ("blocks", "partition", "lesson", *model, "labels"):
        assert contents(tmp_path / "run" / part) == contents(on_disk / part), part


# -- in memory ---------------------------------------------------------------------------------


@pytest.mark.costly("starts a process, which takes signals as a user's does")
def test_a_search_that_was_terminated_ends_with_the_same_bytes(data: Path, tmp_path: Path) -> None:
    def command(path: Path) -> list[str]:
        options = ["--n-init", "1", "--neighbors", "10", "--save-every", "10", "--steps", "200"]
        where = ["--id-column", "id", "-o", str(path), "--device", "cpu", "--resume"]
        return ["fit", f"{data}/parts", "-k", "4", *options, *where]

    started = [sys.executable, "-m", "prcut", *command(tmp_path / "run")]
    process = subprocess.Popen(started, stderr=subprocess.PIPE, text=True)
    saved = tmp_path / "run/checkpoint/start-0/checkpoint.json"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and not saved.exists():
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 143, err
    again = " ".join(["prcut", *command(tmp_path / "run")])
    assert err.splitlines()[-1] == f"warning: interrupted; resume with: {again}"
    assert not (tmp_path / "run/result.json").exists()
    for name in ("run", "whole"):
        assert main([*command(tmp_path / name), "--quiet"]) == 0
    for name in ("model/model.safetensors", "history.parquet", "labels/0.parquet"):
        killed, whole = (contents(tmp_path / run / name) for run in ("run", "whole"))
        assert killed == whole, name


@pytest.mark.costly("finds the number of clusters")
def test_the_number_of_clusters_is_found_and_layers_are_columns_of_the_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, turns = np.random.default_rng(0), np.arange(3) * 2 * np.pi / 3
    groups = np.array([[0, 0], [20, 0], [0, 20], [20, 20]])
    corners = 2.2 * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    centers = (groups[:, None] + corners).reshape(12, 2)
    np.save(tmp_path / "rows.npy", np.repeat(centers, 80, axis=0) + rng.normal(size=(960, 2)))
    run, more = tmp_path / "run", tmp_path / "more"
    command = ["fit", f"{tmp_path}/rows.npy", "-k", "auto", "-o", str(run), "--device", "cpu"]
    assert main([*command, "--no-assign"]) == 0
    assert "12 clusters" in capsys.readouterr().err
    assert main([*command, "--resume", "--quiet"]) == 0  # the number is in the plan
    found = json.loads((run / "count.json").read_text())
    assert found["layers"][:2] == [12, 4]
    assert len(found["tried"]) == len(found["agreement"])
    labels = pq.read_table(run / "labels").to_pydict()
    assert list(labels) == [
        *("row", "label", "confidence"),
        *(f"label_{size}" for size in found["layers"][1:]),
    ]
    pairs = set(zip(labels["label"], labels["label_4"], strict=True))
    assert len(pairs) == 12  # they nest
    assert {coarse for _, coarse in pairs} == {0, 1, 2, 3}
    assert main(["assign", str(run), f"{tmp_path}/rows.npy", "-o", str(more), "--quiet"]) == 0
    assigned = pq.read_table(more).to_pydict()
    assert list(assigned) == list(labels)
    # those of the fit are the partition's
    assert np.mean(np.array(assigned["label"]) == labels["label"]) > 0.97
    model = PRCut.load(run / "model")
    assert model.layer_sizes_ == found["layers"]
    np.testing.assert_array_equal(
        model.predict(np.load(tmp_path / "rows.npy"), level=1), assigned["label_4"]
    )
