"""What the commands share: messages, models, engines, and how a command ends."""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from prcut.errors import CorruptFileError, InvalidInputError, PRCutError

if TYPE_CHECKING:
    from prcut.runtime.engine import Engine
    from prcut.training.assigner.saved import LoadedModel
    from prcut.ui.cli.console import Messages

# exit codes
_DONE, _UNEXPECTED, _WRONG, _CORRUPT, _NO_ROOM, _INTERRUPTED, _TERMINATED = 0, 1, 2, 3, 4, 130, 143
# messages of torch and the loader of modules, and of Python and pyarrow
_NO_MEMORY = ("can't allocate memory", "failed to map segment")
_NO_THREAD = ("can't start new thread", "Failed to launch worker thread")
# what a command that was given --json has found so far; None where results are lines
_COLLECTED: ContextVar[dict[str, Any] | None] = ContextVar("collected", default=None)


class Terminated(BaseException):
    """The process received SIGTERM."""


def run_app(commands: typer.Typer, name: str, given: list[str]) -> int:
    """Run a program's command and return its exit code; an error is one line on standard error."""
    try:
        return int(
            commands(given or ["--help"], prog_name=name, standalone_mode=False, obj=given) or _DONE
        )
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


@contextmanager
def messages_of(quiet: bool, again: str, **where: Any) -> Iterator[Messages]:
    """Show the messages of a command that ``again`` resumes if it is interrupted."""
    from prcut.ui.cli.console import open_messages

    with open_messages(quiet=quiet, **where) as messages, _sigterm_raised():
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
def _sigterm_raised() -> Iterator[None]:
    """Let SIGTERM stop the command as Ctrl-C does, with its files in order."""

    def terminate(*_: object) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def command_again(ctx: typer.Context, *more: str) -> str:
    """Return the command line that resumes this command."""
    given = list(ctx.obj if isinstance(ctx.obj, list) else sys.argv[1:])
    given += [option for option in more if option not in given]
    program = ctx.find_root().info_name or "prcut"
    return shlex.join([*program.split(), *given])


def echo(results: Mapping[str, Any], text: str | None = None) -> None:
    """Print the results of a command: the one way to write to standard output.

    Results are one name=value per line, or ``text`` where a command has a table of its own. With
    ``--json``, which :func:`prcut.ui.cli.options.with_options` gives to every command, all results
    of the command become one object instead. Pass numbers as numbers, paths as texts, and names
    with underscores; a value may be a list or a mapping. Everything else goes to standard error.
    """
    collected = _COLLECTED.get()
    if collected is not None:
        collected.update(results)
    elif text is not None:
        typer.echo(text)
    else:
        for name, value in results.items():
            typer.echo(f"{name}={_as_text(value)}")


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


def _as_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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
    from prcut.runtime.folder import Folder

    folder = Folder(path)
    if not folder.exists("plan.json"):
        return path
    from prcut.pipeline.run_folder import check_finished, read_plan

    read_plan(folder)
    check_finished(folder)
    return f"{path.rstrip('/')}/model"


def remove_earlier(path: str, data: str, *kinds: str) -> None:
    """Remove what an earlier call left at a path; refuse anything that is not one of its kinds."""
    from prcut.runtime.folder import Folder, absolute_path
    from prcut.ui.cli.info import find_kind

    folder = Folder(path)
    folder.check_is_no_file()
    if not folder.names(folders=True):
        return
    if f"{absolute_path(data)}/".startswith(f"{absolute_path(path)}/"):
        raise InvalidInputError(f"{data} lies in {path}, which --overwrite would remove.")
    if find_kind(folder) not in kinds:
        raise InvalidInputError(
            f"{path} holds no {' or '.join(kinds)}, and --overwrite removes nothing else; choose "
            "another --out."
        )
    folder.delete()


def load(path: str) -> LoadedModel:
    """Load the model of a run, or the model at a path."""
    from prcut.training.assigner.saved import load_model

    return load_model(model_path(path))


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
