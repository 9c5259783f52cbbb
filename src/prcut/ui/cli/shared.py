"""What the commands share: messages, results, models, and how a command ends."""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import typer

from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.ui.cli.console import Messages, Terminated, open_messages

if TYPE_CHECKING:
    from prcut.runtime.engine import Engine
    from prcut.training.assigner.saved import LoadedModel
    from prcut.ui.progress_bars import FitDisplay

# exit codes
_DONE = 0
_UNEXPECTED = 1
_WRONG = 2
_CORRUPT = 3
_NO_ROOM = 4
_INTERRUPTED = 130
_TERMINATED = 143
# messages of torch and the loader of modules when memory is short
_NO_MEMORY = ("can't allocate memory", "failed to map segment")
# messages of Python and pyarrow when no thread can start
_NO_THREAD = ("can't start new thread", "Failed to launch worker thread")
# results of a command with --json so far; None where results are printed as lines
_COLLECTED: ContextVar[dict[str, Any] | None] = ContextVar("collected", default=None)
# the command line that was given
_GIVEN: ContextVar[tuple[str, ...]] = ContextVar("given", default=("prcut",))


def run_app(commands: typer.Typer, name: str, given: list[str]) -> int:
    """Run a program's command and return its exit code; an error is one line on standard error."""
    _GIVEN.set((*name.split(), *given))
    try:
        return int(commands(given or ["--help"], prog_name=name, standalone_mode=False) or _DONE)
    except (KeyboardInterrupt, typer.Abort):
        code, message = _INTERRUPTED, "interrupted"
    except Terminated:
        code, message = _TERMINATED, "terminated"
    except Exception as error:
        code, message = _explain(error)
        if code == _UNEXPECTED and os.environ.get("PRCUT_DEBUG"):
            raise
        typer.echo(f"error: {message}", err=True)
    if "--json" in given:
        _print_json({"error": message, "exit_code": code})
    return code


def _explain(error: Exception) -> tuple[int, str]:
    """Return the exit code and the message of an error."""
    if (lack := lack_of_room(error)) is not None:
        return _NO_ROOM, lack
    if isinstance(error, PRCutError):
        return _CORRUPT if isinstance(error, CorruptFileError) else _WRONG, str(error)
    # every version of typer has it, whichever click it carries
    if isinstance(error, typer.BadParameter.__bases__[0]):
        usage: Any = error
        command = usage.ctx.command_path if usage.ctx else "prcut"
        return _WRONG, f"{usage.format_message()} Try: {command} --help"
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    return _UNEXPECTED, f"{summary} (unexpected; PRCUT_DEBUG=1 shows the traceback)"


def lack_of_room(error: BaseException | None) -> str | None:
    """Say what is full, disk or memory, if that is what caused an error."""
    if error is None:
        return None
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk" + (f": {error.filename}" if error.filename else "")
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return "out of memory; lower --memory"
    if any(words in str(error) for words in _NO_THREAD):
        return "cannot start a thread: out of memory, or the limit of `ulimit -u` is reached"
    return lack_of_room(error.__cause__)


def command_again(*more: str) -> str:
    """Return the command line that resumes the command, with ``more`` options."""
    given = _GIVEN.get()
    return shlex.join([*given, *(option for option in more if option not in given)])


@contextmanager
def messages_of(quiet: bool, again: str | None = None, **where: Any) -> Iterator[Messages]:
    """Show the messages of a command that ``again`` resumes if it is interrupted."""
    again = again or command_again()
    with open_messages(quiet=quiet, **where) as messages:
        try:
            yield messages
        except (KeyboardInterrupt, Terminated):
            messages.warn(f"interrupted; resume with: {again}")
            raise
        except Exception as error:
            if lack_of_room(error) is not None:
                messages.warn(f"free some space or memory, then resume with: {again}")
            raise


@contextmanager
def progress_of(quiet: bool) -> Iterator[FitDisplay]:
    """Show the messages and the progress of a command."""
    with messages_of(quiet) as messages, messages.progress() as display:
        yield display


def echo(results: Mapping[str, Any], text: str | None = None) -> None:
    """Print the results of a command: the one way to write to standard output.

    Results are one name=value per line, or ``text`` where a command has a table of its own. With
    ``--json``, which every command has, all its results become one object instead. Pass numbers as
    numbers, paths as texts, and names with underscores; a value may be a list or a mapping.
    """
    collected = _COLLECTED.get()
    if collected is not None:
        collected.update(results)
    elif text is not None:
        typer.echo(text)
    else:
        for name, value in results.items():
            typer.echo(f"{name}={value}")


@contextmanager
def results_printed(as_json: bool) -> Iterator[None]:
    """Print what a command gives to :func:`echo`: at once, or as one object when it is done."""
    collected: dict[str, Any] | None = {} if as_json else None
    token = _COLLECTED.set(collected)
    try:
        yield
    finally:
        _COLLECTED.reset(token)
    if collected is not None:
        _print_json(collected)


def _print_json(content: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(_plain(content), ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a value in JSON's types; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if hasattr(value, "tolist"):  # NumPy's
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def model_path(path: str) -> str:
    """Return the path of a run's model, or the path itself if it is not that of a run."""
    from prcut.runs.folder import check_finished, read_plan
    from prcut.runtime.folder import Folder

    folder = Folder(path)
    if not folder.exists("plan.json"):
        return path
    read_plan(folder)
    check_finished(folder)
    return f"{path.rstrip('/')}/model"


def load(path: str) -> LoadedModel:
    """Load the model of a run, or the model at a path."""
    from prcut.training.assigner.saved import load_model

    return load_model(model_path(path))


def remove_earlier(path: str, data: str, kind: str) -> None:
    """Remove the run or labels that an earlier call left at a path; reject anything else."""
    from prcut.runtime.folder import Folder, absolute_path
    from prcut.ui.cli.info import find_kind

    folder = Folder(path)
    folder.check_is_no_file()
    if not folder.names(folders=True):
        return
    if f"{absolute_path(data)}/".startswith(f"{absolute_path(path)}/"):
        raise InvalidInputError(f"{data} lies in {path}, which --overwrite would remove.")
    if find_kind(folder) != kind:
        raise InvalidInputError(
            f"{path} holds no {kind}, and --overwrite removes nothing else; choose another --out."
        )
    folder.delete()


def open_engine(name: str, address: str | None = None) -> Engine:
    """Return the engine that runs the tasks of a command."""
    if name == "ray":
        from prcut.runtime.ray_engine import RayEngine

        return RayEngine(address)
    if name != "local":
        raise InvalidInputError(f"engine={name!r} must be 'local' or 'ray'.")
    if address is not None:
        raise InvalidInputError(f"{address=} is that of a Ray cluster; add --engine ray.")
    from prcut.runtime.engine import LocalEngine

    return LocalEngine()
