"""How far the stages of a run are: a small file per stage, which any process may read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from prcut.progress import Progress
from prcut.storage import Folder, finite_number, parsing

__all__ = ["StageStatus", "StatusWriter", "read_status", "training_progress"]

_FOLDER = "status"
# seconds between two writes, and after which a stage that says nothing is taken for dead
_EVERY, _SILENT = 2.0, 60.0


class StageStatus(NamedTuple):
    """A stage of a run.

    Attributes
    ----------
    stage : str
    state : {"done", "running", "failed", "silent"}
        ``"silent"`` has not been heard of for a minute: its process may be dead.
    done, total : int
        Rows, pairs or steps.
    running, failed : int
        Tasks.
    rows_per_second, seconds_left : float
    seconds_ago : float
        Since it was written.
    """

    stage: str
    state: str
    done: int
    total: int
    running: int
    failed: int
    rows_per_second: float
    seconds_left: float
    seconds_ago: float

    def describe(self) -> str:
        """One line.

        >>> StageStatus("gather", "running", 50, 100, 3, 0, 10.0, 5.0, 1.0).describe()
        'gather          running  50% of 100, 3 tasks running, 10 rows/s, 5 s left'
        """
        words = [f"{100 * self.done // max(1, self.total)}% of {self.total:,}"]
        if self.state == "running":
            words.append(f"{self.running} tasks running")
        if self.failed:
            words.append(f"{self.failed} tasks failed")
        if self.rows_per_second > 0:
            words.append(f"{self.rows_per_second:,.0f} rows/s")
            if self.state == "running":
                words.append(f"{self.seconds_left:,.0f} s left")
        if self.state == "silent":
            words.append(f"last heard of {self.seconds_ago:,.0f} s ago: it may be dead")
        return f"{self.stage:<15} {self.state:<8} {', '.join(words)}"


class StatusWriter:
    """Writes how far a stage is, every two seconds at most."""

    def __init__(self, run: str | Path | Folder) -> None:
        self._folder = (run if isinstance(run, Folder) else Folder(run)) / _FOLDER
        self._written: dict[str, float] = {}

    def on_progress(self, progress: Progress) -> None:
        """Note what a stage reports."""
        now = time.time()
        is_last = progress.done >= progress.total or (progress.failed and not progress.running)
        if not is_last and now - self._written.get(progress.stage, 0.0) < _EVERY:
            return
        self._written[progress.stage] = now
        content = {**progress._asdict(), "time": now}
        self._folder.write_json(f"{progress.stage.replace(' ', '-')}.json", content)

    def also(self, on_progress: Callable[[Progress], None] | None) -> Callable[[Progress], None]:
        """Tells the files and the caller."""

        def tell(progress: Progress) -> None:
            self.on_progress(progress)
            if on_progress is not None:
                on_progress(progress)

        return tell


def training_progress(n_starts: int, n_steps: int, start: int, step: int, speed: float) -> Progress:
    """Steps of all starts together; one that stalls ends early.

    >>> training_progress(4, 100, 1, 50, 10.0)[:5]
    ('train', 150, 400, 10.0, 25.0)
    """
    done, total = start * n_steps + step, n_starts * n_steps
    return Progress("train", done, total, speed, (total - done) / max(speed, 1e-9))


def read_status(run: str | Path | Folder) -> list[StageStatus]:
    """The stages of a run that have begun, the earliest first."""
    folder = (run if isinstance(run, Folder) else Folder(run)) / _FOLDER
    now = time.time()
    found = []
    for name in folder.names():
        content = folder.read_json(name)
        with parsing(f"{folder.path}/{name}"):
            stage, written = content["stage"], finite_number(content["time"])
            numbers = {field: finite_number(content[field]) for field in Progress._fields[1:]}
            if not isinstance(stage, str) or not stage.isprintable():
                raise ValueError("stage is not a line of text")
            found.append((written, _stage(Progress(stage, **numbers), now - written)))
    return [stage for _, stage in sorted(found)]


def _stage(progress: Progress, seconds_ago: float) -> StageStatus:
    if progress.done >= progress.total:
        state = "done"
    elif progress.failed and not progress.running:
        state = "failed"
    else:
        state = "running" if seconds_ago < _SILENT else "silent"
    return StageStatus(
        progress.stage,
        state,
        progress.done,
        progress.total,
        progress.running if state == "running" else 0,
        progress.failed,
        progress.rows_per_second,
        progress.seconds_left,
        seconds_ago,
    )
