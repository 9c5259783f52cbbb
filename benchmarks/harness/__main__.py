"""The paper's tables and the contest with peers: ``python -m benchmarks.harness table2``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from prcut.ui.cli.shared import messages_of, run_app

_TABLES = (
    *("quick", "table1", "table2", "table3", "table4"),
    *("peers", "quality", "contest"),
)
app = typer.Typer(pretty_exceptions_enable=False)


def _names(*known: str) -> Callable[[], list[str]]:
    return lambda: list(known)


_CHOICE, _REPORT = "What is run", "What is shown"

BenchTable = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="quick, table1, table2, table3, table4, peers, quality or contest.",
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
        metavar="N-N", help="Instead of the table's seeds: 0-4 or 0,3.", rich_help_panel=_CHOICE
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
        "--redo", help="Run again what is there, and replace it.", rich_help_panel=_CHOICE
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
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Show only warnings and errors.", rich_help_panel=_REPORT),
]


@app.command()
def bench(
    name: BenchTable,
    results: ResultsFolder = "benchmarks/results",
    methods: BenchMethods = None,
    datasets: BenchDatasets = None,
    seeds: BenchSeeds = None,
    quick: BenchQuick = False,
    time_limit: TimeLimit = None,
    redo: BenchRedo = False,
    summary_only: SummaryOnly = False,
    mixed: MixedRuns = False,
    plot: BenchPlot = False,
    quiet: Quiet = False,
) -> None:
    """Compare PRCut with its peers on public data.

    quick: the digits of scikit-learn, in a minute or two

    table1: the loss against cross-entropy where the similarity is the label, test splits

    table2: the cut against spectral clustering on the same graphs, MNIST, Fashion-MNIST, CIFAR-10

    table3: all methods on raw pixels of MNIST, Fashion-MNIST, USPS and COIL-20

    table4: all methods on embeddings of CIFAR-10, Banking77, CLINC150 and StackOverflow

    peers: table3 and table4

    quality: PRCut with seeds 0-4 against what its partitions must reach

    contest: the development half of the contest on 57 data sets, all methods

    Every run is one line in NAME.jsonl, and is not made again. The table also goes to NAME.md.
    """
    loggers = ("prcut", "benchmarks")
    with (
        messages_of(quiet, loggers=loggers) as messages,
        messages.progress() as display,
    ):
        from benchmarks.harness.commands import BenchOptions, bench_table

        options = BenchOptions(
            results, methods, datasets, seeds, quick, time_limit, redo, summary_only, mixed, plot
        )
        table = bench_table(name, options, display.on_progress)
    typer.echo(table, nl=False)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    return run_app(app, "python -m benchmarks.harness", given)


if __name__ == "__main__":
    sys.exit(main())
