"""Messages of a command: to standard error and to a log file.

A terminal shows live bars; a file or a pipe gets plain lines instead.
"""

from __future__ import annotations

import logging
import signal
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from rich.console import Console
from rich.text import Text

from prcut.errors import DataWarning, PRCutError

if TYPE_CHECKING:
    from prcut.fit.config import FitConfig
    from prcut.ui.progress_bars import FitDisplay

_LOGGER = logging.getLogger("prcut")
# for what the log file holds and the console does not show
_FILE_ONLY = logging.getLogger("prcut.log_file")


class Terminated(BaseException):
    """The process received SIGTERM."""


class Messages(NamedTuple):
    """Messages of a command to the person who runs it."""

    console: Console
    has_bars: bool

    def say(self, text: str) -> None:
        """Show a message unless the command is quiet."""
        _LOGGER.info("%s", text)

    def warn(self, text: str) -> None:
        """Show a message even if the command is quiet."""
        _LOGGER.warning("%s", text)

    def progress(self, config: FitConfig | None = None) -> FitDisplay:
        """Return a display of the stages of a fit: bars on a terminal, else lines."""
        from prcut.ui.progress_bars import FitDisplay

        log = _FILE_ONLY if self.has_bars else _LOGGER
        return FitDisplay(config, enabled=self.has_bars, console=self.console, log=log.info)


@contextmanager
def open_messages(
    *, quiet: bool = False, log: Path | None = None, loggers: tuple[str, ...] = ("prcut",)
) -> Iterator[Messages]:
    """Show what the library logs, and all warnings, while a command runs.

    The file ``log`` receives everything. A program beside prcut adds its own ``loggers``. SIGTERM
    stops the command as Ctrl-C does, with its files in order.
    """
    console = Console(stderr=True, soft_wrap=True)
    shown = _Lines(console)
    shown.setLevel(logging.WARNING if quiet else logging.INFO)
    shown.addFilter(lambda record: record.name != _FILE_ONLY.name)
    handlers: list[logging.Handler] = [shown]
    if log is not None:
        handlers.append(_LogFile(log, encoding="utf-8"))
        handlers[-1].setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    with ExitStack() as stack:
        for logger in map(logging.getLogger, loggers):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.INFO)
            for handler in handlers:
                logger.addHandler(handler)
                stack.callback(logger.removeHandler, handler)
        for handler in handlers:
            stack.callback(handler.close)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always", DataWarning)
        warnings.showwarning = _log_warning
        if threading.current_thread() is threading.main_thread():
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _terminate))
        try:
            yield Messages(console, has_bars=console.is_terminal and not quiet)
        except BaseException as error:
            text = "interrupted"
            if isinstance(error, Exception):
                text = "".join(traceback.format_exception(error)).rstrip()
            _FILE_ONLY.error("%s", str(error) if isinstance(error, PRCutError) else text)
            raise


class _Lines(logging.Handler):
    """Print records as lines, above the bars."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = Text(record.getMessage())
        if record.levelno >= logging.WARNING:
            text = Text(f"{record.levelname.lower()}: {text}", style="yellow")
        self._console.print(text)


class _LogFile(logging.FileHandler):
    """A log that a full disk does not interrupt: the error that matters is shown already."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def _log_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Log only the text of a warning; logging.captureWarnings would add lines of code."""
    # a warning may list several things: indent them below its first line
    _LOGGER.warning("%s", str(message).replace("\n", "\n  "))


def _terminate(*_: object) -> NoReturn:
    raise Terminated
