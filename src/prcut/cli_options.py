"""The options of the command line, with what `--help` says of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

__all__ = [
    "Balance",
    "BatchSize",
    "Bottleneck",
    "Clusters",
    "Column",
    "Data",
    "Device",
    "GraphNeighbors",
    "Hidden",
    "IdColumn",
    "LearningRate",
    "Memory",
    "Metric",
    "Model",
    "NInit",
    "Neighbors",
    "Preset",
    "Quiet",
    "Resume",
    "RunFolder",
    "SaveEvery",
    "Seed",
    "Similarity",
    "Steps",
    "Top",
    "WalkLength",
    "WriteLabels",
]


# headings of the options
_GRAPH, _TRAINING, _RUNNING = "Graph", "Training", "Running"


def _names(*known: str) -> Callable[[], list[str]]:
    """What a shell completes; the library says what is wrong with another name."""
    return lambda: list(known)


# -- options that several commands have ------------------------------------------------------

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A .npy file, a Parquet file or a folder of them; a path or a URI such as s3://….",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Parquet column of the features, lists of floats; may be left out if there is one.",
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Parquet column that names the rows, copied to the labels."),
]
Metric = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="euclidean, cosine or inner_product.",
        autocompletion=_names("euclidean", "cosine", "inner_product"),
        rich_help_panel=_GRAPH,
    ),
]
Similarity = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Weight of an edge: binary, mean, self_tuning or cosine.",
        autocompletion=_names("binary", "mean", "self_tuning", "cosine"),
        rich_help_panel=_GRAPH,
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, metavar="N", help="Of everything random.", rich_help_panel=_RUNNING)
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="What data and graph may take, such as 8G; more goes through the disk. By default "
        "0.6 of what is free.",
        rich_help_panel=_RUNNING,
    ),
]
Device = Annotated[
    str,
    typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, …", rich_help_panel=_RUNNING),
]
Top = Annotated[
    int,
    typer.Option(metavar="N", help="Also write N clusters with their probabilities."),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Warnings and errors only.", rich_help_panel=_RUNNING),
]


# -- options of one command ------------------------------------------------------------------

Clusters = Annotated[int, typer.Option("--clusters", "-k", metavar="N", help="Clusters to find.")]
RunFolder = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", metavar="RUN", help="Run folder; by default the data's name + -prcut."
    ),
]
WriteLabels = Annotated[
    bool, typer.Option("--assign/--no-assign", help="Write the labels of the data.")
]
Neighbors = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Neighbours of a row; by default by the number of rows.",
        rich_help_panel=_GRAPH,
    ),
]
GraphNeighbors = Annotated[
    int, typer.Option(metavar="N", help="Neighbours of a row.", rich_help_panel=_GRAPH)
]
Preset = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where what is not given comes from: default or paper.",
        autocompletion=_names("default", "paper"),
        rich_help_panel=_TRAINING,
    ),
]
Hidden = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,…",
        help="Widths of hidden layers, such as 512,512; by default a linear assigner.",
        rich_help_panel=_TRAINING,
    ),
]
Bottleneck = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Width of one more layer before the last.",
        rich_help_panel=_TRAINING,
    ),
]
Balance = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="What an empty cluster costs; 0 lets sizes be what they will.",
        rich_help_panel=_TRAINING,
    ),
]
WalkLength = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Steps along the edges from one end of a pair to the other.",
        rich_help_panel=_TRAINING,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(metavar="N", help="Steps of a start at most.", rich_help_panel=_TRAINING),
]
BatchSize = Annotated[
    int | None, typer.Option(metavar="N", help="Pairs per step.", rich_help_panel=_TRAINING)
]
LearningRate = Annotated[
    float | None, typer.Option(metavar="X", help="Of Adam.", rich_help_panel=_TRAINING)
]
NInit = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Starts, of which the one with the best cut is kept.",
        rich_help_panel=_TRAINING,
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Go on with a run folder that is there.", rich_help_panel=_RUNNING
    ),
]
SaveEvery = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Steps between checkpoints, a multiple of 10.",
        rich_help_panel=_RUNNING,
    ),
]
Model = Annotated[str, typer.Argument(metavar="RUN_OR_MODEL", help="What `prcut fit` made.")]
