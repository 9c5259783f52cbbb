"""Progress of long stages: reported to a callback, and kept in files for other processes to read.

The library only reports progress; showing it is left to the caller.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from prcut.runtime.folder import Folder, finite_number, parsing

_LOG = logging.getLogger(__name__)
# seconds between two writes of a status, and after which a stage that is not heard of is silent
_WRITE_SECONDS, _SILENT_SECONDS = 2.0, 60.0


class Progress(NamedTuple):
    """Progress of a stage, in rows, pairs or steps; ``running`` and ``failed`` count tasks."""

    stage: str
    done: int
    total: int
    rows_per_second: float
    seconds_left: float
    running: int = 1
    failed: int = 0


OnProgress = Callable[[Progress], None] | None


class Reporter:
    """Counts what is done, and reports it with its speed."""

    def __init__(self, stage: str, total: int, on_progress: OnProgress) -> None:
        self._stage, self._total, self._on_progress = stage, total, on_progress
        self._done, self._start = 0, time.monotonic()

    def advance(self, count: int, *, running: int = 1, failed: int = 0) -> None:
        """Report that ``count`` more are done."""
        self._done += count
        speed = self._done / max(time.monotonic() - self._start, 1e-9)
        left = (self._total - self._done) / max(speed, 1e-9)
        _LOG.debug("%s: %d of %d", self._stage, self._done, self._total)
        if self._on_progress is not None:
            self._on_progress(
                Progress(self._stage, self._done, self._total, speed, left, running, failed)
            )


class Step(NamedTuple):
    """Something that was done, the seconds it took, and the objective reached, if one was."""

    name: str
    seconds: float
    objective: float | None = None


class StepLog(list[Step]):
    """The steps of a fit, in order: call it at the end of each.

    >>> log = StepLog()
    >>> log("10 neighbours")
    >>> [step.name for step in log]
    ['10 neighbours']
    """

    def __init__(self, on_step: Callable[[Step], None] | None = None) -> None:
        super().__init__()
        self._on_step, self._last = on_step, time.perf_counter()

    def __call__(self, name: str, objective: float | None = None) -> None:
        """Add a step that has just ended."""
        now = time.perf_counter()
        step = Step(name, now - self._last, objective)
        self._last = now
        self.append(step)
        _LOG.info("%s%s", name, "" if objective is None else f": objective {objective:.4f}")
        if self._on_step is not None:
            self._on_step(step)


def training_progress(n_starts: int, n_steps: int, start: int, step: int, speed: float) -> Progress:
    """Return the progress of training: steps of all starts together, though some stop early.

    >>> training_progress(4, 100, 1, 50, 10.0)[:5]
    ('train', 150, 400, 10.0, 25.0)
    """
    done, total = start * n_steps + step, n_starts * n_steps
    return Progress("train", done, total, speed, (total - done) / max(speed, 1e-9))


class StageStatus(NamedTuple):
    """The last progress of a stage, and how many seconds ago it was written."""

    progress: Progress
    seconds_ago: float

    @property
    def state(self) -> str:
        """``"done"``, ``"failed"``, ``"running"`` or, unheard of for a minute, ``"silent"``."""
        if self.progress.done >= self.progress.total:
            return "done"
        if self.progress.failed and not self.progress.running:
            return "failed"
        return "running" if self.seconds_ago < _SILENT_SECONDS else "silent"

    def describe(self) -> str:
        """Describe the stage in one line.

        >>> StageStatus(Progress("gather", 50, 100, 10.0, 5.0, 3), seconds_ago=1.0).describe()
        'gather          running  50% of 100, 3 tasks running, 10 rows/s, 5 s left'
        """
        stage, done, total, speed, seconds_left, running, failed = self.progress
        parts = {
            f"{100 * done // max(1, total)}% of {total:,}": True,
            f"{running} tasks running": self.state == "running",
            f"{failed} tasks failed": failed,
            f"{speed:,.0f} rows/s": speed > 0,
            f"{seconds_left:,.0f} s left": speed > 0 and self.state == "running",
            f"last heard of {self.seconds_ago:,.0f} s ago: it may be dead": self.state == "silent",
        }
        words = ", ".join(words for words, is_said in parts.items() if is_said)
        return f"{stage:<15} {self.state:<8} {words}"


class StatusWriter:
    """Writes the progress of every stage to a file of its own, every two seconds at most."""

    def __init__(self, run: str | Path | Folder) -> None:
        self._folder = _status_folder(run)
        self._written: dict[str, float] = {}

    def on_progress(self, progress: Progress) -> None:
        """Write the progress of a stage, unless that was done a moment ago."""
        now = time.time()
        is_last = progress.done >= progress.total or (progress.failed and not progress.running)
        if not is_last and now - self._written.get(progress.stage, 0.0) < _WRITE_SECONDS:
            return
        self._written[progress.stage] = now
        content = {**progress._asdict(), "time": now}
        self._folder.write_json(f"{progress.stage.replace(' ', '-')}.json", content)

    def also(self, on_progress: OnProgress) -> Callable[[Progress], None]:
        """Return a callback that writes the progress and also calls ``on_progress``."""

        def write_and_call(progress: Progress) -> None:
            self.on_progress(progress)
            if on_progress is not None:
                on_progress(progress)

        return write_and_call


def read_status(run: str | Path | Folder) -> list[StageStatus]:
    """Read the status of every stage of a run that has begun, the earliest first."""
    folder = _status_folder(run)
    now = time.time()
    found = []
    for name in folder.names():
        content = folder.read_json(name)
        with parsing(f"{folder.path}/{name}"):
            stage, written = content["stage"], finite_number(content["time"])
            numbers = {field: finite_number(content[field]) for field in Progress._fields[1:]}
            if not isinstance(stage, str) or not stage.isprintable():
                raise ValueError("stage is not a line of text")
            found.append(StageStatus(Progress(stage, **numbers), now - written))
    return sorted(found, key=lambda stage: (-stage.seconds_ago, stage.progress.stage))


def _status_folder(run: str | Path | Folder) -> Folder:
    return (run if isinstance(run, Folder) else Folder(run)) / "status"
