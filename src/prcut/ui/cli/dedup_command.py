"""``prcut dedup``: the rows of a collection to keep, one of each group of near-duplicates."""

from __future__ import annotations

import typer

from prcut.ui.cli.options import with_options
from prcut.ui.cli.shared import command_again, echo, messages_of, open_engine


@with_options("seed")
def dedup(
    ctx: typer.Context,
    run_or_data: str,
    out: str,
    epsilon: float = 0.05,
    metric: str = "cosine",
    keep: str = "exemplar",
    column: str | None = None,
    id_column: str | None = None,
    memory: str | None = None,
    engine: str = "local",
    address: str | None = None,
    quiet: bool = False,
    **settings: int,
) -> None:
    """Find near-duplicates: write the ids to keep, and the groups, as Parquet.

    Rows within EPSILON of each other are near-duplicates. A chain of them is cut where its ratio
    cut is low. Of every group the exemplar is kept, or the row with the largest value in a column.
    The same command resumes what was interrupted.

    [bold]Examples[/bold]

    prcut dedup embeddings.parquet --out unique --id-column id

    prcut dedup run --out unique --epsilon 0.02 --keep best:quality
    """
    from prcut.runtime.memory import parse_bytes

    limit = None if memory is None else parse_bytes(memory)
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.pipeline.dedup import find_duplicates

        found = find_duplicates(
            run_or_data,
            out,
            epsilon=epsilon,
            metric=metric,  # type: ignore[arg-type]  # checked by it
            keep=keep,
            column=column,
            id_column=id_column,
            memory=limit,
            engine=open_engine(engine, address),
            on_progress=display.on_progress,
            **settings,
        )
    figures = {"rows": found.n_samples, "kept_rows": found.n_kept, "copies": found.n_copies}
    paths = {"kept": f"{out}/kept", "groups": f"{out}/groups"}
    echo(paths | figures | {"n_groups": found.n_groups})
