"""What the commands share: run folders, messages, models."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from prcut.console import Messages, Terminated
from prcut.errors import InvalidInputError

if TYPE_CHECKING:
    from prcut.engine import Engine
    from prcut.level_folder import LoadedLevels
    from prcut.model_folder import LoadedModel

__all__ = [
    "check_run",
    "command_again",
    "echo",
    "forgotten_if_refused",
    "is_leader",
    "lack_of_room",
    "load",
    "log_file",
    "messages_of",
    "model_path",
    "open_engine",
    "parse_numbers",
    "write_labels",
]

# words of torch and the loader of modules, and of Python and pyarrow
_NO_MEMORY = ("can't allocate memory", "failed to map segment")
_NO_THREAD = ("can't start new thread", "Failed to launch worker thread")


def is_leader() -> bool:
    """Of the processes that torchrun started, before they have joined."""
    return os.environ.get("RANK", "0") == "0"


def echo(results: dict[str, str]) -> None:
    """Results, one name=value a line."""
    for name, value in results.items():
        typer.echo(f"{name}={value}")


def command_again(ctx: typer.Context, *more: str) -> str:
    """The command that goes on with this one."""
    given = list(ctx.obj if isinstance(ctx.obj, list) else sys.argv[1:])
    return shlex.join(["prcut", *given, *(option for option in more if option not in given)])


def parse_numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    """Numbers from a text such as ``512,512``."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) for part in parts):
        raise InvalidInputError(f"{name}={text!r} must be numbers such as 512,512.")
    return tuple(map(int, parts))


def log_file(path: str) -> Path | None:
    """The log of a run on a local disk."""
    if "://" in path or not is_leader():
        return None
    Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path) / "log.txt"


@contextmanager
def messages_of(quiet: bool, again: str, log: Path | None = None) -> Iterator[Messages]:
    """Messages of a command that ``again`` goes on with when it is interrupted."""
    with Messages(quiet=quiet, log=log) as messages:
        try:
            yield messages
        except (KeyboardInterrupt, Terminated):
            messages.warn(f"interrupted; go on with: {again}")
            raise
        except Exception as error:
            if lack_of_room(error) is not None:
                messages.warn(f"when there is room, go on with: {again}")
            raise


def lack_of_room(error: BaseException | None) -> str | None:
    """What is full, disk or memory, where that is what an error says, or what caused it."""
    if error is None:
        return None
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space is left on the disk" + (f": {error.filename}" if error.filename else "")
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return "out of memory; a smaller --memory takes less"
    if any(words in str(error) for words in _NO_THREAD):
        return "no thread can be started: out of memory, or of what `ulimit -u` allows"
    return lack_of_room(error.__cause__)


@contextmanager
def forgotten_if_refused(path: str) -> Iterator[None]:
    """Leave no run folder behind that was only made to find that its input cannot be used."""
    is_new = not Path(path).exists()
    try:
        yield
    except InvalidInputError:
        made = list(Path(path).glob("*")) if is_new else []
        if made and {one.name for one in made} <= {"plan.json", "log.txt"}:
            for one in made:
                one.unlink()
            Path(path).rmdir()
        raise


def check_run(path: str, resume: bool, again: str) -> None:
    """Refuse a folder that holds something, unless it is a run that is to go on."""
    from prcut.storage import Folder

    folder = Folder(path)
    folder.check_is_no_file()
    if folder.exists("plan.json"):
        state = "finished" if folder.exists("result.json") else "begun"
        if not resume:
            raise InvalidInputError(
                f"{path} holds a run that was {state}; go on with it by `{again}`, or choose "
                "another --out."
            )
        return
    # a run that was killed before its plan was written leaves only its log
    if set(folder.names(folders=True)) - {"log.txt"}:
        raise InvalidInputError(f"{path} holds other files; choose another --out.")


def model_path(path: str) -> str:
    """The model of a run, or the path itself."""
    from prcut.storage import Folder

    folder = Folder(path)
    if folder.exists("plan.json"):
        from prcut.run_folder import check_finished, read_plan

        read_plan(folder)
        check_finished(folder)
        return f"{path.rstrip('/')}/model"
    return path


def load(path: str) -> LoadedModel | LoadedLevels:
    """The model of a run, or at a path."""
    from prcut.level_folder import LEVELS_FILE, load_levels
    from prcut.model_folder import load_model
    from prcut.storage import Folder

    path = model_path(path)
    return load_levels(path) if Folder(path).exists(LEVELS_FILE) else load_model(path)


def open_engine(name: str, address: str | None, n_workers: int) -> Engine:
    """Where a command runs its tasks."""
    if name == "ray":
        from prcut.cluster import RayEngine

        return RayEngine(address, n_workers=n_workers)
    if name != "here":
        raise InvalidInputError(f"engine={name!r} must be 'here' or 'ray'.")
    if address is not None:
        raise InvalidInputError(f"{address=} is that of a Ray cluster; add --engine ray.")
    from prcut.engine import Here

    return Here()


def write_labels(assigner: Any, *arguments: Any, **options: Any) -> Any:
    """As :func:`prcut.label_files.assign_parquet`."""
    from prcut.label_files import assign_parquet

    return assign_parquet(assigner, *arguments, **options)
