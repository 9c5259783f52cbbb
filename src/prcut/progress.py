"""How far a long stage is. The library reports it; showing it is left to the caller."""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Progress", "Reporter"]

_LOG = logging.getLogger(__name__)


class Progress(NamedTuple):
    """How far a stage is, in rows or pairs; ``running`` and ``failed`` count tasks."""

    stage: str
    done: int
    total: int
    rows_per_second: float
    seconds_left: float
    running: int = 1
    failed: int = 0


class Reporter:
    """Counts what is done and tells how fast it goes.

    >>> reporter = Reporter("scatter", 10, lambda progress: print(progress.done, progress.total))
    >>> reporter.advance(4)
    4 10
    """

    def __init__(
        self, stage: str, total: int, on_progress: Callable[[Progress], None] | None
    ) -> None:
        self._stage, self._total, self._on_progress = stage, total, on_progress
        self._done, self._start = 0, time.monotonic()

    def advance(self, count: int, *, running: int = 1, failed: int = 0) -> None:
        """Say that so many more are done."""
        self._done += count
        speed = self._done / max(time.monotonic() - self._start, 1e-9)
        left = (self._total - self._done) / max(speed, 1e-9)
        _LOG.debug("%s: %d of %d", self._stage, self._done, self._total)
        if self._on_progress is not None:
            self._on_progress(
                Progress(self._stage, self._done, self._total, speed, left, running, failed)
            )
