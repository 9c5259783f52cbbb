"""Where the messages of a command go: to standard error and to a log file.

On a terminal there are live bars; a file or a pipe gets plain lines instead.
"""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler
from rich.text import Text

from prcut.errors import DataWarning, PRCutError

if TYPE_CHECKING:
    from prcut.pipeline.config import FitConfig
    from prcut.ui.progress_bars import FitDisplay

_LOGGER = logging.getLogger("prcut")
# for what the log file holds and the console does not show
_FILE_ONLY = logging.getLogger("prcut.log_file")


class Messages(NamedTuple):
    """What a command says to the person who runs it."""

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

    The file ``log`` receives everything. A program beside prcut adds its own ``loggers``.
    """
    console = Console(stderr=True, soft_wrap=True)
    shown = _Lines(console=console, highlighter=NullHighlighter(), keywords=[])
    shown.setLevel(logging.WARNING if quiet else logging.INFO)
    shown.addFilter(lambda record: record.name != _FILE_ONLY.name)
    handlers: list[logging.Handler] = [shown]
    if log is not None:
        handlers.append(_LogFile(log, encoding="utf-8"))
        handlers[-1].setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    with _logging_to(handlers, loggers), _warnings_logged():
        try:
            yield Messages(console, has_bars=console.is_terminal and not quiet)
        except BaseException as error:
            _FILE_ONLY.error("%s", _describe(error))
            raise


class _Lines(RichHandler):
    """Print records as lines, above the bars; rich's own table would wrap them."""

    def render(self, *, record: logging.LogRecord, **_: Any) -> Text:
        if record.levelno < logging.WARNING:
            return Text(record.getMessage())
        return Text(f"{record.levelname.lower()}: {record.getMessage()}", style="yellow")


class _LogFile(logging.FileHandler):
    """A log that a full disk does not interrupt: the error that matters is shown already."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def _describe(error: BaseException) -> str:
    """Return what the log says about the error that stopped the command."""
    if isinstance(error, PRCutError):
        return str(error)
    if not isinstance(error, Exception):
        return "interrupted"
    return "".join(traceback.format_exception(error)).rstrip()


@contextmanager
def _logging_to(handlers: list[logging.Handler], names: tuple[str, ...]) -> Iterator[None]:
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in names}
    for logger in levels:
        logger.setLevel(logging.INFO)
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
            for handler in handlers:
                logger.removeHandler(handler)
        for handler in handlers:
            handler.close()


@contextmanager
def _warnings_logged() -> Iterator[None]:
    """Log only the text of warnings; logging.captureWarnings would add lines of code."""

    def log(message: Warning | str, *_: Any, **__: Any) -> None:
        # a warning may list several things: indent them below its first line
        _LOGGER.warning("%s", str(message).replace("\n", "\n  "))

    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        warnings.showwarning = log
        yield
