import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench_samples import record
from benchmarks.harness import runner, warm
from benchmarks.harness.inputs import load_bench_dataset, load_inputs, prepare_inputs
from benchmarks.harness.records import RunRecord, RunSpec, append_record, read_records
from benchmarks.harness.runner import pending_specs, run_all

from prcut.errors import InvalidInputError

SPEC = RunSpec("quick", "digits", "all", "raw", 5, "faiss_kmeans", 0, n_rows=400)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def workers(folder: Path) -> list[str]:
    """Ids of living workers whose inputs are in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"benchmarks.harness.worker" in command and str(folder).encode() in command:
            found.append(process.name)
    return found


def test_runs_are_made_once_and_what_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.jsonl"
    specs = [replace(SPEC, method="frobnicate"), replace(SPEC, method="prcut"), SPEC]
    failed, ours, done = run_all(specs, path)
    assert failed.result.status == "failed"
    assert failed.result.message.startswith("method='frobnicate' does not exist; choose from")
    assert [ours.result.status, done.result.status] == ["done", "done"]
    assert (done.result.n_samples, done.result.n_features) == (400, 64)
    assert done.result.n_clusters == done.result.used_clusters == 10
    assert 0.4 < (done.result.acc or 0) <= 1
    assert (done.result.ratio_cut or 0) > 0
    assert (done.result.graph_seconds or 0) > 0
    assert 50 < (done.result.peak_rss_mb or 0) < 3000
    assert set(done.result.versions) == {"python", "numpy", "faiss-cpu"}
    assert set(ours.result.versions) >= {"prcut", "torch", "prcut source"}
    assert set(done.result.machine) == {"cpu", "cpus", "threads", "platform"}
    assert os.uname().nodename not in path.read_text().split()

    # what is done is not run again; what failed is
    asked: list[RunSpec] = []

    def remember(spec: RunSpec, _: Path) -> object:
        asked.append(spec)
        return done.result

    monkeypatch.setattr(runner, "run_cold", remember)
    again = run_all(specs[1:], path)
    assert asked == []
    assert again == [failed, ours, done]
    run_all(specs, path)
    assert asked == specs[:1]


def test_a_run_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    slow = replace(SPEC, method="prcut", n_rows=None, time_limit=0.2)
    start = time.monotonic()
    (late,) = run_all([slow], path)
    assert time.monotonic() - start < 60
    assert (late.result.status, late.result.message) == ("timed out", "stopped after 0.2 s")
    assert late.result.acc is None
    assert workers(tmp_path) == []
    # it has had its time, unless it is given more
    assert pending_specs([slow], [late]) == []
    longer = replace(slow, time_limit=0.3)
    assert pending_specs([longer, longer], [late]) == [longer]
    assert pending_specs([longer], [late, RunRecord(slow, record().result)]) == []


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
def test_a_killed_runner_leaves_a_file_to_go_on_with(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    specs = [replace(SPEC, seed=seed) for seed in range(3)]
    script = f"""
from pathlib import Path
from benchmarks.harness.records import RunSpec
from benchmarks.harness.runner import run_all
run_all({specs!r}, {str(path)!r})
"""
    with subprocess.Popen([sys.executable, "-c", script], env=dict(os.environ)) as killed:
        deadline = time.monotonic() + 60
        while not (path.exists() and workers(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
    n_done = len(read_records(path))
    assert 1 <= n_done < 3
    deadline = time.monotonic() + 20
    while workers(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers(tmp_path) == []  # a worker ends with its runner
    with path.open("ab") as file:
        file.write(path.read_bytes()[:50])  # as if it had been killed in the middle of a line
    with pytest.warns(match="is cut off"):
        records = run_all(specs, path)
    assert sorted(one.spec.seed for one in records) == [0, 1, 2]
    assert {one.result.status for one in records} == {"done"}


def test_an_interrupt_ends_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupt(process: subprocess.Popen[bytes], _: RunSpec) -> int:
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_all([SPEC], tmp_path / "runs.jsonl")
    assert started[0].returncode == -signal.SIGKILL
    assert not (tmp_path / "runs.jsonl").exists()


def test_inputs_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepare_inputs(SPEC)
    inputs = load_inputs(folder, 5)
    dataset = load_bench_dataset("digits", "all", 400)
    np.testing.assert_array_equal(inputs.rows, dataset.pixels())
    np.testing.assert_array_equal(inputs.labels, dataset.labels)
    assert inputs.rows.dtype == np.float32
    assert inputs.rows.max() == 1
    assert inputs.graph.n_samples == 400
    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.harness.inputs.build_graph", None)  # calling it would fail
        assert prepare_inputs(SPEC) == folder
    assert load_inputs(folder, 5).graph_seconds == inputs.graph_seconds
    with pytest.raises(InvalidInputError, match="holds no rows with a graph of n_neighbors=7"):
        load_inputs(folder, 7)
    assert prepare_inputs(replace(SPEC, n_rows=300)) != folder


def test_inputs_that_do_not_exist_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks.harness.datasets import Dataset

    with pytest.raises(InvalidInputError, match="n_rows=0 must be >= 1"):
        load_bench_dataset("digits", "all", 0)
    texts = Dataset("banking77", "all", ["a", "b"], np.array([0, 1]))
    monkeypatch.setattr("benchmarks.harness.inputs.load_dataset", lambda *_, **__: texts)
    with pytest.raises(InvalidInputError, match="banking77 holds texts, which have no pixels"):
        run_all([replace(SPEC, dataset="banking77")], tmp_path / "runs.jsonl")


def test_rows_of_an_encoder_are_those_of_embed(monkeypatch: pytest.MonkeyPatch) -> None:
    def embed(_dataset: object, encoder: str, **_: object) -> np.ndarray:
        assert encoder == "some:encoder"
        return np.random.default_rng(0).normal(size=(400, 3)).astype(np.float16)

    monkeypatch.setattr("prcut.pipeline.embedding.embed", embed)
    inputs = load_inputs(prepare_inputs(replace(SPEC, representation="some:encoder")), 5)
    assert inputs.rows.shape == (400, 3)
    assert inputs.rows.dtype == np.float32


def test_a_worker_that_dies_is_recorded_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nread spec\necho first >&2\necho out of luck >&2\nexit 7\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    (dead,) = run_all([SPEC], tmp_path / "runs.jsonl")
    assert (dead.result.status, dead.result.message) == ("failed", "out of luck")
    script.write_text("#!/bin/sh\nexit 7\n")
    append_record(tmp_path / "runs.jsonl", dead)
    *_, dead = run_all([SPEC], tmp_path / "runs.jsonl")
    assert dead.result.message == "ended with code 7"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_forked_runs_are_those_of_new_interpreters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_IMPORTED", ["benchmarks.harness.worker"])  # compiles nothing
    fails = replace(SPEC, method="frobnicate")
    slow = replace(SPEC, method="prcut", n_rows=None, time_limit=0.1)
    (cold,) = run_all([SPEC], tmp_path / "cold.jsonl")
    forked, failed, late = run_all([SPEC, fails, slow], tmp_path / "warm.jsonl", run=warm.run_warm)
    assert (forked.result.nmi, forked.result.data) == (cold.result.nmi, cold.result.data)
    assert (forked.result.cpu_seconds or 9) < 5  # imports are not counted
    assert failed.result.message.startswith("method='frobnicate' does not exist; choose from")
    assert (late.result.status, late.result.message) == ("timed out", "stopped after 0.1 s")
