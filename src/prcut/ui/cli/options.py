"""The options of the command line; those of a fit are made from its settings.

Only the standard library and typer are imported, so that help and completion are quick.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from functools import wraps
from typing import Annotated, Any

import typer

from prcut.errors import InvalidInputError
from prcut.fit.config import FitConfig
from prcut.training.settings import TrainConfig
from prcut.ui.cli.shared import results_printed

# headings of the help in their order
_PANELS = (None, "Graph", "Known", "Training", "Running")
_RUNNING = "Running"


def option(usage: str, text: str, panel: str | None = None) -> Any:
    """Return an option; usage is such as ``--out,-o FILE``."""
    flags, _, metavar = usage.partition(" ")
    names = flags.split(",")
    return typer.Option(*names, metavar=metavar or None, help=text, rich_help_panel=panel)


def argument(name: str, text: str) -> Any:
    """Return an argument of a command."""
    return typer.Argument(metavar=name, help=text)


# -- arguments and options of several commands -----------------------------------------------------

Data = Annotated[
    str,
    argument(
        "DATA", "A .npy file, a Parquet file or a folder of them: a path, or a URI such as s3://…."
    ),
]
Run = Annotated[str, argument("RUN", "A finished run folder.")]
RunOrModel = Annotated[str, argument("RUN_OR_MODEL", "A finished run folder, or a model folder.")]
Column = Annotated[
    str | None,
    option(
        "--column,--columns NAME",
        "Parquet column of lists, if there are several; for wide files, columns: 'f*' or x,y,z.",
    ),
]
IdColumn = Annotated[
    str | None, option("--id-column NAME", "Parquet column of row ids, for the labels.")
]
Top = Annotated[int, option("--top N", "Also write the N likeliest clusters of a row.")]
OldData = Annotated[str | None, option("--data DATA", "The clustered data, if they have moved.")]
Texts = Annotated[
    str | None, option("--texts COLUMN|FILE", "Texts: a column of the data, .txt or .npy file.")
]
Images = Annotated[
    str | None,
    option(
        "--images COLUMN|FILE|HxW",
        "Images: a column of PNG or JPEG bytes, a .npy file, or 28x28 if the features are pixels.",
    ),
]
Overwrite = Annotated[
    bool, option("--overwrite", "Replace what an earlier call left at --out.", _RUNNING)
]
Device = Annotated[str, option("--device NAME", "auto, cpu, cuda, cuda:1, mps, …", _RUNNING)]
Memory = Annotated[
    str | None,
    option(
        "--memory SIZE",
        "Memory to use, such as 8G, before the disk is used. By default 60% of what is free.",
        _RUNNING,
    ),
]
EngineName = Annotated[
    str, option("--engine NAME", "Where tasks run: local, or ray for a Ray cluster.", _RUNNING)
]
Address = Annotated[
    str | None,
    option(
        "--address ADDRESS",
        "Ray cluster, such as auto. By default $RAY_ADDRESS, or a new one on this machine.",
        _RUNNING,
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of everything random.", rich_help_panel=_RUNNING)
]
Quiet = Annotated[bool, option("--quiet,-q", "Show only warnings and errors.", _RUNNING)]
_Json = Annotated[bool, option("--json", "Print the results as one JSON object.", _RUNNING)]


# -- options of a fit, from its settings -----------------------------------------------------------

SETTINGS: dict[str, Field[Any]] = {
    setting.name: setting
    for settings in (FitConfig, TrainConfig)
    for setting in fields(settings)
    if setting.metadata
}
# type and placeholder of an option by the type of its field; any other field takes a name
_KINDS: dict[str, tuple[Any, str]] = {
    "int": (int, "N"),
    "float": (float, "X"),
    "float | str": (str, "X"),
    "tuple[int, ...]": (str, "N,N,…"),
}


def _read_setting(setting: Field[Any]) -> Any:
    """Return the annotation of a setting's option; its help states the default of the library."""
    about: Any = setting.metadata
    kind, metavar = _KINDS.get(str(setting.type).removesuffix(" | None"), (str, "NAME"))
    flag = f"--{about['option'] or setting.name.replace('_', '-')}"
    default = about["shown"] or setting.default
    shown = rf" [dim]\[default: {default}][/dim]" if default is not None else ""
    made = option(f"{flag} {metavar}", about["help"] + shown, about["panel"])
    made.min = about["least"]
    if about["choices"]:
        made.autocompletion = lambda: list(about["choices"])
    if metavar == "N,N,…":
        made.callback = lambda value: parse_numbers(flag, value)
    return Annotated[kind | None, made]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``--json`` to a command, and the settings of a fit to one with ``**settings``.

    A command receives the settings that its user gave. It never sees ``--json``: its results, which
    it passes to :func:`prcut.ui.cli.shared.echo`, are printed as the user wants them. Messages of
    the library name options in place of parameters.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [*inspect.signature(command, eval_str=True).parameters.values()]
    names: list[str] = []
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        names = [*SETTINGS]
        parameters[-1:] = [
            inspect.Parameter(name, kind, default=None, annotation=_read_setting(SETTINGS[name]))
            for name in names
        ]
    parameters.append(inspect.Parameter("json", kind, default=False, annotation=_Json))
    parameters.sort(key=lambda one: _PANELS.index(getattr(_about(one), "rich_help_panel", None)))
    flags = find_flags(parameters)

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        as_json = options.pop("json", False)
        unset = {name for name in names if options[name] is None}
        given = {name: value for name, value in options.items() if name not in unset}
        try:
            with results_printed(as_json):
                command(*arguments, **given)
        except InvalidInputError as error:
            raise InvalidInputError(name_options(str(error), flags)) from error

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def parse_numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    """Return the numbers in a text such as ``512,512``."""
    if text is None:
        return None
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isdigit() and int(number) for number in numbers):
        raise InvalidInputError(f"{name} {text!r} must be whole numbers >= 1, such as 512,512.")
    return tuple(map(int, numbers))


# -- messages of the library in the words of the command line --------------------------------------

# words of Python that a message may have, and what the command line says instead
_PHRASES = {
    "a folder that save_model wrote": "a finished run or a model folder",
    "for one use fit_run": "for one use --clusters",
}
# before the bare name of a parameter; without them "memory" is a word of English
_VERBS = "lower|raise|give|pass|set|use"


def _about(parameter: inspect.Parameter) -> Any:
    """Return what typer knows of a parameter, None of a context."""
    return getattr(parameter.annotation, "__metadata__", (None,))[0]


def find_flags(parameters: Iterable[inspect.Parameter]) -> dict[str, str]:
    """Return the options of a command by the names that the library has for them."""
    flags = {}
    for parameter in parameters:
        about = _about(parameter)
        # typer takes the first name of an annotated option for its default, until it is used
        names = [getattr(about, "default", None), *(getattr(about, "param_decls", None) or ())]
        found = [str(name).partition("/")[0] for name in names if str(name).startswith("--")]
        if found:
            flags[parameter.name] = found[0]
            flags.setdefault(f"n_{parameter.name}", found[0])
    return flags


def name_options(message: str, flags: Mapping[str, str]) -> str:
    """Return a message with options where it names parameters.

    >>> name_options("n_neighbors=9 must be < n_samples=9; lower n_neighbors.",
    ...              {"n_neighbors": "--neighbors"})
    '--neighbors 9 must be < n_samples=9; lower --neighbors.'
    """
    for name, flag in flags.items():
        message = re.sub(rf"(?<![\w.-]){name}=(?=[.,;:]?(\s|$))", flag, message)
        message = re.sub(rf"(?<![\w.-]){name}=", f"{flag} ", message)
        message = re.sub(rf"\b({_VERBS}) {name}\b(?!=)", rf"\1 {flag}", message)
    for phrase, words in _PHRASES.items():
        message = message.replace(phrase, words)
    return message
