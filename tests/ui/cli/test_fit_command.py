"""Fits on disk, fits that were killed and fits of several processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from killed import KILLED, contents
from prcut import PRCut
from prcut.ui.cli.commands import main

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


def test_what_does_not_fit_in_memory_goes_through_the_disk(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    options = ["--steps", "400", "--n-init", "2", "--neighbors", "10", "--device", "cpu"]
    command = ["fit", f"{data}/rows.npy", "-k", "4", "-o", str(path), "--memory", "10K", *options]
    assert main(command) == 0
    assert "10.0 kB may be used: the graph is built on disk, block by block" in (
        capsys.readouterr().err
    )
    assert (path / "blocks/manifest.json").exists()
    labels = pq.read_table(path / "labels")
    assert labels["row"].to_pylist() == list(range(1500))
    truth = np.load(data / "labels.npy")
    assert adjusted_rand_score(truth, labels["label"].to_numpy()) > 0.9
    assert main(["info", str(path)]) == 0
    assert re.search(r"stage partition +done", capsys.readouterr().out)


def test_sizes_classes_and_weights_of_a_run(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, truth = np.load(data / "rows.npy")[:400], np.load(data / "labels.npy")[:400]
    known = np.where(np.arange(400) < 40, truth, -1)
    weights = np.random.default_rng(0).integers(1, 4, 400)
    columns = {"x": list(rows), "known": known, "weight": weights}
    pq.write_table(
        pa.table({**columns, "x": [row.tolist() for row in rows]}), tmp_path / "a.parquet"
    )
    options = ["--neighbors", "10", "--effort", "fast", "--device", "cpu", "--quiet"]
    command = ["fit", f"{tmp_path}/a.parquet", "-k", "4", "-o", f"{tmp_path}/run", *options]
    columns_given = ["--label-column", "known", "--weight-column", "weight"]
    assert main([*command, *columns_given, "--min-size", ".2"]) == 0
    labels = pq.read_table(tmp_path / "run/labels")["label"].to_numpy()
    assert (labels[:40] == truth[:40]).all()
    assert (np.bincount(labels, weights) >= 0.2 * weights.sum()).all()
    command = ["fit", f"{tmp_path}/a.parquet", "-k", "4", "-o", f"{tmp_path}/equal", *options]
    assert main([*command, "--max-size", "equal"]) == 0
    labels = pq.read_table(tmp_path / "equal/labels")["label"].to_numpy()
    assert (np.bincount(labels) == 100).all()
    capsys.readouterr()
    refused = ["fit", f"{data}/rows.npy", *options]
    for more, message in ((["-k", "4", "--weight-column", "w"], "column 'w' needs Parquet data"),):
        assert main([*refused, "-o", f"{tmp_path}/{more[0]}", *more]) != 0
        assert message in " ".join(capsys.readouterr().err.split())


N_STRAY = 30
OUTLIERS = ["-k", "5", "--outliers", ".05", "--effort", "fast", "--device", "cpu", "--quiet"]


def rows_and_strays(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Save and return rows to fit, and others like them followed by strays."""
    rows, _ = make_blobs(6000, 6, centers=5, cluster_std=2, random_state=1)
    strays = np.random.default_rng(0).uniform(-60, 60, (N_STRAY, 6))
    fitted, new = rows[:3000].astype("f4"), np.vstack([rows[3000:], strays]).astype("f4")
    np.save(folder / "rows.npy", fitted)
    np.save(folder / "new.npy", new)
    return fitted, new


def read_refused(labels: Path) -> np.ndarray:
    """Return which rows belong nowhere; check that their clusters are kept, and no confidence."""
    table = pq.read_table(labels)
    label, raw = table["label"].to_numpy(), table["cluster"].to_numpy()
    refused: np.ndarray = label == -1
    assert (label[~refused] == raw[~refused]).all()
    assert (raw >= 0).all()
    assert ((table["confidence"].to_numpy() == 0) == refused).all()
    return refused


@pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
@pytest.mark.parametrize(("memory", "mode"), [("4G", "memory"), ("10K", "disk")])
def test_no_more_rows_are_refused_than_promised_and_strays_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], memory: str, mode: str
) -> None:
    rows, new = rows_and_strays(tmp_path)
    run, report = tmp_path / "run", tmp_path / "report.html"
    seed = int(np.random.RandomState(0).randint(2**31 - 1))  # that of random_state=0
    command = ["fit", f"{tmp_path}/rows.npy", "-o", str(run), *OUTLIERS, "--memory", memory]
    assert main([*command, "--seed", str(seed), "--report", str(report), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert json.loads((run / "plan.json").read_text())["mode"] == mode
    refused = read_refused(run / "labels")
    assert 0 < refused.mean() <= 0.05 + 0.01
    assert said["outliers"] == refused.sum()
    assert re.search(rf"belong nowhere\W+dt\W+dd\W+{refused.sum()}\b", report.read_text())

    command = ["assign", str(run), f"{tmp_path}/new.npy", "--out", f"{tmp_path}/new"]
    assert main([*command, "--quiet", "--json"]) == 0
    later = read_refused(tmp_path / "new")
    assert later[:-N_STRAY].mean() <= 0.05 + 0.01
    assert later[-N_STRAY:].mean() > 0.9
    assert json.loads(capsys.readouterr().out)["outliers"] == later.sum()

    model = PRCut.load(run)
    assert model.outliers == 0.05
    labels = pq.read_table(run / "labels")
    np.testing.assert_array_equal(model.labels_, labels["label"])
    np.testing.assert_array_equal(model.clusters_, labels["cluster"])
    np.testing.assert_array_equal(model.predict(new), pq.read_table(tmp_path / "new")["label"])
    assert model.score_outliers(new[-N_STRAY:]).p_value.max() <= 0.05
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(PRCut.load(tmp_path / "saved").predict(new), model.predict(new))
    assert main(["assign", f"{tmp_path}/saved", *command[2:4], f"{tmp_path}/again", "-q"]) == 0
    assert pq.read_table(tmp_path / "again").equals(pq.read_table(tmp_path / "new"))
    if mode == "memory":  # as the estimator, by the same rows and seed
        options: Any = {"effort": "fast", "outliers": 0.05, "random_state": 0, "device": "cpu"}
        fitted = PRCut(5, **options).fit(rows)
        np.testing.assert_array_equal(fitted.labels_, model.labels_)
        np.testing.assert_array_equal(fitted.clusters_, model.clusters_)

    # what is made of the labels leaves such rows out
    assert main(["export", str(run), "--centroids", f"{tmp_path}/centroids.parquet"]) == 0
    sizes = pq.read_table(tmp_path / "centroids.parquet")["size"].to_pylist()
    assert sizes == np.bincount(model.labels_[~refused]).tolist()
    assert main(["sample", str(run), "--size", "500", "--out", f"{tmp_path}/sample"]) == 0
    drawn = pq.read_table(tmp_path / "sample")["label"].to_numpy()
    assert len(drawn) == 500
    assert (drawn >= 0).all()


@pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
@pytest.mark.parametrize("memory", ["4G", "10K"])
def test_a_killed_run_refuses_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    rows_and_strays(tmp_path)
    command = ["fit", f"{tmp_path}/rows.npy", *OUTLIERS, "--memory", memory, "--resume"]
    replaced, replace = list[str](), os.replace

    def note(source: str, target: str) -> None:
        replaced.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", note)
    assert main([*command, "-o", f"{tmp_path}/whole"]) == 0
    monkeypatch.undo()
    # after the exemplars, which are not yet part of a model, and after the labels
    for name in ("fit.safetensors", "part-00000.parquet"):
        run = tmp_path / name
        counted = [sys.executable, "-c", KILLED, str(replaced.index(name) + 1)]
        killed = subprocess.run([*counted, *command, "-o", str(run)], env=ENVIRONMENT, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert main([*command, "-o", str(run)]) == 0
        for part in ("model/fit.safetensors", "model/model.safetensors", "labels"):
            whole, again = (contents(tmp_path / one / part) for one in ("whole", name))
            assert whole == again, part


def test_a_run_killed_in_its_first_file_is_resumed(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "log.txt").touch()
    unfinished = run / ".plan.json.4f6c5635.prcut-tmp"
    unfinished.write_text("{")
    options = ["--steps", "20", "--n-init", "1", "--neighbors", "10", "--quiet", "--resume"]
    assert main(["fit", f"{data}/rows.npy", "-k", "4", "-o", str(run), *options]) == 0
    assert not unfinished.exists()


# -- processes -------------------------------------------------------------------------------

LONG = ["--solver", "train", "--steps", "300", "--n-init", "2", "--neighbors", "10"]
LONG += ["--batch-size", "2048"]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "prcut", *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    process = start([*long_fit(data, path), "--id-column", "id"])
    out, err = process.communicate()
    assert process.returncode == 0, err
    # what a log file shows
    assert "\x1b" not in err
    assert "\r" not in err
    assert max(map(len, err.splitlines())) > 80  # not wrapped
    assert out.startswith(f"run={path}\n")
    log = (path / "log.txt").read_text()
    assert re.search(r"^\d{4}-\d\d-\d\d \S+ INFO    training 2/2: 300/300", log, re.MULTILINE)
    assert "\x1b" not in log
    return path


def long_fit(data: Path, path: Path) -> list[str]:
    options = ["--out", str(path), "--save-every", "10", "--device", "cpu"]
    return ["fit", f"{data}/parts", "-k", "4", *LONG, *options]


def wait_for_step(process: subprocess.Popen[str], saved: Path, step: int) -> None:
    """Until a checkpoint of so many steps is there."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if saved.exists() and json.loads(saved.read_text())["step"] >= step:
            return
        time.sleep(0.002)
    raise AssertionError(f"no checkpoint at step {step}: {process.communicate()}")


def test_killed_runs_end_with_the_same_bits(data: Path, undisturbed: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [*long_fit(data, path), "--id-column", "id"]
    rng = np.random.default_rng(0)
    for number, (signum, code) in enumerate(
        ((signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130))
    ):
        process = start([*command, "--resume"])
        start_number, step = divmod(100 * number + int(rng.integers(10, 90)), 150)
        saved = path / f"checkpoint/start-{start_number}/checkpoint.json"
        wait_for_step(process, saved, step)
        process.send_signal(signum)
        _, err = process.communicate()
        assert process.returncode == code, err
        if signum != signal.SIGKILL:
            again = " ".join(["prcut", *command, "--resume"])
            assert err.splitlines()[-1] == f"warning: interrupted; resume with: {again}"
    assert main(["info", str(path)]) == 0
    assert not (path / "result.json").exists()
    process = start([*command, "--resume"])
    _, err = process.communicate()
    assert process.returncode == 0, err
    for name in ("model/model.safetensors", "history.parquet"):
        assert (path / name).read_bytes() == (undisturbed / name).read_bytes(), name
    assert pq.read_table(path / "labels").equals(pq.read_table(undisturbed / "labels"))


def test_a_search_that_was_killed_ends_with_the_same_bits(data: Path, tmp_path: Path) -> None:
    def command(path: Path) -> list[str]:
        options = ["--out", str(path), "--save-every", "10", "--device", "cpu", "--resume"]
        return ["fit", f"{data}/parts", "-k", "4", "--id-column", "id", "--steps", "300", *options]

    for name, is_killed in (("whole", False), ("killed", True)):
        process = start(command(tmp_path / name))
        if is_killed:
            saved = tmp_path / name / "checkpoint/start-0/checkpoint.json"
            wait_for_step(process, saved, 50)
            process.kill()
            process.communicate()
            process = start(command(tmp_path / name))
        _, err = process.communicate()
        assert process.returncode == 0, err
    for name in ("model/model.safetensors", "history.parquet"):
        whole, killed = ((tmp_path / run / name).read_bytes() for run in ("whole", "killed"))
        assert whole == killed, name


@pytest.mark.parametrize("wanted", ["auto", "2,9"])
def test_the_number_of_clusters_is_found_and_kept(
    data: Path, tmp_path: Path, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    command = ["fit", f"{data}/rows.npy", "-k", wanted, "-o", str(path), "--device", "cpu"]
    assert main([*command, "--top", "5"]) == 2
    assert "--top 5 must be from 0 to --clusters 4." in capsys.readouterr().err
    assert not path.exists()
    assert main([*command, "--no-assign"]) == 0
    assert "4 clusters" in capsys.readouterr().err
    assert json.loads((path / "plan.json").read_text())["n_clusters"] == 4
    assert main([*command, "--resume", "--top", "2"]) == 0  # found in the plan
    truth = np.load(data / "labels.npy")
    labels = pq.read_table(path / "labels")["label"].to_numpy()
    assert adjusted_rand_score(truth, labels) > 0.9


def test_layers_are_columns_of_the_labels(tmp_path: Path) -> None:
    rng, turns = np.random.default_rng(0), np.arange(3) * 2 * np.pi / 3
    groups = np.array([[0, 0], [20, 0], [0, 20], [20, 20]])
    corners = 2.2 * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    centers = (groups[:, None] + corners).reshape(12, 2)
    np.save(tmp_path / "rows.npy", np.repeat(centers, 80, axis=0) + rng.normal(size=(960, 2)))
    run, more = tmp_path / "run", tmp_path / "more"
    command = ["fit", f"{tmp_path}/rows.npy", "-k", "auto", "-o", str(run), "--device", "cpu"]
    assert main([*command, "--quiet"]) == 0
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
    assert main(["report", str(run), "-o", f"{tmp_path}/report.html", "--quiet"]) == 0
    assert "How well independent searches" in (tmp_path / "report.html").read_text()
    (tmp_path / "run" / "count.json").write_text('{"tried": [2, "many"], "agreement": [1, 1]}')
    assert main(["report", str(run), "-o", f"{tmp_path}/report.html", "--quiet"]) == 3
    (run / "count.json").write_text(json.dumps(found))
    model = PRCut.load(run / "model")
    assert model.layer_sizes_ == found["layers"]
    np.testing.assert_array_equal(
        model.predict(np.load(tmp_path / "rows.npy"), level=1), assigned["label_4"]
    )
