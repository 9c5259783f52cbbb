"""``prcut embed``: vectors of users' own texts and images."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from prcut.ui.cli import options
from prcut.ui.cli.shared import command_again, echo, messages_of, open_engine

if TYPE_CHECKING:
    from prcut.pipeline.embed_files import EmbeddedFiles
    from prcut.ui.cli.console import Messages


@options.with_options()
def embed(
    ctx: typer.Context,
    data: str,
    model: str,
    out: str,
    text_column: str | None = None,
    image_column: str | None = None,
    id_column: str | None = None,
    keep: str | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    engine: str = "local",
    address: str | None = None,
    quiet: bool = False,
) -> None:
    """Write the vector of every text or image of DATA to Parquet files.

    Each file of DATA gives a file with the ids (or row, or path) and the column vector, float16,
    which prcut fit reads. Memory does not grow with the number of rows; what an interrupted
    command has encoded is kept, and the same command resumes it.

    [bold]Examples[/bold]

    prcut embed texts.parquet --text-column body --id-column id --model minilm --out vectors

    prcut embed photos/ --model efficientnet-lite2 --out vectors

    prcut embed s3://bucket/texts --text-column body --model ./model --out vectors --engine ray
    """
    with messages_of(quiet, command_again(ctx)) as messages:
        written = embed_data(
            data,
            model,
            out,
            messages,
            text_column=text_column,
            image_column=image_column,
            id_column=id_column,
            keep=[] if keep is None else [name.strip() for name in keep.split(",")],
            batch_size=batch_size,
            device=device,
            engine=open_engine(engine, address),
        )
    names = {"rows": "n_samples", "features": "n_features", "files": "n_files", "id": "id_column"}
    echo({"embeddings": out} | {name: getattr(written, names[name]) for name in names})


def embed_data(data: str, model: str, out: str, messages: Messages, **how: Any) -> EmbeddedFiles:
    """Embed, with a bar of progress, and say how quick it was."""
    from prcut.pipeline.embed_files import embed_files

    start = time.monotonic()
    with messages.progress() as display:
        written = embed_files(data, model, out, on_progress=display.on_progress, **how)
    if written.n_kept < written.n_files:
        speed = written.n_samples / max(time.monotonic() - start, 1e-9)
        messages.say(f"embedded {written.n_samples:,} rows, {speed:,.0f} rows/s with loading")
    if written.n_kept:
        messages.say(f"{written.n_kept} of {written.n_files} files were already embedded")
    return written
