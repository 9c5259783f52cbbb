"""``prcut update``: continue a run with new data, with ids that last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from prcut.errors import InvalidInputError
from prcut.ui.cli.fit_command import write_labels
from prcut.ui.cli.options import with_options
from prcut.ui.cli.shared import command_again, echo, messages_of

_TEXTS = {"birth": "split from", "merge": "joined", "death": "left to"}


@with_options()
def update(
    ctx: typer.Context,
    run: str,
    data: str,
    out: str | None = None,
    column: str | None = None,
    id_column: str | None = None,
    old_data: str | None = None,
    stickiness: float = 0.1,
    device: str = "auto",
    quiet: bool = False,
) -> None:
    """Continue RUN with the rows of DATA; clusters keep their ids.

    A cluster may be born, merge with another or die, if the objective pays for it. The labels have
    a column cluster_id; an id is never given to a second cluster. RUN itself stays as it is.

    [bold]Examples[/bold]

    prcut update week1 week2.parquet --out week2

    prcut update week2 week3.npy --out week3 --stickiness 0.2
    """
    from prcut.pipeline.update_run import update_run
    from prcut.runtime.folder import Folder

    path = out or f"{Path(data.rstrip('/')).stem}-prcut"
    folder = Folder(path)
    folder.check_is_no_file()
    if folder.names(folders=True) and not folder.exists("plan.json"):
        raise InvalidInputError(f"{path} holds other files; choose another --out.")
    source: dict[str, Any] = {"column": column, "id_column": id_column, "device": device}
    with messages_of(quiet, command_again(ctx)) as messages:
        result = update_run(run, data, path, old_data=old_data, stickiness=stickiness, **source)
        written = folder.read_json("result.json")
        plan = folder.read_json("plan.json")
        source |= {name: plan[name] for name in ("column", "id_column")}
        write_labels(result, data, messages, **source)
    changes = written["changes"]
    echo({"run": result.path, "model": f"{result.path}/model", "labels": f"{result.path}/labels"})
    echo({"rows": result.n_samples, "clusters": result.n_clusters, "renamed": written["n_renamed"]})
    echo({f"{kind}s": sum(one["kind"] == kind for one in changes) for kind in _TEXTS})
    said = "\n".join(map(_say, changes))
    echo({"changes": changes}, said or "no cluster was born, merged or died")


def _say(change: dict[str, Any]) -> str:
    kind, other = change["kind"], change["other"]
    more = f", {_TEXTS[kind]} {other}" if other >= 0 else ""
    return f"{kind} of cluster {change['cluster']}: {change['n_rows']} rows{more}"
