import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench_samples import record
from benchmarks.harness.records import RunRecord, RunSpec
from benchmarks.harness.runner import pending_specs, run_all

SPEC = RunSpec("quick", "digits", "all", "raw", 5, "faiss_kmeans", 0, n_rows=400)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.costly("three new interpreters, of which one fails and one is too slow")
def test_runs_are_made_once_and_what_fails_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.jsonl"
    slow = replace(SPEC, method="prcut", n_rows=None, time_limit=0.1)
    specs = [replace(SPEC, method="frobnicate"), slow, replace(SPEC, method="prcut")]
    failed, late, done = run_all(specs, path)
    assert failed.result.status == "failed"
    assert failed.result.message.startswith("method='frobnicate' does not exist; choose from")
    assert (late.result.status, late.result.message) == ("timed out", "stopped after 0.1 s")
    assert done.result.status == "done"
    assert (done.result.n_samples, done.result.n_features) == (400, 64)
    assert done.result.n_clusters == done.result.used_clusters == 10
    assert 0.4 < (done.result.acc or 0) <= 1
    assert (done.result.ratio_cut or 0) > 0
    assert (done.result.graph_seconds or 0) > 0
    assert (done.result.cpu_seconds or 9) < 5  # imports are not counted
    assert set(done.result.versions) >= {"python", "numpy", "prcut", "torch", "prcut source"}
    assert 50 < (done.result.peak_rss_mb or 0) < 3000
    assert os.uname().nodename not in path.read_text().split()

    # what is done is not run again, nor what has had its time; what failed is
    asked: list[RunSpec] = []

    def remember(spec: RunSpec, _: Path) -> object:
        asked.append(spec)
        return done.result

    assert run_all(specs[1:], path, run=remember) == [failed, late, done]
    assert asked == []
    run_all(specs, path, run=remember)
    assert asked == specs[:1]
    longer = replace(slow, time_limit=0.2)
    assert pending_specs([longer, longer], [late]) == [longer]
    assert pending_specs([longer], [late, RunRecord(slow, record().result)]) == []


def test_a_worker_that_dies_is_recorded_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nread spec\necho first >&2\necho out of luck >&2\nexit 7\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    (dead,) = run_all([SPEC], tmp_path / "runs.jsonl")
    assert (dead.result.status, dead.result.message) == ("failed", "out of luck")
