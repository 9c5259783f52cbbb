"""Options of the command line; the options of a fit are made from its settings.

Only the standard library and typer are imported: help and completion are quick.
"""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Annotated, Any

import typer

from prcut.errors import InvalidInputError
from prcut.fit.config import FitConfig
from prcut.training.settings import TrainConfig

_RUNNING = "Running"
# headings of the help in their order
PANELS = (None, "Graph", "Known", "Training", _RUNNING)


def option(usage: str, text: str, panel: str | None = None) -> Any:
    """Return an option; usage is such as ``--out,-o FILE``."""
    flags, _, metavar = usage.partition(" ")
    names = flags.split(",")
    return typer.Option(*names, metavar=metavar or None, help=text, rich_help_panel=panel)


def argument(name: str, text: str) -> Any:
    """Return an argument of a command."""
    return typer.Argument(metavar=name, help=text)


# -- arguments and options of several commands -----------------------------------------------------

DATA = "A .npy file, a Parquet file or a folder of them: a path, or a URI such as s3://…."
Data = Annotated[str, argument("DATA", DATA)]
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
TEXTS = "Texts: a column of the data, or a .txt or .npy file."
Texts = Annotated[str | None, option("--texts COLUMN|FILE", TEXTS)]
IMAGES = "Images: a column of PNG or JPEG bytes, a .npy file, or 28x28 if the features are pixels."
Images = Annotated[str | None, option("--images COLUMN|FILE|HxW", IMAGES)]
Overwrite = Annotated[
    bool, option("--overwrite", "Replace what an earlier call left at --out.", _RUNNING)
]
Device = Annotated[str, option("--device NAME", "auto, cpu, cuda, cuda:1, mps, …", _RUNNING)]
MEMORY = "Memory to use, such as 8G, before the disk is used. By default 60% of what is free."
Memory = Annotated[str | None, option("--memory SIZE", MEMORY, _RUNNING)]
EngineName = Annotated[
    str, option("--engine NAME", "Where tasks run: local, or ray for a Ray cluster.", _RUNNING)
]
ADDRESS = "Ray cluster, such as auto. By default $RAY_ADDRESS, or a new one on this machine."
Address = Annotated[str | None, option("--address ADDRESS", ADDRESS, _RUNNING)]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of everything random.", rich_help_panel=_RUNNING)
]
Quiet = Annotated[bool, option("--quiet,-q", "Show only warnings and errors.", _RUNNING)]
Json = Annotated[bool, option("--json", "Print the results as one JSON object.", _RUNNING)]


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


def read_setting(setting: Field[Any]) -> Any:
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


def parse_numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    """Return the numbers in a text such as ``512,512``."""
    if text is None:
        return None
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isdigit() and int(number) for number in numbers):
        raise InvalidInputError(f"{name} {text!r} must be whole numbers >= 1, such as 512,512.")
    return tuple(map(int, numbers))
