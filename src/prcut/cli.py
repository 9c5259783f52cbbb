"""The command line: ``prcut fit data.parquet --clusters 10``.

Nothing slow is imported before a command needs it, so ``--help`` and completion are quick.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import prcut
from prcut.cli_options import (
    Address,
    Balance,
    BatchSize,
    BenchDatasets,
    BenchMethods,
    BenchPlot,
    BenchQuick,
    BenchRedo,
    BenchSeeds,
    BenchTable,
    Bottleneck,
    Clusters,
    Column,
    Data,
    DatasetName,
    Device,
    EmbeddingsFile,
    EncoderName,
    EngineName,
    FirstRows,
    GraphNeighbors,
    Hidden,
    IdColumn,
    LearningRate,
    Levels,
    Memory,
    Metric,
    MixedRuns,
    Model,
    Neighbors,
    NInit,
    Preset,
    Quiet,
    ResultsFolder,
    Resume,
    RunFolder,
    SaveEvery,
    Seed,
    Similarity,
    Solver,
    Split,
    Steps,
    SummaryOnly,
    TimeLimit,
    Top,
    WalkLength,
    Workers,
    WriteLabels,
)
from prcut.cli_report import report
from prcut.cli_shared import (
    check_run,
    command_again,
    echo,
    forgotten_if_refused,
    is_leader,
    lack_of_room,
    load,
    log_file,
    messages_of,
    model_path,
    open_engine,
    parse_numbers,
    write_labels,
)
from prcut.console import Terminated
from prcut.errors import CorruptFileError, InvalidInputError, PRCutError

__all__ = [
    "app",
    "assign",
    "bench",
    "embed",
    "export",
    "fit",
    "graph",
    "info",
    "main",
    "plan",
    "status",
]

_DONE, _UNEXPECTED, _WRONG, _CORRUPT, _NO_ROOM, _INTERRUPTED, _TERMINATED = 0, 1, 2, 3, 4, 130, 143

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
    epilog="[bold]Exit codes[/bold]: 0 done · 1 unexpected error (PRCUT_DEBUG=1 shows where) · "
    "2 wrong usage or input · 3 corrupt files · 4 disk or memory full · 130 interrupted · "
    "143 terminated."
)
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Cluster rows of embeddings by the probabilistic ratio cut of their neighbour graph.

    [bold]Examples[/bold]

    prcut fit embeddings.parquet --clusters 10 --id-column id

    prcut assign embeddings-prcut more.parquet --out labels

    prcut info embeddings-prcut

    Results go to standard output, one name=value a line; messages go to standard error.
    """


@app.command(
    epilog="On several processes: [green]torchrun --nproc-per-node 2 -m prcut fit …[/green], "
    "with the same numbers."
)
def fit(
    ctx: typer.Context,
    data: Data,
    clusters: Clusters = None,
    levels: Levels = None,
    out: RunFolder = None,
    column: Column = None,
    id_column: IdColumn = None,
    assign: WriteLabels = True,
    top: Top = 0,
    neighbors: Neighbors = None,
    metric: Metric = "euclidean",
    similarity: Similarity = None,
    preset: Preset = "default",
    solver: Solver = None,
    hidden: Hidden = None,
    bottleneck: Bottleneck = None,
    balance: Balance = None,
    walk_length: WalkLength = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    n_init: NInit = None,
    resume: Resume = False,
    save_every: SaveEvery = None,
    seed: Seed = 0,
    device: Device = "auto",
    memory: Memory = None,
    engine: EngineName = "here",
    address: Address = None,
    workers: Workers = 1,
    quiet: Quiet = False,
) -> None:
    """Cluster DATA into a run folder: model, labels, history, log.

    [bold]Examples[/bold]

    prcut fit embeddings.npy --clusters 10

    prcut fit parts/ -k 100 --column embedding --id-column id --out run

    prcut fit parts/ -k 100 --column embedding --id-column id --out run --resume

    prcut fit parts/ --levels 100,100 --column embedding --out run

    prcut fit s3://bucket/parts -k 1000 --out s3://bucket/run --engine ray --address auto
    """
    from prcut.fitting import FitConfig
    from prcut.memory import parse_bytes

    if (clusters is None) == (levels is None):
        raise InvalidInputError("give the number of clusters: --clusters N, or --levels N,N.")
    sizes = parse_numbers("levels", levels) or (clusters or 0,)
    path = out or f"{Path(data.rstrip('/')).stem}-prcut"
    again = command_again(ctx, "--resume")
    if is_leader():
        check_run(path, resume, again)
    config = FitConfig.of(
        preset,  # type: ignore[arg-type]  # checked by it
        sizes[0],
        seed=seed,
        n_neighbors=neighbors,
        metric=metric,
        similarity=similarity,
        solver=solver,
        hidden=parse_numbers("hidden", hidden),
        bottleneck=bottleneck,
        balance_weight=balance,
        walk_length=walk_length,
        max_steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        n_init=n_init,
        checkpoint_every=save_every,
    )
    if not 0 <= top <= (clusters or 0):
        raise InvalidInputError(f"{top=} must be from 0 to n_clusters={clusters or 0}.")
    options: dict[str, Any] = {"column": column, "id_column": id_column}
    limit = None if memory is None else parse_bytes(memory)
    with (
        forgotten_if_refused(path),
        messages_of(quiet or not is_leader(), again, log_file(path)) as messages,
    ):
        from prcut.levels import fit_levels
        from prcut.processes import join_team, leave_team
        from prcut.runs import fit_run
        from prcut.status import StatusWriter

        where = open_engine(engine, address, workers)
        messages.say(f"run folder {path}, prcut {prcut.__version__}")
        result: Any
        with messages.progress(config) as display:
            shown: dict[str, Any] = {**options, "engine": where, "on_progress": display.on_progress}
            shown["device"] = join_team(device)
            if levels is None:
                shown |= {"memory": limit, "on_record": display.on_record}
                result = fit_run(data, path, config, **shown)
            else:
                result = fit_levels(data, path, sizes, config, **shown)
        leave_team()
        if not is_leader():
            return
        results = {"run": result.path, "model": f"{result.path}/model"}
        if assign:
            results["labels"] = f"{result.path}/labels"
            # bars of their own: beside those of the training they would not fit in 80 columns
            with messages.progress() as display:
                write_labels(
                    result.assigner,
                    data,
                    results["labels"],
                    **options,
                    top=top,
                    device=device,
                    engine=where,
                    on_progress=StatusWriter(path).also(display.on_progress),
                )
    flat, deep = ("used_clusters", "objective", "ratio_cut", "n_steps"), ("n_clusters", "cut_share")
    results["rows"] = str(result.n_samples)
    results |= {
        name.replace("n_steps", "steps"): repr(getattr(result, name))
        for name in (flat if levels is None else deep)
    }
    echo(results)


@app.command()
def assign(
    ctx: typer.Context,
    model: Model,
    data: Data,
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder of the labels.")],
    column: Column = None,
    id_column: IdColumn = None,
    top: Top = 0,
    device: Device = "auto",
    engine: EngineName = "here",
    address: Address = None,
    quiet: Quiet = False,
) -> None:
    """Write the cluster of every row of DATA as Parquet files.

    Each file of DATA gives one of the same name. Columns: the ids (or row), label, confidence
    and, with --top, clusters and probs. Memory does not grow with the rows; files that an earlier
    run finished are kept.

    [bold]Examples[/bold]

    prcut assign run more.parquet --out labels

    prcut assign run/model s3://bucket/parts --out s3://bucket/labels --id-column id --top 3
    """
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        loaded = load(model)
        fitted = loaded.description.get("run", {})
        written = write_labels(
            loaded.assigner,
            data,
            out,
            column=column or fitted.get("column"),
            id_column=id_column or fitted.get("id_column"),
            top=top,
            device=device,
            engine=open_engine(engine, address, 1),
            on_progress=display.on_progress,
        )
        if written.n_kept:
            messages.say(f"{written.n_kept} of {written.n_files} files were there already")
    echo({"labels": out, "rows": str(written.n_samples), "files": str(written.n_files)})


@app.command()
def graph(
    ctx: typer.Context,
    data: Data,
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder of the graph.")],
    column: Column = None,
    neighbors: GraphNeighbors = 15,
    metric: Metric = "euclidean",
    similarity: Similarity = None,
    seed: Seed = 0,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Build the neighbour graph of DATA, and no more.

    It is one graph or, where memory is short, blocks on disk.

    [bold]Examples[/bold]

    prcut graph embeddings.npy --out graph --neighbors 30

    prcut graph parts/ --out blocks --column embedding --metric cosine --memory 8G
    """
    from prcut.memory import parse_bytes

    limit = None if memory is None else parse_bytes(memory)
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.runs import GraphConfig, graph_run

        mode = graph_run(
            data,
            out,
            GraphConfig(neighbors, metric, similarity or "mean", seed),  # type: ignore[arg-type]
            column=column,
            memory=limit,
            on_progress=display.on_progress,
        )
    echo({"graph" if mode == "memory" else "blocks": out})


@app.command()
def info(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file or folder.")],
) -> None:
    """Say what a file or folder is, and how far it is.

    PATH may be a run, a model, a graph, blocks, pairs, labels or data.

    [bold]Examples[/bold]

    prcut info embeddings.npy

    prcut info run
    """
    from prcut.path_info import describe_path

    rows = describe_path(path)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")


app.command()(report)


@app.command()
def status(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder.")],
) -> None:
    """Say how far every stage of a run is, from any machine that sees its folder.

    [bold]Examples[/bold]

    prcut status run

    prcut status s3://bucket/run
    """
    from prcut.run_folder import read_plan
    from prcut.status import read_status
    from prcut.storage import Folder

    folder = Folder(run)
    read_plan(folder)
    for stage in read_status(folder):
        typer.echo(stage.describe())
    typer.echo("finished" if folder.exists("result.json") else "not finished")


@app.command()
def plan(
    rows: Annotated[str, typer.Option(metavar="N", help="Rows, such as 1e9.")],
    dim: Annotated[int, typer.Option(metavar="N", help="Features of a row.")],
    clusters: Annotated[int, typer.Option("--clusters", "--k", "-k", metavar="N")],
    bytes_per_value: Annotated[
        int, typer.Option(metavar="N", help="2 for float16, 4 for float32.")
    ] = 4,
    neighbors: GraphNeighbors = 15,
    block_rows: Annotated[int, typer.Option(metavar="N", help="Core rows of a block.")] = 100_000,
    steps: Steps = None,
    n_init: NInit = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure the rates of this machine first.")
    ] = False,
) -> None:
    """Say what a run on disk would take: disk, memory, core-hours, traffic.

    Rates are those that --calibrate measured on this machine last, or typical ones.

    [bold]Examples[/bold]

    prcut plan --rows 1e9 --dim 768 --k 10000 --bytes-per-value 2

    prcut plan --rows 5e6 --dim 64 --k 1000 --calibrate
    """
    from prcut.capacity import Workload, read_rates, show_plan
    from prcut.capacity import calibrate as measure_rates

    try:
        n_samples = int(float(rows))
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{rows=} is not a number such as 1e9.") from error
    rates = measure_rates() if calibrate else read_rates()
    work = Workload(
        n_samples,
        dim,
        clusters,
        bytes_per_value,
        neighbors,
        block_rows,
        max_steps=steps or Workload.max_steps,
        n_init=n_init or Workload.n_init,
    )
    typer.echo(show_plan(work, rates))
    typer.echo(
        "rates: " + ("measured on this machine" if rates else "typical; --calibrate measures")
    )


@app.command()
def export(
    model: Model,
    onnx: Annotated[str | None, typer.Option(metavar="FILE", help="ONNX file to write.")] = None,
    hub: Annotated[
        str | None, typer.Option(metavar="REPO_ID", help="Repository of the Hugging Face Hub.")
    ] = None,
) -> None:
    """Write a model as ONNX or to the Hugging Face Hub.

    [bold]Examples[/bold]

    prcut export run --onnx model.onnx

    prcut export run/model --hub name/clusters
    """
    if onnx is None and hub is None:
        raise InvalidInputError("nothing to export: give --onnx FILE, --hub REPO_ID or both.")
    loaded = load(model)
    if onnx is not None:
        from prcut.export import export_onnx

        export_onnx(onnx, loaded.assigner)  # type: ignore[arg-type]  # refused by it
        echo({"onnx": onnx})
    if hub is not None:
        from prcut.model_folder import push_to_hub

        echo({"hub": push_to_hub(model_path(model), hub)})


@app.command()
def embed(
    ctx: typer.Context,
    dataset: DatasetName,
    encoder: EncoderName,
    split: Split = "train",
    rows: FirstRows = None,
    out: EmbeddingsFile = None,
    quiet: Quiet = False,
) -> None:
    """Embed a public data set by a trained encoder.

    Data and embeddings are kept in the cache; beside them is a manifest of what made them.

    [bold]Examples[/bold]

    prcut embed banking77 minilm --split all --out banking77.npy

    prcut embed cifar10 efficientnet-lite0 --split test --rows 5000
    """
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.bench.cli import embed_dataset

        results = embed_dataset(
            dataset, encoder, split=split, n_rows=rows, out=out, on_progress=display.on_progress
        )
    echo(results)


@app.command()
def bench(
    ctx: typer.Context,
    name: BenchTable,
    results: ResultsFolder = "benchmarks/results",
    methods: BenchMethods = None,
    datasets: BenchDatasets = None,
    seeds: BenchSeeds = None,
    quick: BenchQuick = False,
    time_limit: TimeLimit = None,
    redo: BenchRedo = False,
    summary_only: SummaryOnly = False,
    mixed: MixedRuns = False,
    plot: BenchPlot = False,
    quiet: Quiet = False,
) -> None:
    """Compare PRCut with its peers on public data.

    quick: the digits of scikit-learn, in a minute or two

    table1: the loss against cross-entropy where the similarity is the label, test splits

    table2: the cut against spectral clustering on the same graphs, MNIST and Fashion-MNIST

    table3: all methods on raw pixels of MNIST, Fashion-MNIST, USPS and COIL-20

    table4: all methods on embeddings of CIFAR-10, Banking77, CLINC150 and StackOverflow

    peers: table3 and table4

    quality: PRCut with seeds 0-4 against what its partitions must reach

    representations: those of CIFAR-10, Banking77 and StackOverflow (--quick: of the digits) ranked
    by their cuts, without labels

    Every run is one line in NAME.jsonl, and is not made again. The table also goes to NAME.md.

    [bold]Examples[/bold]

    prcut bench quick

    prcut bench table3 --datasets usps,coil20 --methods prcut,faiss_kmeans --plot

    prcut bench peers --summary-only
    """
    with messages_of(quiet, command_again(ctx)) as messages, messages.progress() as display:
        from prcut.bench.cli import BenchOptions, bench_table

        options = BenchOptions(
            results, methods, datasets, seeds, quick, time_limit, redo, summary_only, mixed, plot
        )
        table = bench_table(name, options, display.on_progress)
    typer.echo(table, nl=False)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code, with one line on standard error where it failed."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(given or ["--help"], prog_name="prcut", standalone_mode=False, obj=given)
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except Terminated:
        return _TERMINATED
    except Exception as error:
        code, message = _explain(error)
        if code == _UNEXPECTED and os.environ.get("PRCUT_DEBUG"):
            raise
        typer.echo(f"error: {message}", err=True)
    return int(code or _DONE)


def _explain(error: Exception) -> tuple[int, str]:
    """Exit code and message of an error."""
    if (lack := lack_of_room(error)) is not None:
        return _NO_ROOM, lack
    if isinstance(error, PRCutError):
        return _CORRUPT if isinstance(error, CorruptFileError) else _WRONG, str(error)
    # every version of typer has it, whichever click it carries
    if isinstance(error, typer.BadParameter.__bases__[0]):
        usage: Any = error
        command = usage.ctx.command_path if usage.ctx else "prcut"
        return _WRONG, f"{usage.format_message()} Try: {command} --help"
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    return _UNEXPECTED, f"{summary} (unexpected; PRCUT_DEBUG=1 shows where)"
