"""Where tasks run: here, one after the other, or wherever another engine sends them.

A stage is a number of independent tasks. Each writes its own files, whole or not at all, finds what
an earlier run has written, and may run twice at once: so an engine is free to send it anywhere, and
to send it again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from prcut.memory import peak_memory, release_memory
from prcut.progress import Progress, Reporter

__all__ = ["Engine", "Here", "Task", "Usage", "measured"]

# does the work of a number, and says of how many rows as it goes
Task = Callable[[int, Callable[[int], None]], None]


class Usage(NamedTuple):
    """What tasks took.

    Attributes
    ----------
    tasks, rows : int
    seconds, cpu_seconds : float
        Summed over tasks.
    read, written : int
        Bytes that went through files, from memory or not; 0 where the system does not count them.
    peak_bytes : int
        Largest resident size of a process that ran one.
    """

    tasks: int = 0
    rows: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    read: int = 0
    written: int = 0
    peak_bytes: int = 0

    def plus(self, other: Usage) -> Usage:
        """Of both together.

        >>> Usage(1, 10, peak_bytes=5).plus(Usage(1, 20, peak_bytes=3))[:2]
        (2, 30)
        """
        sums = {name: getattr(self, name) + getattr(other, name) for name in self._fields[:-1]}
        return Usage(**sums, peak_bytes=max(self.peak_bytes, other.peak_bytes))


class Engine(Protocol):
    """Runs the tasks of a stage."""

    usage: dict[str, Usage]
    """By stage, of all that this engine ran."""

    def run(
        self,
        stage: str,
        task: Task,
        n_tasks: int,
        *,
        total: int,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Run ``task`` with every number below ``n_tasks``; ``total`` is the rows of them all."""

    def train(self, job: Callable[[], None]) -> None:
        """Run a job in all the processes that train together."""


class Here:
    """In this process, one task after the other.

    >>> here = Here()
    >>> here.run("count", lambda number, advance: advance(10 * number), 3, total=30)
    >>> here.usage["count"].rows
    30
    """

    def __init__(self) -> None:
        self.usage: dict[str, Usage] = {}

    def run(
        self,
        stage: str,
        task: Task,
        n_tasks: int,
        *,
        total: int,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """As :meth:`Engine.run`; the first error ends it."""
        report = Reporter(stage, total, on_progress)
        for number in range(n_tasks):
            used = measured(task, number, report.advance)
            self.usage[stage] = self.usage.get(stage, Usage()).plus(used)

    def train(self, job: Callable[[], None]) -> None:
        """The job, in this process; others that torchrun started do the same."""
        job()


def measured(task: Task, number: int, advance: Callable[[int], None] | None = None) -> Usage:
    """Run a task and say what it took."""
    rows = 0

    def count(more: int) -> None:
        nonlocal rows
        rows += more
        if advance is not None:
            advance(more)

    start, cpu, (read, written) = time.monotonic(), time.process_time(), _bytes_moved()
    task(number, count)
    release_memory()
    read_after, written_after = _bytes_moved()
    return Usage(
        tasks=1,
        rows=rows,
        seconds=time.monotonic() - start,
        cpu_seconds=time.process_time() - cpu,
        read=read_after - read,
        written=written_after - written,
        peak_bytes=peak_memory() or 0,
    )


def _bytes_moved() -> tuple[int, int]:
    """Bytes that this process has read and written so far."""
    try:
        with open(f"/proc/{os.getpid()}/io") as file:  # noqa: PTH123
            counts = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return 0, 0
    return int(counts["rchar"]), int(counts["wchar"])
