"""``prcut explain``: why rows of a run are in their clusters."""

from __future__ import annotations

from prcut.errors import InvalidInputError
from prcut.ui.cli.options import with_options
from prcut.ui.cli.shared import echo


@with_options()
def explain(
    run: str, rows: str | None = None, ids: str | None = None, data: str | None = None
) -> None:
    """Say why rows of RUN are in their clusters: neighbours, runner-up, and what moving costs.

    [bold]Examples[/bold]

    prcut explain run --rows 0,17

    prcut explain run --ids a17,b3
    """
    from prcut.pipeline.explain_run import explain_run

    if (rows is None) == (ids is None):
        raise InvalidInputError("give either --rows N,N,… or --ids ID,ID,….")
    names = None if ids is None else [one.strip() for one in ids.split(",")]
    numbers = None
    if rows is not None:
        texts = [one.strip() for one in rows.split(",")]
        if not all(one.isdigit() for one in texts):
            raise InvalidInputError(f"{rows=} must be numbers of rows, such as 0,17.")
        numbers = [int(one) for one in texts]
    found = explain_run(run, numbers, names, data=data)
    said = found.ids or [f"row {row}" for row in found.rows.tolist()]
    why = dict(zip(map(str, said), found.reasons.explain(), strict=True))
    echo({"reasons": why}, "\n".join(f"{name}: {sentence}" for name, sentence in why.items()))
