"""The command line: ``prcut fit data.parquet --clusters 10``.

Each command imports what it needs, so that ``--help`` and completion are quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import prcut
from prcut.errors import InvalidInputError
from prcut.ui.cli import name_command
from prcut.ui.cli.fit_command import fit
from prcut.ui.cli.options import with_options
from prcut.ui.cli.shared import (
    command_again,
    echo,
    load,
    messages_of,
    model_path,
    open_engine,
    run_app,
)

app = typer.Typer(
    name="prcut",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"prcut {prcut.__version__}")
        raise typer.Exit


@app.callback(
    epilog="[bold]Exit codes[/bold]: 0 done · 1 unexpected error (PRCUT_DEBUG=1 shows the "
    "traceback) · 2 wrong usage or input · 3 corrupt files · 4 disk or memory full · "
    "130 interrupted · 143 terminated."
)
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Cluster embeddings by the probabilistic ratio cut of their neighbour graph.

    [bold]Examples[/bold]

    prcut fit embeddings.parquet --clusters 10 --id-column id

    prcut assign embeddings-prcut more.parquet --out labels

    prcut info embeddings-prcut

    Results go to standard output, one name=value per line; messages go to standard error.
    """


app.command(
    epilog="On several processes, with the same result: "
    "[green]torchrun --nproc-per-node 2 -m prcut fit …[/green]"
)(fit)
app.command()(name_command.name)


@app.command()
@with_options()
def assign(
    ctx: typer.Context,
    run_or_model: str,
    data: str,
    out: str,
    column: str | None = None,
    id_column: str | None = None,
    top: int = 0,
    names: bool = False,
    device: str = "auto",
    engine: str = "local",
    address: str | None = None,
    quiet: bool = False,
) -> None:
    """Write the cluster of every row of DATA to Parquet files.

    Each file of DATA gives a file of the same name with the columns id (or row), label, confidence,
    label_K for every coarser layer; with --names also name and name_K; with --top clusters and
    probs. Memory does not grow with
    the number of rows; files that an earlier run finished are kept.

    [bold]Examples[/bold]

    prcut assign run more.parquet --out labels

    prcut assign run/model s3://bucket/parts --out s3://bucket/labels --id-column id --top 3
    """
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.pipeline.labels import assign_parquet
        from prcut.pipeline.saved_fit import coarse_labels

        loaded: Any = load(run_or_model)
        fitted = loaded.description.get("run", {})
        written = assign_parquet(
            loaded.assigner,
            data,
            out,
            column=column or fitted.get("column"),
            id_column=id_column or fitted.get("id_column"),
            top=top,
            layers=coarse_labels(loaded),
            names=_read_names(run_or_model, loaded) if names else None,
            device=device,
            engine=open_engine(engine, address),
            on_progress=display.on_progress,
        )
        if written.n_kept:
            messages.say(f"{written.n_kept} of {written.n_files} files were already written")
    echo({"labels": out, "rows": str(written.n_samples), "files": str(written.n_files)})


def _read_names(run: str, loaded: Any) -> Any:
    from prcut.pipeline.names import read_names

    if (names := read_names(run, loaded.assigner.n_clusters)) is None:
        raise InvalidInputError(f"{run} has no names; make them with `prcut name {run}`.")
    return names


@app.command()
@with_options("metric", "similarity", "seed")
def graph(
    ctx: typer.Context,
    data: str,
    out: str,
    column: str | None = None,
    neighbors: int = 15,
    memory: str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> None:
    """Build only the neighbour graph of DATA.

    The result is one graph or, if memory is short, a folder of blocks.

    [bold]Examples[/bold]

    prcut graph embeddings.npy --out graph --neighbors 30

    prcut graph parts/ --out blocks --column embedding --metric cosine --memory 8G
    """
    from prcut.runtime.memory import parse_bytes

    limit = None if memory is None else parse_bytes(memory)
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.pipeline.run import graph_run
        from prcut.pipeline.run_plan import GraphConfig

        config = GraphConfig(neighbors, **settings)
        mode = graph_run(
            data, out, config, column=column, memory=limit, on_progress=display.on_progress
        )
    echo({"graph" if mode == "memory" else "blocks": out})


@app.command()
@with_options()
def info(path: str) -> None:
    """Describe a file or folder of prcut and how complete it is.

    PATH may be a run, a model, a graph, blocks, pairs, labels or data.

    [bold]Examples[/bold]

    prcut info embeddings.npy

    prcut info run
    """
    from prcut.ui.cli.info import describe_path

    rows = describe_path(path)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")


@app.command()
@with_options("texts", "images", "labels", "data")
def report(
    ctx: typer.Context,
    run: str,
    run_b: str | None = None,
    out: str | None = None,
    quiet: bool = False,
    **contents: Any,
) -> None:
    """Write a report of a run as one HTML file: map, sizes, cut, examples, warnings.

    With RUN_B, the report also shows which rows changed cluster between the two runs. The file is
    self-contained and makes no network requests.

    [bold]Examples[/bold]

    prcut report run --texts text --labels intent

    prcut report fashion --images 28x28 --labels classes.npy --out fashion.html

    prcut report run another --out moved.html
    """
    name = "-".join(Path(one.rstrip("/")).name for one in (run, run_b) if one)
    path = out or f"{name}.html"
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.ui.report.report import write_report

        write_report(run, path, against=run_b, on_progress=display.on_progress, **contents)
    echo({"report": path})


@app.command()
@with_options()
def status(run: str) -> None:
    """Show the progress of every stage of a run, from any machine that sees its folder.

    [bold]Examples[/bold]

    prcut status run

    prcut status s3://bucket/run
    """
    from prcut.pipeline.run_folder import read_plan
    from prcut.runtime.folder import Folder
    from prcut.runtime.progress import read_status

    folder = Folder(run)
    read_plan(folder)
    for stage in read_status(folder):
        typer.echo(stage.describe())
    typer.echo("finished" if folder.exists("result.json") else "not finished")


@app.command()
@with_options()
def plan(
    rows: str,
    dim: int,
    clusters: int,
    bytes_per_value: int = 4,
    neighbors: int = 15,
    block_rows: int = 100_000,
    solver: str = "search",
    steps: int = 600,
    n_init: int = 1,
    calibrate: bool = False,
) -> None:
    """Estimate what a run on disk needs: disk, memory, core-hours, traffic.

    The rates are those that --calibrate last measured on this machine, or else typical ones.

    [bold]Examples[/bold]

    prcut plan --rows 1e9 --dim 768 --k 10000 --bytes-per-value 2

    prcut plan --rows 5e6 --dim 64 --k 1000 --calibrate
    """
    from prcut.pipeline.outofcore.capacity import Workload, read_rates, show_plan
    from prcut.pipeline.outofcore.capacity import calibrate as measure_rates

    try:
        n_samples = int(float(rows))
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{rows=} is not a number such as 1e9.") from error
    rates = measure_rates() if calibrate else read_rates()
    sizes = (n_samples, dim, clusters, bytes_per_value, neighbors, block_rows)
    work = Workload(*sizes, max_steps=steps, n_init=n_init, solver=solver)  # type: ignore[arg-type]
    typer.echo(show_plan(work, rates))
    measured = "measured on this machine" if rates else "typical; --calibrate measures them"
    typer.echo(f"rates: {measured}")


@app.command()
@with_options()
def export(run_or_model: str, onnx: str | None = None, hub: str | None = None) -> None:
    """Write a model to an ONNX file or to the Hugging Face Hub.

    [bold]Examples[/bold]

    prcut export run --onnx model.onnx

    prcut export run/model --hub name/clusters
    """
    if onnx is None and hub is None:
        raise InvalidInputError("nothing to export: give --onnx FILE, --hub REPO_ID or both.")
    loaded = load(run_or_model)
    if onnx is not None:
        from prcut.training.assigner.onnx_export import export_onnx

        export_onnx(onnx, loaded.assigner)  # type: ignore[arg-type]  # refused by it
        echo({"onnx": onnx})
    if hub is not None:
        from prcut.training.assigner.hub import push_to_hub

        echo({"hub": push_to_hub(model_path(run_or_model), hub)})


@app.command()
@with_options()
def embed(
    ctx: typer.Context,
    items: str,
    encoder: str,
    out: str | None = None,
    column: str | None = None,
    quiet: bool = False,
) -> None:
    """Embed texts or images with a trained encoder.

    ITEMS is a .txt file with one text per line, a .npy file of uint8 images, or a Parquet file
    with a column of texts or of encoded images. Embeddings are cached; a manifest beside them
    records how they were made.

    [bold]Examples[/bold]

    prcut embed questions.txt minilm --out questions.npy

    prcut embed photos.parquet efficientnet-lite0 --column image --out photos.npy
    """
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.pipeline.embedding import copy_embeddings, embed
        from prcut.ui.report.row_contents import read_items

        if out is not None and not out.endswith(".npy"):
            raise InvalidInputError(f"{out=} must end in .npy.")
        rows = embed(read_items(items, column), encoder, on_progress=display.on_progress)
        path, manifest = copy_embeddings(rows, out)
    n_samples, n_features = map(str, rows.shape)
    echo({"embeddings": path, "manifest": manifest, "rows": n_samples, "features": n_features})


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; an error is one line on standard error."""
    return run_app(app, "prcut", sys.argv[1:] if arguments is None else arguments)
