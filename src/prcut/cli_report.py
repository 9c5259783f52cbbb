"""``prcut report``: a run as one HTML file, or two side by side."""

from __future__ import annotations

from pathlib import Path

import typer

from prcut.cli_options import (
    FinishedRun,
    Quiet,
    ReportFile,
    RowClasses,
    RowImages,
    RowTexts,
    RunData,
    SecondRun,
)
from prcut.cli_shared import command_again, echo, messages_of

__all__ = ["report"]


def report(
    ctx: typer.Context,
    run: FinishedRun,
    run_b: SecondRun = None,
    out: ReportFile = None,
    texts: RowTexts = None,
    images: RowImages = None,
    labels: RowClasses = None,
    data: RunData = None,
    quiet: Quiet = False,
) -> None:
    """Show a run as one HTML file: map, sizes, cut, examples, warnings.

    With RUN_B, what moved between two runs on the same rows. The file needs nothing else and asks
    the network for nothing.

    [bold]Examples[/bold]

    prcut report run --texts text --labels intent

    prcut report fashion --images 28x28 --labels classes.npy --out fashion.html

    prcut report run another --out moved.html
    """
    name = "-".join(Path(one.rstrip("/")).name for one in (run, run_b) if one)
    path = out or f"{name}.html"
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.report import write_report

        write_report(
            run,
            path,
            against=run_b,
            data=data,
            texts=texts,
            images=images,
            labels=labels,
            on_progress=display.on_progress,
        )
    echo({"report": path})
