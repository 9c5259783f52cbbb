"""Runs forked from one process that has imported and compiled what they need.

A new interpreter spends 4 CPU-seconds on imports, and UMAP 25 more on compiling: of 2,500 short
runs that is most of the time. Times of forked runs are without it; their memory includes what they
share.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.harness.records import RunResult, RunSpec
from benchmarks.harness.runner import read_result, run_cold
from benchmarks.harness.worker import work

__all__ = ["run_warm"]

_IMPORTED = ["benchmarks.harness.compiled"]
# its threads share work, which Numba allows before no fork
_COLD = ("evoc",)


def run_warm(spec: RunSpec, inputs_path: Path) -> RunResult:
    """Run a method in a forked process, which ends at its time limit."""
    if spec.method in _COLD:
        return run_cold(spec, inputs_path)
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(_IMPORTED)
    with tempfile.TemporaryDirectory(prefix="prcut-bench-") as folder:
        said, to_say = forks.Pipe(duplex=False)
        process = forks.Process(target=_run, args=(spec, inputs_path, Path(folder), to_say))
        process.start()
        to_say.close()
        said.poll(None)  # until it starts, or has ended
        process.join(spec.time_limit)
        code = process.exitcode
        with suppress(ProcessLookupError):  # also what a method has started itself
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        last_words = (Path(folder) / "stderr.txt").read_text(errors="replace")
        return read_result(spec, code, Path(folder) / "result.json", last_words)


def _run(spec: RunSpec, inputs_path: Path, folder: Path, to_say: Connection) -> None:
    os.setsid()
    with (folder / "stderr.txt").open("wb") as stderr:
        os.dup2(stderr.fileno(), 2)
    os.dup2(to_say.fileno(), 1)  # until the worker says that it has started
    to_say.close()
    sys.exit(work(spec, str(inputs_path), str(folder / "result.json")))
