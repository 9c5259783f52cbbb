"""``prcut name``: name the clusters of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from prcut.errors import InvalidInputError
from prcut.ui.cli.options import with_options
from prcut.ui.cli.shared import command_again, echo, messages_of

if TYPE_CHECKING:
    from prcut.ui.cli.console import Messages

# names that are printed; all of them are in the run folder
_PRINTED = 20


@with_options()
def name(
    ctx: typer.Context,
    run: str,
    texts: str | None = None,
    text_column: str | None = None,
    images: str | None = None,
    data: str | None = None,
    language: str = "english",
    quiet: bool = False,
) -> None:
    """Name the clusters and layers of a run by the key terms of their texts.

    Names, key terms and exemplars go to names.json in the run folder; info, report and assign
    --names show them. Images give a contact sheet of every cluster, in the folder sheets.

    [bold]Examples[/bold]

    prcut name run --texts text

    prcut name run --texts questions.jsonl --text-column body --language any

    prcut name run --images 28x28
    """
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.ui.naming import name_run

        names = name_run(
            run,
            texts=texts,
            text_column=text_column,
            images=images,
            data=data,
            language=language,
            on_progress=display.on_progress,
        )
    found = {f"cluster_{i}": one.name for i, one in enumerate(names.clusters[:_PRINTED])}
    echo({"names": f"{run.rstrip('/')}/names.json", "clusters": len(names.clusters), **found})


def check_contents(
    data: str, report: str | None, texts: str | None, images: str | None, **columns: Any
) -> None:
    """Refuse data that are not there, and what a report after a long fit could not show."""
    from prcut.runtime.sources import open_source
    from prcut.ui.report import row_contents

    if report is None and (texts or images):
        raise InvalidInputError("--texts and --images are for a report; add --report FILE.")
    source = open_source(data, **columns)
    if report is not None:
        row_contents.check_contents(source, texts, images)


def write_named_report(
    run: str, path: str | None, messages: Messages, texts: str | None, images: str | None
) -> dict[str, str]:
    """Name the clusters of a run, if it has texts or images, and write its report if wanted."""
    if path is None:
        return {}
    from prcut.ui.naming import name_run
    from prcut.ui.report.report import write_report

    with messages.progress() as display:
        contents: dict[str, Any] = {"texts": texts, "images": images}
        contents["on_progress"] = display.on_progress
        if texts is not None or images is not None:
            name_run(run, **contents)
        write_report(run, path, **contents)
    return {"report": path}
