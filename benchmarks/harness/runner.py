"""Runs one after the other, each in its own process; a file of records remembers what is done."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness.inputs import prepare_inputs
from benchmarks.harness.records import (
    RunRecord,
    RunResult,
    RunSpec,
    append_record,
    read_records,
)

__all__ = ["pending_specs", "run_all"]

_LOG = logging.getLogger(__name__)


def run_all(
    specs: Sequence[RunSpec],
    results_path: str | Path,
    *,
    run: Callable[[RunSpec, Path], RunResult] | None = None,
) -> list[RunRecord]:
    """Run what the file does not have yet; return all of the file's records.

    A run that fails or takes too long is recorded, and the others go on. Stopped at any point, the
    same call resumes with what is missing.

    Parameters
    ----------
    specs : sequence of RunSpec
    results_path : path
        A file of one JSON line per run, made where it is not there.
    run : callable, optional
        Makes one run; by default a new interpreter does, whose memory is its own.
    """
    path = Path(results_path)
    pending = pending_specs(specs, read_records(path))
    if len(pending) < len(specs):
        _LOG.info("%d of %d runs are in %s already", len(specs) - len(pending), len(specs), path)
    prepared: dict[tuple[object, ...], Path] = {}
    for number, spec in enumerate(pending, 1):
        start = spec.dataset, spec.split, spec.n_rows, spec.representation, spec.n_neighbors
        if start not in prepared:
            # labels instead of a graph: nothing to prepare
            has_graph = spec.n_neighbors > 0
            prepared[start] = prepare_inputs(spec) if has_graph else Path()
        result = (run or _run_process)(spec, prepared[start])
        append_record(path, RunRecord(spec, result))
        _LOG.info("%d/%d %s", number, len(pending), _summary(spec, result))
    return read_records(path)


def pending_specs(specs: Iterable[RunSpec], records: Iterable[RunRecord]) -> list[RunSpec]:
    """Return the specs that no record settles.

    What failed is tried again, and what took too long where it now has longer.
    """
    settled: dict[str, float] = {}
    for record in records:
        status, key = record.result.status, record.spec.key
        if status != "failed":
            limit = float("inf") if status == "done" else record.spec.time_limit
            settled[key] = max(limit, settled.get(key, 0.0))
    unique = {spec.key: spec for spec in specs}
    return [spec for key, spec in unique.items() if settled.get(key, 0.0) < spec.time_limit]


def _run_process(spec: RunSpec, inputs_path: Path) -> RunResult:
    """Run a method in a new interpreter, which ends at its time limit."""
    with tempfile.TemporaryDirectory(prefix="prcut-bench-") as folder:
        result_path = Path(folder) / "result.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.harness.worker",
            str(inputs_path),
            str(result_path),
        ]
        with (
            (Path(folder) / "stderr.txt").open("w+b") as stderr,
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            ) as process,
        ):
            try:
                code = _wait(process, spec)
            finally:
                # also on Ctrl-C; and what a method has started itself ends with it
                _kill_group(process)
            stderr.seek(0)
            last_words = stderr.read().decode(errors="replace")
        if code is None:
            return RunResult("timed out", f"stopped after {spec.time_limit:g} s")
        if code == 0:
            return RunResult(**json.loads(result_path.read_text()))
        lines = last_words.strip().splitlines()
        return RunResult("failed", lines[-1] if lines else f"ended with code {code}")


def _wait(process: subprocess.Popen[bytes], spec: RunSpec) -> int | None:
    """Return the exit code, or None where the method was not done within its limit."""
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101
    with suppress(BrokenPipeError):  # the process has ended: its exit code says why
        process.stdin.write(json.dumps(asdict(spec)).encode() + b"\n")
        process.stdin.close()
    process.stdout.readline()  # "started", or nothing from a process that has ended
    try:
        return process.wait(spec.time_limit)
    except subprocess.TimeoutExpired:
        return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _summary(spec: RunSpec, result: RunResult) -> str:
    graph = f", {spec.n_neighbors} neighbours" if spec.n_neighbors else ""
    what = f"{spec.subject}{graph}, {spec.method}, seed {spec.seed}"
    if result.status != "done":
        return f"{what}: {result.status}: {result.message}"
    return f"{what}: ACC {result.acc:.3f}, NMI {result.nmi:.3f} in {result.wall_seconds:.1f} s"
