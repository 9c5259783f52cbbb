"""The options of the command line; those of a fit are generated from its settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from functools import wraps
from typing import Annotated, Any, get_args

import typer

from prcut.errors import InvalidInputError
from prcut.pipeline.settings import FitSettings, Preset
from prcut.training.settings import TrainSettings
from prcut.ui.cli.shared import results_printed
from prcut.ui.cli.wording import find_flags, name_options

SETTINGS: dict[str, Field[Any]] = {
    setting.name: setting
    for settings in (FitSettings, TrainSettings)
    for setting in fields(settings)
    if setting.metadata
}
# type and placeholder of an option by the type of its field; any other field takes a name
_KINDS: dict[Any, tuple[Any, str]] = {
    "int": (int, "N"),
    "float": (float, "X"),
    "float | str": (str, "X"),
    "tuple[int, ...]": (str, "N,N,…"),
}
# headings of the help in their order, with their options that are not settings
_PANELS: dict[str | None, tuple[str, ...]] = {
    None: (),
    "Graph": (),
    "Known": (),
    "Training": ("preset",),
    "Running": (
        "resume",
        "overwrite",
        "device",
        "memory",
        "engine",
        "address",
        "json",
        "quiet",
    ),
}
# a shell completes these; the library words the error about any other name
_CHOICES = {"engine": ("local", "ray"), "preset": get_args(Preset)}
# by command what its arguments and options mean; those under "" are the same in several
_TEXTS = {
    "": {
        "DATA": "A .npy file, a Parquet file or a folder of Parquet files: a path, or a URI such "
        "as s3://….",
        "RUN_OR_MODEL": "A finished run folder, or a model folder.",
        "--column,--columns NAME": "Parquet column of the features, lists of floats; optional if "
        "there is only one. Of a wide file its columns of numbers, such as 'f*' or x,y,z.",
        "--overwrite": "Replace what an earlier call left at --out, and all that is in it.",
        "--id-column NAME": "Parquet column that names the rows; copied to the labels.",
        "--top N": "Also write the N likeliest clusters of a row, with their probabilities.",
        "--device NAME": "auto, cpu, cuda, cuda:1, mps, …",
        "--memory SIZE": "Memory for the data and the graph, such as 8G; if they need more, the "
        "graph is built on disk. By default 60% of the free memory.",
        "--engine NAME": "Where tasks run: local, or ray for a Ray cluster.",
        "--address ADDRESS": "Address of the Ray cluster, such as auto. By default $RAY_ADDRESS, "
        "or a new cluster on this machine.",
        "--json": "Print the results as one JSON object.",
        "--quiet,-q": "Show only warnings and errors.",
        "--text-column NAME": "Column of texts to embed.",
        "--image-column NAME": "Column of images to embed: encoded bytes, or paths.",
        "--model NAME": "Encoder of texts or images: minilm, wordllama, efficientnet-lite0, "
        "efficientnet-lite2, the path of a local model or .onnx file, or library:name, such as "
        "sentence-transformers:all-MiniLM-L6-v2.",
        "--batch-size N": "Rows encoded at a time. By default 64, or 256 on a GPU.",
    },
    "fit": {
        "--clusters,-k N": "Number of clusters; auto, or two numbers such as 5,50, finds it.",
        "--out,-o RUN": "Run folder. By default the name of DATA + -prcut.",
        "--assign/--no-assign": "Write the label of every row of DATA.",
        "--report FILE": "Also name the clusters and write a report, as `prcut name` and `prcut "
        "report` do.",
        "--texts COLUMN|FILE": "For --report, texts of the rows: a column of DATA, or a .txt or "
        ".npy file.",
        "--images COLUMN|FILE|HxW": "For --report, images of the rows, as for `prcut report`.",
        "--preset NAME": "Where settings that are not given come from: default, or the published "
        "ones, paper-pixels or paper-representations.",
        "--resume": "Resume an existing run folder.",
    },
    "assign": {
        "--out,-o DIR": "Folder for the labels.",
        "--names": "Also write the names of the clusters that `prcut name` gave to the run.",
    },
    "name": {
        "RUN": "A finished run folder.",
        "--texts COLUMN|FILE": "Texts of the rows: a column of the data, or a .txt, .npy, Parquet, "
        ".csv or .jsonl file.",
        "--text-column NAME": "Column of the file that --texts names.",
        "--images COLUMN|FILE|HxW": "Images of the rows, as for `prcut report`.",
        "--data DATA": "The clustered data, if the run does not name it or it has moved.",
        "--language NAME": "Whose stop words are left out: english; any, which leaves out words of "
        "more than a fifth of the texts; or a .txt file with a word per line.",
    },
    "graph": {"--out,-o DIR": "Folder for the graph."},
    "info": {"PATH": "A file or folder."},
    "report": {
        "RUN": "A finished run folder.",
        "RUN_B": "Another run on the same rows, to compare with RUN.",
        "--out,-o FILE": "HTML file to write. By default the name of the run + .html.",
        "--texts COLUMN|FILE": "Texts of the rows: a column of the data, or a .txt or .npy file.",
        "--images COLUMN|FILE|HxW": "Images of the rows: a column of PNG or JPEG bytes, a .npy "
        "file, or, if the features are the pixels, their shape, such as 28x28.",
        "--labels COLUMN|FILE": "Known classes of the rows, for comparison: a column of the data, "
        "or a .npy file.",
        "--data DATA": "The clustered data, if the run does not name it or it has moved.",
    },
    "dedup": {
        "RUN_OR_DATA": "A run folder, or data: a .npy file, a Parquet file or a folder of them.",
        "--out,-o DIR": "Folder for the ids to keep and the groups.",
        "--epsilon X": "Largest distance of near-duplicates.",
        "--metric NAME": "cosine, for the distance 1 − cosine, or euclidean.",
        "--keep WHICH": "exemplar, or best:COLUMN for the row with the largest value.",
    },
    "sample": {
        "RUN": "A finished run folder with labels.",
        "--out,-o DIR": "Folder for the ids and labels of the sample.",
        "--size,-n N": "Number of rows.",
        "--balance HOW": "tree, equal quotas down the tree of clusters; uniform, equal quotas for "
        "all clusters; or temperature:T, quotas by sizes to the power of 1/T.",
    },
    "status": {"RUN": "A run folder."},
    "update": {
        "RUN": "A finished run folder; it is not changed.",
        "--out,-o RUN": "Run folder to write. By default the name of DATA + -prcut.",
        "--old-data DATA": "The data of RUN, if it does not name them or they have moved.",
        "--stickiness X": "What an earlier row pays to leave its cluster, as a fraction of what "
        "the objective falls at most when a row moves.",
    },
    "explain": {
        "RUN": "A finished run folder.",
        "--rows N,N,…": "Numbers of rows, counted from 0.",
        "--ids ID,ID,…": "Ids of rows, if the run has an id column.",
        "--data DATA": "The clustered data, if the run does not name it or it has moved.",
    },
    "plan": {
        "--rows N": "Number of rows, such as 1e9.",
        "--dim N": "Features per row.",
        "--clusters,--k,-k N": "Number of clusters.",
        "--bytes-per-value N": "Bytes of a feature: 2 for float16, 4 for float32.",
        "--block-rows N": "Rows per block; by default 10,000 to 100,000, in 64 blocks or more.",
    },
    "export": {
        "--onnx FILE": "ONNX file to write.",
        "--hub REPO_ID": "Repository on the Hugging Face Hub.",
        "--centroids FILE": "Parquet file to write: id, parent, layer, size and mean vector of the "
        "clusters of a run.",
    },
    "embed": {
        "DATA": "A Parquet, CSV, TSV, JSONL or .txt file or a folder of them, a folder of images, "
        "or a .npy file of uint8 images.",
        "--out,-o DIR": "Folder for the vectors.",
        "--id-column NAME": "Column that names the rows; copied to the vectors.",
        "--keep NAME,…": "Further columns to copy beside the vectors.",
    },
}


def with_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make options of a command's parameters, and of these settings and other names.

    The command receives the latter as keywords, if its user gave them. Every command also has
    ``--json``, which it never sees: what it gives to :func:`prcut.ui.cli.shared.echo` is printed
    as the user wants it.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*arguments: Any, **options: Any) -> None:
            as_json = options.pop("json", False)
            unset = {name for name in names if options[name] is None}
            given = {name: options[name] for name in options if name not in unset}
            try:
                with results_printed(as_json):
                    command(*arguments, **given)
            except InvalidInputError as error:
                raise InvalidInputError(name_options(str(error), flags)) from error

        infos = _read_texts("") | _read_texts(command.__name__)
        parameters = [
            _annotate(one, infos)
            for one in inspect.signature(command, eval_str=True).parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters += [_make_parameter(name, infos) for name in names]
        wanted = Annotated[bool, infos["json"]]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter("json", kind, default=False, annotation=wanted))
        parameters.sort(key=_panel_number)
        flags = find_flags(parameters)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _read_texts(command: str) -> dict[str, Any]:
    """Return arguments and options of a command, by the names of its parameters."""
    infos = {}
    for usage, text in _TEXTS.get(command, {}).items():
        flags, _, metavar = usage.partition(" ")
        name = flags.split(",")[0].split("/")[0].removeprefix("--").replace("-", "_").lower()
        panel = next((panel for panel, names in _PANELS.items() if name in names), None)
        infos[name] = (
            _option(flags, metavar or None, text, panel, _CHOICES.get(name, ()))
            if flags.startswith("--")
            else typer.Argument(metavar=flags, help=text)
        )
    return infos


def _option(
    flags: str, metavar: str | None, text: str, panel: str | None, choices: tuple[str, ...]
) -> Any:
    complete = (lambda: list(choices)) if choices else None
    return typer.Option(
        *flags.split(","),
        metavar=metavar,
        help=text,
        rich_help_panel=panel,
        autocompletion=complete,
    )


def _annotate(parameter: inspect.Parameter, infos: dict[str, Any]) -> inspect.Parameter:
    """Describe a parameter of a command, which may be named like a setting's option."""
    info = infos.get(parameter.name)
    for setting in SETTINGS.values():
        if info is None and parameter.name == (setting.metadata["option"] or setting.name):
            _, info = _read_setting(setting, setting.metadata["help"])
    annotation = parameter.annotation
    return parameter.replace(annotation=Annotated[annotation, info] if info else annotation)


def _make_parameter(name: str, infos: dict[str, Any]) -> inspect.Parameter:
    """Return an optional parameter; only that of a setting is not a text."""
    kind, info = str, infos.get(name)
    if name in SETTINGS:
        about = SETTINGS[name].metadata
        # part of the text, because a preset may state another
        default = about["shown"] or SETTINGS[name].default
        shown = rf" [dim]\[default: {default}][/dim]" if default is not None else ""
        kind, info = _read_setting(SETTINGS[name], about["help"] + shown)
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=None,
        annotation=Annotated[kind | None, info],
    )


def _read_setting(setting: Field[Any], text: str) -> tuple[Any, Any]:
    """Return the type and the option of a setting."""
    about = setting.metadata
    kind, metavar = _KINDS.get(str(setting.type).removesuffix(" | None"), (str, "NAME"))
    flag = f"--{about['option'] or setting.name.replace('_', '-')}"
    option = _option(flag, metavar, text, about["panel"], about["choices"])
    option.min = about["least"]
    if metavar == "N,N,…":
        option.callback = lambda value: parse_numbers(flag, value)
    return kind, option


def _panel_number(parameter: inspect.Parameter) -> int:
    about = getattr(parameter.annotation, "__metadata__", (None,))[0]
    return list(_PANELS).index(getattr(about, "rich_help_panel", None))


def parse_numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    """Return the numbers in a text such as ``512,512``."""
    if text is None:
        return None
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isdigit() and int(number) for number in numbers):
        raise InvalidInputError(f"{name} {text!r} must be whole numbers >= 1, such as 512,512.")
    return tuple(map(int, numbers))


def parse_clusters(text: str) -> int | str | tuple[int, ...]:
    """Return a number of clusters, ``"auto"``, or two limits such as ``5,50``."""
    if text == "auto":
        return text
    numbers = [number.strip() for number in text.split(",")]
    if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise InvalidInputError(
            f"--clusters {text!r} must be a whole number, auto, or two numbers such as 5,50."
        )
    return int(numbers[0]) if len(numbers) == 1 else tuple(map(int, numbers))
