"""Messages of a command: to standard error and to a log file.

A terminal shows live bars; a file or a pipe gets plain lines instead.
"""

from __future__ import annotations

import errno
import logging
import signal
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.text import Text

from prcut.errors import DataWarning, PRCutError

if TYPE_CHECKING:
    from prcut.fit.config import FitConfig
    from prcut.ui.progress_bars import FitDisplay

_LOGGER = logging.getLogger("prcut")
# lines for the log file only
_FILE_ONLY = logging.getLogger("prcut.log_file")
# messages of torch and the loader of modules when memory is short
_NO_MEMORY = ("can't allocate memory", "failed to map segment")
# messages of Python and pyarrow when no thread can start
_NO_THREAD = ("can't start new thread", "Failed to launch worker thread")


class Terminated(BaseException):
    """The process received SIGTERM."""


class Messages:
    """Messages of a command to the person who runs it; ``again`` is the command that resumes it."""

    def __init__(self, again: str, *, quiet: bool) -> None:
        self.again = again
        self.handlers: list[logging.Handler] = []
        self._console = Console(stderr=True, soft_wrap=True)
        self._has_bars = self._console.is_terminal and not quiet
        shown = _Lines(self._console)
        shown.setLevel(logging.WARNING if quiet else logging.INFO)
        shown.addFilter(lambda record: record.name != _FILE_ONLY.name)
        self._add(shown)

    def say(self, text: str) -> None:
        """Show a message unless the command is quiet."""
        _LOGGER.info("%s", text)

    def warn(self, text: str) -> None:
        """Show a message even if the command is quiet."""
        _LOGGER.warning("%s", text)

    def progress(self, config: FitConfig | None = None) -> FitDisplay:
        """Return a display of the stages of a fit: bars on a terminal, else lines."""
        from prcut.ui.progress_bars import FitDisplay

        log = _FILE_ONLY if self._has_bars else _LOGGER
        return FitDisplay(config, enabled=self._has_bars, console=self._console, log=log.info)

    def log_to(self, path: Path) -> None:
        """Write every message to a file as well, with its time."""
        handler = logging.FileHandler(path, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        self._add(handler)

    def _add(self, handler: logging.Handler) -> None:
        self.handlers.append(handler)
        _LOGGER.addHandler(handler)


@contextmanager
def open_messages(again: str, *, quiet: bool = False) -> Iterator[Messages]:
    """Show the library's log and all warnings while a command runs.

    SIGTERM stops the command as Ctrl-C does, and leaves its files in order.
    """
    messages, level = Messages(again, quiet=quiet), _LOGGER.level
    is_main = threading.current_thread() is threading.main_thread()
    earlier = signal.signal(signal.SIGTERM, _terminate) if is_main else None
    _LOGGER.setLevel(logging.INFO)
    # a full disk does not interrupt the log: the console shows the error
    raises, logging.raiseExceptions = logging.raiseExceptions, False
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        warnings.showwarning = _log_warning
        try:
            yield messages
        except (KeyboardInterrupt, Terminated):
            messages.warn(f"interrupted; resume with: {messages.again}")
            raise
        except Exception as error:
            if lack_of_room(error) is not None:
                messages.warn(f"free some space or memory, then resume with: {messages.again}")
            is_worded = isinstance(error, PRCutError)
            _FILE_ONLY.error("%s", error if is_worded else traceback.format_exc().rstrip())
            raise
        finally:
            _LOGGER.setLevel(level)
            logging.raiseExceptions = raises
            for handler in messages.handlers:
                _LOGGER.removeHandler(handler)
                with suppress(OSError):
                    handler.close()
            if is_main:
                signal.signal(signal.SIGTERM, earlier)


def lack_of_room(error: BaseException | None) -> str | None:
    """Name the full resource, disk or memory, if one caused an error; else return None."""
    if error is None:
        return None
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk" + (f": {error.filename}" if error.filename else "")
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return "out of memory; lower --memory"
    if any(words in str(error) for words in _NO_THREAD):
        return "cannot start a thread: out of memory, or the limit of `ulimit -u` is reached"
    return lack_of_room(error.__cause__)


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


def _log_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Log only the text of a warning; logging.captureWarnings would add lines of code."""
    # a warning may list several things: indent them below its first line
    _LOGGER.warning("%s", str(message).replace("\n", "\n  "))


def _terminate(*_: object) -> NoReturn:
    raise Terminated
