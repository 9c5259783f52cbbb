"""``prcut report``: a run as one HTML file, or two side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prcut.cli_options import Quiet
from prcut.cli_shared import command_again, echo, messages_of

__all__ = ["report"]

_SecondRun = Annotated[
    str | None,
    typer.Argument(metavar="RUN_B", help="Another run on the same rows: shows what moved."),
]
_ReportFile = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="The page; by default the run's name + .html."
    ),
]
_RunData = Annotated[
    str | None,
    typer.Option(
        metavar="DATA", help="What was clustered, where the run does not say or it has moved."
    ),
]
_TextsOf = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|FILE",
        help="Texts of the rows: a column of the data, or a .txt or .npy file.",
    ),
]
_ImagesOf = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|FILE|HxW",
        help="Images of the rows: a column of PNG or JPEG bytes, a .npy file, or the shape, such "
        "as 28x28, that the features themselves have.",
    ),
]
_LabelsOf = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|FILE",
        help="Classes of the rows, to compare with: a column of the data, or a .npy file.",
    ),
]


def report(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A finished run folder.")],
    run_b: _SecondRun = None,
    out: _ReportFile = None,
    texts: _TextsOf = None,
    images: _ImagesOf = None,
    labels: _LabelsOf = None,
    data: _RunData = None,
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
