"""The options of the command line, with what `--help` says of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

__all__ = [
    "Address",
    "Balance",
    "BatchSize",
    "BenchDatasets",
    "BenchMethods",
    "BenchPlot",
    "BenchQuick",
    "BenchRedo",
    "BenchSeeds",
    "BenchTable",
    "Bottleneck",
    "Clusters",
    "Column",
    "Data",
    "DatasetName",
    "Device",
    "EmbeddingsFile",
    "EncoderName",
    "EngineName",
    "FinishedRun",
    "FirstRows",
    "GraphNeighbors",
    "Hidden",
    "IdColumn",
    "LearningRate",
    "Levels",
    "Memory",
    "Metric",
    "MixedRuns",
    "Model",
    "NInit",
    "Neighbors",
    "Preset",
    "Quiet",
    "ReportFile",
    "ResultsFolder",
    "Resume",
    "RowClasses",
    "RowImages",
    "RowTexts",
    "RunData",
    "RunFolder",
    "SaveEvery",
    "SecondRun",
    "Seed",
    "Similarity",
    "Solver",
    "Split",
    "Steps",
    "SummaryOnly",
    "TimeLimit",
    "Top",
    "WalkLength",
    "Workers",
    "WriteLabels",
]


_TABLES = "quick", "table1", "table2", "table3", "table4", "peers", "representations"
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
    str | None,
    typer.Option(
        metavar="NAME",
        help="Weight of an edge: mean (the default), binary, self_tuning or cosine.",
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
EngineName = Annotated[
    str,
    typer.Option(metavar="NAME", help="here, or ray: on a cluster.", rich_help_panel=_RUNNING),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Of a Ray cluster, such as auto; by default RAY_ADDRESS, or one of this machine.",
        rich_help_panel=_RUNNING,
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        metavar="N", help="Processes that train together on Ray.", rich_help_panel=_RUNNING
    ),
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

Clusters = Annotated[
    int | None, typer.Option("--clusters", "-k", metavar="N", help="Clusters to find.")
]
Levels = Annotated[
    str | None,
    typer.Option(
        metavar="N,N",
        help="In place of --clusters: so many, and so many inside each; for more than some 10,000.",
    ),
]
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
Solver = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        autocompletion=_names("search", "train"),
        rich_help_panel=_TRAINING,
        help="search: a search on the graph finds the clusters, which the assigner then learns "
        "(the default, in memory); train: the assigner is trained on pairs (always, on disk).",
    ),
]
Hidden = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,…",
        help="Widths of hidden layers, such as 512,512; by default one of 256 to learn what was "
        "searched, none to be trained.",
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


# -- options of `prcut embed` ----------------------------------------------------------------

DatasetName = Annotated[
    str, typer.Argument(metavar="DATASET", help="Such as cifar10 or banking77.")
]
EncoderName = Annotated[
    str, typer.Argument(metavar="ENCODER", help="efficientnet-lite0, minilm or library:model.")
]
Split = Annotated[str, typer.Option(metavar="NAME", help="train, test or all.")]
FirstRows = Annotated[int | None, typer.Option(metavar="N", help="Only the first N rows.")]
EmbeddingsFile = Annotated[
    str | None,
    typer.Option("--out", "-o", metavar="FILE", help="A .npy file; by default in the cache."),
]


# -- options of `prcut bench` ----------------------------------------------------------------

_CHOICE, _REPORT = "What is run", "What is shown"

BenchTable = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="quick, table1, table2, table3, table4, peers or representations.",
        autocompletion=_names(*_TABLES),
    ),
]
ResultsFolder = Annotated[
    str,
    typer.Option(metavar="DIR", help="Folder of the records, one file per table."),
]
BenchMethods = Annotated[
    str | None,
    typer.Option(metavar="NAME,…", help="Only these methods.", rich_help_panel=_CHOICE),
]
BenchDatasets = Annotated[
    str | None,
    typer.Option(metavar="NAME,…", help="Only these data sets.", rich_help_panel=_CHOICE),
]
BenchSeeds = Annotated[
    str | None,
    typer.Option(
        metavar="N-N", help="In place of the table's seeds: 0-4 or 0,3.", rich_help_panel=_CHOICE
    ),
]
BenchQuick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="The first 2,000 rows, one seed, quick methods; records of their own.",
        rich_help_panel=_CHOICE,
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(metavar="S", help="Seconds that a run may take.", rich_help_panel=_CHOICE),
]
BenchRedo = Annotated[
    bool,
    typer.Option(
        "--redo", help="Run again what is there, in place of it.", rich_help_panel=_CHOICE
    ),
]
SummaryOnly = Annotated[
    bool,
    typer.Option("--summary-only", help="Run nothing.", rich_help_panel=_REPORT),
]
MixedRuns = Annotated[
    bool,
    typer.Option(
        "--mixed",
        help="Allow runs of different versions, splits or code in one table, which then says so.",
        rich_help_panel=_REPORT,
    ),
]
BenchPlot = Annotated[
    bool,
    typer.Option(
        "--plot", help="Also draw quality against time, per data set.", rich_help_panel=_REPORT
    ),
]

# -- report
FinishedRun = Annotated[str, typer.Argument(metavar="RUN", help="A finished run folder.")]
SecondRun = Annotated[
    str | None,
    typer.Argument(metavar="RUN_B", help="Another run on the same rows: shows what moved."),
]
ReportFile = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="The page; by default the run's name + .html."
    ),
]
RunData = Annotated[
    str | None,
    typer.Option(
        metavar="DATA", help="What was clustered, where the run does not say or it has moved."
    ),
]
RowTexts = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|FILE",
        help="Texts of the rows: a column of the data, or a .txt or .npy file.",
    ),
]
RowImages = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|FILE|HxW",
        help="Images of the rows: a column of PNG or JPEG bytes, a .npy file, or the shape, such "
        "as 28x28, that the features themselves have.",
    ),
]
RowClasses = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|FILE",
        help="Classes of the rows, to compare with: a column of the data, or a .npy file.",
    ),
]
