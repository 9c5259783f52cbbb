"""How a command runs and ends: its messages, its results, its exit code."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer

from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.ui.cli.console import Terminated, lack_of_room, open_messages
from prcut.ui.cli.options import PANELS, SETTINGS, Json, Quiet, read_setting

if TYPE_CHECKING:
    from prcut.runtime.engine import Engine
    from prcut.training.assigner.saved import LoadedModel

# exit codes
_DONE = 0
_UNEXPECTED = 1
_WRONG = 2
_CORRUPT = 3
_NO_ROOM = 4
_INTERRUPTED = 130
_TERMINATED = 143
# before the bare name of a parameter; without these verbs "memory" is a word of English
_VERBS = "lower|raise|give|pass|set|use"

Results = dict[str, Any]


def command(function: Callable[..., Any]) -> Callable[..., None]:
    """Make a function a command with ``--json`` and ``--quiet``, which prints what it returns.

    The function returns its results by name, or a pair: the results, and the text that is printed
    unless ``--json`` is given. Without a text, results are lines of name=value. A parameter
    ``messages`` receives a :class:`prcut.ui.cli.console.Messages`. In place of ``**settings``, the
    command has the settings of a fit as options; the function receives the given ones.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = inspect.signature(function, eval_str=True).parameters
    annotations = {name: one.annotation for name, one in own.items() if name != "messages"}
    defaults = {name: one.default for name, one in own.items()}
    if annotations.pop("settings", None) is not None:
        annotations |= {name: read_setting(setting) for name, setting in SETTINGS.items()}
        defaults |= dict.fromkeys(SETTINGS)
    annotations |= {"quiet": Quiet, "json": Json}
    parameters = [
        inspect.Parameter(name, kind, default=defaults.get(name, False), annotation=annotation)
        for name, annotation in annotations.items()
    ]
    parameters.sort(key=lambda one: PANELS.index(one.annotation.__metadata__[0].rich_help_panel))

    @wraps(function)
    def run(context: typer.Context, *, quiet: bool, json: bool, **options: Any) -> None:
        given = {n: value for n, value in options.items() if n not in SETTINGS or value is not None}
        try:
            with open_messages(context.obj, quiet=quiet) as messages:
                if "messages" in own:
                    given["messages"] = messages
                found = function(**given)
        except InvalidInputError as error:
            flags = {one.name: one.opts[0] for one in context.command.params if one.name}
            raise InvalidInputError(name_options(str(error), flags)) from error
        results, text = found if isinstance(found, tuple) else (found, as_lines(found))
        typer.echo(_as_json(results) if json else text)

    # help wraps paragraphs to the width of the terminal
    run.__doc__ = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")
    first = inspect.Parameter("context", kind, annotation=typer.Context)
    run.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    return run


def as_lines(results: Results) -> str:
    """Return results as lines of name=value, without control characters of a stranger's file."""
    lines = [f"{name}={value}" for name, value in results.items()]
    return "\n".join("".join(c if c.isprintable() else "\ufffd" for c in line) for line in lines)


def run_app(commands: typer.Typer, name: str, given: list[str]) -> int:
    """Run a program's command and return its exit code; an error is one line on standard error."""
    line = shlex.join([*name.split(), *given])
    try:
        arguments = given or ["--help"]
        return int(commands(arguments, prog_name=name, standalone_mode=False, obj=line) or _DONE)
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
        typer.echo(_as_json({"error": message, "exit_code": code}))
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
        path = usage.ctx.command_path if usage.ctx else "prcut"
        return _WRONG, f"{usage.format_message()} Try: {path} --help"
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    return _UNEXPECTED, f"{summary} (unexpected; PRCUT_DEBUG=1 shows the traceback)"


def name_options(message: str, flags: Mapping[str, str]) -> str:
    """Return a message of the library with options where it names parameters.

    >>> name_options("n_neighbors=9 must be < n_samples=9; lower n_neighbors.",
    ...              {"n_neighbors": "--neighbors"})
    '--neighbors 9 must be < n_samples=9; lower --neighbors.'
    """
    for name, flag in flags.items():
        if flag.startswith("--"):
            message = re.sub(rf"(?<![\w.-])(n_)?{name}=", f"{flag} ", message)
            message = re.sub(rf"\b({_VERBS}) (n_)?{name}\b(?!=)", rf"\1 {flag}", message)
    return message


def _as_json(results: Results) -> str:
    return json.dumps(_plain(results), ensure_ascii=False, allow_nan=False)


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
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- folders and engines that commands are given -----------------------------------------------


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
