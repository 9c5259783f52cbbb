"""One run in a process of its own, so that its memory, time and seed are its own.

What a method compiles, it compiles on a few other rows before the clock starts.

``python -m benchmarks.harness.worker INPUTS RESULT`` reads a spec as one line of JSON from standard
input, says ``started`` when the method starts, and writes the result as JSON to the file RESULT.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.harness.inputs import Inputs, load_bench_dataset, load_inputs, rows_digest
from benchmarks.harness.label_similarity import LABEL_METHODS, learn_labels
from benchmarks.harness.methods import METHODS
from benchmarks.harness.peers import require_package
from benchmarks.harness.records import RunResult, RunSpec
from benchmarks.harness.scores import score_clusters
from benchmarks.harness.task import Method, Task
from benchmarks.harness.usage import peak_memory

import prcut
from prcut.errors import InvalidInputError, PRCutError
from prcut.graph.build import build_graph

__all__ = ["main", "run_spec"]

# beyond 4,096 rows UMAP searches neighbours by other code
_COMPILING_ROWS = 5000


def run_spec(spec: RunSpec, inputs_path: str) -> RunResult:
    """Run a method on prepared inputs and score it; labels are read, but never handed to it."""
    if spec.method not in METHODS:
        raise InvalidInputError(
            f"method={spec.method!r} does not exist; choose from {', '.join(METHODS)}."
        )
    method = METHODS[spec.method]
    versions = _versions(method)
    run: Callable[[], np.ndarray]
    if spec.method in LABEL_METHODS:
        inputs, run = _with_labels(spec)
    else:
        inputs = load_inputs(inputs_path, spec.n_neighbors)
        assert inputs.graph is not None  # noqa: S101
        run = partial(method.run, Task(inputs.rows, inputs.graph, inputs.n_clusters, spec.seed))
    for module in method.modules:
        require_package(module, module)
        _compile(method)
    _say_started()
    start, cpu_start = time.perf_counter(), _cpu_seconds()
    clusters = run()
    wall, cpu = time.perf_counter() - start, _cpu_seconds() - cpu_start
    peak = peak_memory()
    return RunResult(
        "done",
        data=inputs.digest,
        n_samples=len(inputs.rows),
        n_features=inputs.rows.shape[1],
        n_clusters=inputs.n_clusters,
        **score_clusters(inputs.labels, np.asarray(clusters), inputs.graph)._asdict(),
        wall_seconds=round(wall, 3),
        cpu_seconds=round(cpu, 3),
        graph_seconds=round(inputs.graph_seconds, 3),
        peak_rss_mb=None if peak is None else round(peak / 2**20, 1),
        versions=versions,
        machine=_machine(),
    )


def _compile(method: Method) -> None:
    rows = np.random.default_rng(0).normal(size=(_COMPILING_ROWS, 8)).astype(np.float32)
    for some in (rows[:600], rows):
        method.run(Task(some, build_graph(some, 5), 2, 0))


def _with_labels(spec: RunSpec) -> tuple[Inputs, Callable[[], np.ndarray]]:
    """Table 1 learns from the labels of the training split and is scored on the split it names."""
    fitted = load_bench_dataset(spec.dataset, "train", spec.n_rows)
    scored = load_bench_dataset(spec.dataset, spec.split, spec.n_rows)
    rows, labels = scored.pixels(), scored.labels
    digest = rows_digest(rows, labels)
    inputs = Inputs(rows, labels, None, len(np.unique(labels)), 0.0, digest)
    return inputs, partial(learn_labels, spec.method, fitted, scored, spec.seed)


def main(arguments: list[str]) -> int:
    """Run what standard input asks for."""
    inputs_path, result_path = arguments
    try:
        result = run_spec(RunSpec(**json.loads(sys.stdin.readline())), inputs_path)
    except PRCutError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    Path(result_path).write_text(json.dumps(asdict(result), allow_nan=False))
    return 0


def _say_started() -> None:
    """Start the clock of the time limit; what a method prints now goes to standard error."""
    sys.stdout.write("started\n")
    sys.stdout.flush()
    os.dup2(2, 1)


def _cpu_seconds() -> float:
    """Return the CPU time of all threads and of the children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _versions(method: Method) -> dict[str, str]:
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    versions |= {name: importlib.metadata.version(name) for name in method.packages}
    if "prcut" in method.packages:
        versions["prcut source"] = _source_digest()
    return versions


def _source_digest(package: Path = Path(prcut.__file__).parent) -> str:
    """Return a digest of the code that decides what PRCut finds: all rooms but what people see."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith("ui/"):
            digest.update(f"{name}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _machine() -> dict[str, str]:
    import torch

    cpu = platform.processor()
    if (about := Path("/proc/cpuinfo")).exists():
        lines = about.read_text().splitlines()
        cpu = next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "cpus": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "platform": f"{platform.system()} {platform.machine()}",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
