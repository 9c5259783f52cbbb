"""What the tasks of an engine use: time, bytes and memory, measured in the process of each task."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

from prcut.runtime.engine import Engine, Task
from prcut.runtime.progress import OnProgress

__all__ = ["MeasuredEngine", "Usage", "peak_memory"]


class Usage(NamedTuple):
    """What tasks used: CPU-seconds, bytes through files, and the most memory of a process.

    Bytes are 0 where the system does not count them.
    """

    tasks: int = 0
    rows: int = 0
    cpu_seconds: float = 0.0
    read: int = 0
    written: int = 0
    peak_bytes: int = 0
    longest_seconds: float = 0.0

    def plus(self, other: Usage) -> Usage:
        """Return the usage of both together.

        >>> Usage(1, 10, peak_bytes=5).plus(Usage(1, 20, peak_bytes=3))[:2]
        (2, 30)
        """
        *added, _, _ = self._fields
        sums = {name: getattr(self, name) + getattr(other, name) for name in added}
        return Usage(
            **sums,
            **{name: max(getattr(self, name), getattr(other, name)) for name in self._fields[-2:]},
        )


class MeasuredEngine:
    """Runs tasks by another engine whose processes see the disk of this one, and measures them.

    Attributes
    ----------
    usage : dict of str to Usage
        What the tasks of every stage used so far.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.usage: dict[str, Usage] = {}

    def run(
        self, stage: str, task: Task, n_tasks: int, *, total: int, on_progress: OnProgress = None
    ) -> None:
        """Run the tasks as the other engine does."""
        with tempfile.TemporaryDirectory() as folder:
            measured = partial(_run_measured, task, Path(folder))
            self._engine.run(stage, measured, n_tasks, total=total, on_progress=on_progress)
            found = [Usage(*json.loads(path.read_text())) for path in Path(folder).glob("*.json")]
        if found:
            self.usage[stage] = reduce(Usage.plus, found, self.usage.get(stage, Usage()))


def _run_measured(task: Task, folder: Path, number: int, advance: Callable[[int], None]) -> None:
    """Run a task; write what it used to a file of its own."""
    counts = [0]

    def count(more: int) -> None:
        counts.append(more)
        advance(more)

    cpu, (read, written) = time.process_time(), _bytes_moved()
    task(number, count)
    cpu, (read_after, written_after) = time.process_time() - cpu, _bytes_moved()
    moved = read_after - read, written_after - written
    used = Usage(1, sum(counts), cpu, *moved, peak_memory() or 0, cpu)
    unfinished = folder / f"{number}.{os.getpid()}"  # the task may run twice at once
    unfinished.write_text(json.dumps(used))
    unfinished.replace(folder / f"{number}.json")


def _bytes_moved() -> tuple[int, int]:
    """Return the bytes that this process has read and written so far."""
    try:
        with open(f"/proc/{os.getpid()}/io") as file:  # noqa: PTH123
            counts = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return 0, 0
    return int(counts["rchar"]), int(counts["wchar"])


def peak_memory() -> int | None:
    """Return the most bytes this process has had in memory; None on systems but Linux."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage would include the memory of the process that started this one
        (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 2**10
    return None
