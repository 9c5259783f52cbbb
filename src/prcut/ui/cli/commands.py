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
from prcut.ui.cli.dedup_command import dedup
from prcut.ui.cli.doctor_command import doctor
from prcut.ui.cli.embed_command import embed
from prcut.ui.cli.explain_command import explain
from prcut.ui.cli.fit_command import fit
from prcut.ui.cli.name_command import name
from prcut.ui.cli.options import with_options
from prcut.ui.cli.sample_command import sample
from prcut.ui.cli.shared import (
    command_again,
    echo,
    load,
    messages_of,
    model_path,
    open_engine,
    remove_earlier,
    run_app,
)
from prcut.ui.cli.update_command import update

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

    Results go to standard output, one name=value per line or, with --json, as one object; messages
    go to standard error.
    """


app.command()(fit)
app.command()(dedup)
app.command()(sample)
app.command()(update)
app.command()(explain)
app.command()(doctor)
app.command()(name)


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
    overwrite: bool = False,
    quiet: bool = False,
) -> None:
    """Write the cluster of every row of DATA to Parquet files.

    Each file of DATA gives a file of the same name with the columns id (or row), label, confidence,
    label_K for every coarser layer; with --names also name and name_K; with --top clusters and
    probs. A model fitted with --outliers labels rows that belong nowhere -1, and has a column
    cluster. Memory does not grow with the number of rows; files that an earlier run finished are
    kept.

    [bold]Examples[/bold]

    prcut assign run more.parquet --out labels

    prcut assign run/model s3://bucket/parts --out s3://bucket/labels --id-column id --top 3
    """
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.pipeline.labels import assign_parquet
        from prcut.pipeline.saved_fit import coarse_labels, read_ids, read_rule

        loaded: Any = load(run_or_model)
        if overwrite:
            remove_earlier(out, data, "labels")
        fitted = loaded.description.get("run", {})
        written = assign_parquet(
            loaded.assigner,
            data,
            out,
            column=column or fitted.get("column"),
            id_column=id_column or fitted.get("id_column"),
            top=top,
            layers=coarse_labels(loaded),
            cluster_ids=read_ids(loaded),
            outliers=read_rule(model_path(run_or_model), loaded),
            names=_read_names(run_or_model, loaded) if names else None,
            device=device,
            engine=open_engine(engine, address),
            on_progress=display.on_progress,
        )
        if written.n_kept:
            messages.say(f"{written.n_kept} of {written.n_files} files were already written")
    found = {} if written.n_outliers is None else {"outliers": written.n_outliers}
    echo({"labels": out, "rows": written.n_samples, "files": written.n_files, **found})


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
    overwrite: bool = False,
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
        if overwrite:
            remove_earlier(out, data, "graph", "blocks")
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
    from prcut.ui.cli.info import describe_path, show_rows

    rows = describe_path(path)
    echo({name.replace(" ", "_"): rows[name] for name in rows}, show_rows(rows))


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

        _check_contents(run, **contents)
        write_report(run, path, against=run_b, on_progress=display.on_progress, **contents)
    echo({"report": path})


def _check_contents(run: str, data: str | None = None, **contents: str) -> None:
    """Refuse columns and files of the rows that are not there, before any row is read."""
    from prcut.pipeline.run_folder import read_plan
    from prcut.runtime.folder import Folder
    from prcut.runtime.sources import open_source
    from prcut.ui.report.row_contents import check_contents

    plan = read_plan(Folder(run))
    if not contents or not (data or plan.get("data")):
        return
    source = open_source(data or plan["data"], column=plan["column"], id_column=plan["id_column"])
    check_contents(source, **contents)


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
    stages, is_finished = read_status(folder), folder.exists("result.json")
    lines = [stage.describe() for stage in stages]
    results = {
        "run": run,
        "finished": is_finished,
        "stages": [{**one.progress._asdict(), "state": one.state} for one in stages],
    }
    echo(results, "\n".join([*lines, "finished" if is_finished else "not finished"]))


@app.command()
@with_options()
def plan(
    rows: str,
    dim: int,
    clusters: int,
    bytes_per_value: int = 4,
    neighbors: int = 15,
    block_rows: int | None = None,
) -> None:
    """Estimate what a run on disk needs: disk, memory, core-hours, traffic.

    [bold]Examples[/bold]

    prcut plan --rows 1e9 --dim 768 --k 10000 --bytes-per-value 2

    prcut plan --rows 5e6 --dim 64 --k 1000
    """
    from prcut.pipeline.outofcore import capacity
    from prcut.pipeline.outofcore.sizes import most_block_rows

    try:
        n_samples = int(float(rows))
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{rows=} is not a number such as 1e9.") from error
    block_rows = most_block_rows(n_samples) if block_rows is None else block_rows
    work = capacity.Workload(n_samples, dim, clusters, bytes_per_value, neighbors, block_rows)
    stages = capacity.plan_stages(work)
    results = {
        "rows": n_samples,
        "blocks": work.n_blocks,
        "disk_bytes": capacity.disk_peak(stages),
        "core_hours": sum(one.core_seconds for one in stages) / 3600,
        "stages": stages,
    }
    echo(results, capacity.show_plan(work))


@app.command()
@with_options()
def export(
    run_or_model: str, onnx: str | None = None, hub: str | None = None, centroids: str | None = None
) -> None:
    """Write a model to an ONNX file or to the Hugging Face Hub, or the centroids of a run.

    [bold]Examples[/bold]

    prcut export run --onnx model.onnx

    prcut export run/model --hub name/clusters

    prcut export run --centroids centroids.parquet
    """
    if onnx is hub is centroids is None:
        raise InvalidInputError(
            "nothing to export: give --onnx FILE, --hub REPO_ID or --centroids FILE."
        )
    loaded = load(run_or_model)
    if centroids is not None:
        from prcut.pipeline.centroids import write_centroids

        n_clusters = write_centroids(run_or_model, centroids, loaded)
        echo({"centroids": centroids, "clusters": n_clusters})
    if onnx is not None:
        from prcut.training.assigner.onnx_export import export_onnx

        export_onnx(onnx, loaded.assigner)
        echo({"onnx": onnx})
    if hub is not None:
        from prcut.training.assigner.hub import push_to_hub

        echo({"hub": push_to_hub(model_path(run_or_model), hub)})


app.command()(embed)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; an error is one line on standard error."""
    return run_app(app, "prcut", sys.argv[1:] if arguments is None else arguments)
