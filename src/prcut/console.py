"""Where a command's words go: messages to standard error and to a log file, results elsewhere.

On a terminal there are live bars; in a file or a pipe the same appears as plain lines.
"""

from __future__ import annotations

import io
import logging
import signal
import threading
import traceback
import warnings
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, TYPE_CHECKING, Any, cast

from prcut.errors import DataWarning, PRCutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prcut.fitting import FitConfig
    from prcut.progress import Progress
    from prcut.train_state import Record

__all__ = ["Messages", "Terminated"]

_LOGGER = logging.getLogger("prcut")


class Terminated(BaseException):
    """The process was asked to end by SIGTERM."""


class Messages:
    """Shows what the library says while a command runs; as a context manager.

    Parameters
    ----------
    quiet : bool
        Warnings and errors only.
    log : path, optional
        A file that gets everything, with times, whatever is shown.
    """

    def __init__(self, *, quiet: bool = False, log: Path | None = None) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self._quiet = quiet
        self._file = None if log is None else _LogFile(log, encoding="utf-8")
        self._stack = ExitStack()

    def __enter__(self) -> Messages:
        handlers: list[logging.Handler] = [_ConsoleHandler(self.console)]
        handlers[0].setLevel(logging.WARNING if self._quiet else logging.INFO)
        if self._file is not None:
            self._file.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
            handlers.append(self._file)
            self._stack.callback(self._file.close)
        self._stack.enter_context(_logging_to(handlers))
        self._stack.enter_context(_warnings_logged())
        self._stack.enter_context(_sigterm_raised())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._file is not None:
            self._file.handle(_record(logging.ERROR, _last_words(error)))
        self._stack.close()

    def say(self, text: str) -> None:
        """A message, unless quiet."""
        _LOGGER.info("%s", text)

    def warn(self, text: str) -> None:
        """A message, quiet or not."""
        _LOGGER.warning("%s", text)

    @contextmanager
    def progress(self, config: FitConfig | None = None) -> Iterator[_Displays]:
        """Bars or lines that show how far a fit is; the log file gets lines."""
        from rich.console import Console

        from prcut.display import FitDisplay

        with ExitStack() as stack:
            shown = [FitDisplay(config, enabled=not self._quiet, console=self.console)]
            if self._file is not None:
                lines = Console(
                    file=cast(IO[str], _LogLines(self._file)), force_terminal=False, no_color=True
                )
                shown.append(FitDisplay(config, console=lines))
            yield _Displays([stack.enter_context(display) for display in shown])


class _Displays:
    """Several displays of the same run."""

    def __init__(self, displays: list[Any]) -> None:
        self._displays = displays

    def on_progress(self, progress: Progress) -> None:
        for display in self._displays:
            display.on_progress(progress)

    def on_record(self, start: int, record: Record) -> None:
        for display in self._displays:
            display.on_record(start, record)


class _ConsoleHandler(logging.Handler):
    """Lines on the console, above the bars where there are any."""

    def __init__(self, console: Any) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        style = "yellow" if record.levelno >= logging.WARNING else None
        self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


class _LogFile(logging.FileHandler):
    """A log that a full disk does not interrupt: the error that matters is shown already."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class _LogLines(io.TextIOBase):
    """A text file whose lines go to a log."""

    def __init__(self, handler: logging.Handler) -> None:
        self._handler = handler

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for line in filter(str.strip, text.splitlines()):
            self._handler.handle(_record(logging.INFO, line))
        return len(text)


def _record(level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord("prcut", level, "", 0, text, None, None)


def _last_words(error: BaseException) -> str:
    """What a log says of the error that ended the command."""
    if isinstance(error, PRCutError):
        return str(error)
    if isinstance(error, KeyboardInterrupt | Terminated):
        return "interrupted"
    return "".join(traceback.format_exception(error)).rstrip()


@contextmanager
def _logging_to(handlers: list[logging.Handler]) -> Iterator[None]:
    level = _LOGGER.level
    _LOGGER.setLevel(logging.INFO)
    for handler in handlers:
        _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(level)


@contextmanager
def _warnings_logged() -> Iterator[None]:
    """Warnings become lines of the log, without the place in the code that gave them."""

    def log(message: Warning | str, *_: Any, **__: Any) -> None:
        # one warning may list several things: they stay below its first line
        _LOGGER.warning("%s", str(message).replace("\n", "\n  "))

    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        warnings.showwarning = log
        yield


@contextmanager
def _sigterm_raised() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does, with its files in order."""

    def terminate(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
