"""``prcut sample``: a balanced sample of a clustered collection."""

from __future__ import annotations

import typer

from prcut.ui.cli.options import with_options
from prcut.ui.cli.shared import command_again, echo, messages_of, open_engine


@with_options("seed")
def sample(
    ctx: typer.Context,
    run: str,
    out: str,
    size: int,
    balance: str = "tree",
    engine: str = "local",
    address: str | None = None,
    quiet: bool = False,
    **settings: int,
) -> None:
    """Draw a balanced sample of the rows of a run: write their ids and labels as Parquet.

    The same command draws the same rows, and resumes what was interrupted.

    [bold]Examples[/bold]

    prcut sample run --out sample --size 1000

    prcut sample run --out sample --size 1000 --balance temperature:2
    """
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.pipeline.sampling import draw_sample

        drawn = draw_sample(
            run,
            out,
            size,
            balance,
            engine=open_engine(engine, address),
            on_progress=display.on_progress,
            **settings,
        )
    echo({"sample": out, "rows": drawn.n_rows, "n_clusters": drawn.n_clusters})
