"""The command line: ``prcut fit data.parquet --clusters 10``.

Nothing slow is imported before a command needs it, so ``--help`` and completion are quick.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import prcut
from prcut.cli_options import (
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
    FirstRows,
    GraphNeighbors,
    Hidden,
    IdColumn,
    LearningRate,
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
    WriteLabels,
)
from prcut.console import Messages, Terminated
from prcut.errors import CorruptFileError, InvalidInputError, PRCutError

if TYPE_CHECKING:
    from prcut.model_folder import LoadedModel

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
]

_DONE, _UNEXPECTED, _WRONG, _CORRUPT, _INTERRUPTED, _TERMINATED = 0, 1, 2, 3, 130, 143

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
    "2 wrong usage or input · 3 corrupt files · 130 interrupted · 143 terminated."
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
    clusters: Clusters,
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
    quiet: Quiet = False,
) -> None:
    """Cluster DATA into a run folder: model, labels, history, log.

    [bold]Examples[/bold]

    prcut fit embeddings.npy --clusters 10

    prcut fit parts/ -k 100 --column embedding --id-column id --out run

    prcut fit parts/ -k 100 --column embedding --id-column id --out run --resume
    """
    from prcut.fitting import FitConfig
    from prcut.memory import parse_bytes

    path = out or f"{Path(data.rstrip('/')).stem}-prcut"
    again = _again(ctx, "--resume")
    if _is_leader():
        _check_run(path, resume, again)
    config = FitConfig.of(
        preset,  # type: ignore[arg-type]  # checked by it
        clusters,
        seed=seed,
        n_neighbors=neighbors,
        metric=metric,
        similarity=similarity,
        solver=solver,
        hidden=_widths(hidden),
        bottleneck=bottleneck,
        balance_weight=balance,
        walk_length=walk_length,
        max_steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        n_init=n_init,
        checkpoint_every=save_every,
    )
    if not 0 <= top <= clusters:
        raise InvalidInputError(f"{top=} must be from 0 to n_clusters={clusters}.")
    options = {"column": column, "id_column": id_column}
    limit = None if memory is None else parse_bytes(memory)
    with (
        _forgotten_if_refused(path),
        _messages(quiet or not _is_leader(), again, _log_file(path)) as messages,
    ):
        from prcut.processes import join_team, leave_team
        from prcut.runs import fit_run

        messages.say(f"run folder {path}, prcut {prcut.__version__}")
        with messages.progress(config) as display:
            result = fit_run(
                data,
                path,
                config,
                **options,
                memory=limit,
                device=join_team(device),
                on_progress=display.on_progress,
                on_record=display.on_record,
            )
        leave_team()
        if not _is_leader():
            return
        results = {"run": result.path, "model": f"{result.path}/model"}
        if assign:
            results["labels"] = f"{result.path}/labels"
            # bars of their own: beside those of the training they would not fit in 80 columns
            with messages.progress() as display:
                _write_labels(
                    result.assigner,
                    data,
                    results["labels"],
                    **options,
                    top=top,
                    device=device,
                    on_progress=display.on_progress,
                )
    results |= {
        "rows": str(result.n_samples),
        "used_clusters": str(result.used_clusters),
        "objective": repr(result.objective),
        "ratio_cut": repr(result.ratio_cut),
        "steps": str(result.n_steps),
    }
    _echo(results)


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
    with _messages(quiet, _again(ctx)) as messages, messages.progress() as display:
        loaded = _load(model)
        fitted = loaded.description.get("run", {})
        written = _write_labels(
            loaded.assigner,
            data,
            out,
            column=column or fitted.get("column"),
            id_column=id_column or fitted.get("id_column"),
            top=top,
            device=device,
            on_progress=display.on_progress,
        )
        if written.n_kept:
            messages.say(f"{written.n_kept} of {written.n_files} files were there already")
    _echo({"labels": out, "rows": str(written.n_samples), "files": str(written.n_files)})


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
    with _messages(quiet, _again(ctx)) as messages, messages.progress() as display:
        from prcut.runs import GraphConfig, graph_run

        mode = graph_run(
            data,
            out,
            GraphConfig(neighbors, metric, similarity or "mean", seed),  # type: ignore[arg-type]
            column=column,
            memory=limit,
            on_progress=display.on_progress,
        )
    _echo({"graph" if mode == "memory" else "blocks": out})


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
    loaded = _load(model)
    if onnx is not None:
        from prcut.export import export_onnx

        export_onnx(onnx, loaded.assigner)  # type: ignore[arg-type]  # refused by it
        _echo({"onnx": onnx})
    if hub is not None:
        from prcut.model_folder import push_to_hub

        _echo({"hub": push_to_hub(_model_path(model), hub)})


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
    with _messages(quiet, _again(ctx)) as messages, messages.progress() as display:
        from prcut.bench.cli import embed_dataset

        results = embed_dataset(
            dataset, encoder, split=split, n_rows=rows, out=out, on_progress=display.on_progress
        )
    _echo(results)


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
    with _messages(quiet, _again(ctx)) as messages, messages.progress() as display:
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
    if isinstance(error, PRCutError):
        return _CORRUPT if isinstance(error, CorruptFileError) else _WRONG, str(error)
    # every version of typer has it, whichever click it carries
    if isinstance(error, typer.BadParameter.__bases__[0]):
        usage: Any = error
        command = usage.ctx.command_path if usage.ctx else "prcut"
        return _WRONG, f"{usage.format_message()} Try: {command} --help"
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    return _UNEXPECTED, f"{summary} (unexpected; PRCUT_DEBUG=1 shows where)"


def _is_leader() -> bool:
    """Of the processes that torchrun started, before they have joined."""
    return os.environ.get("RANK", "0") == "0"


# -- what the commands share -----------------------------------------------------------------


def _echo(results: dict[str, str]) -> None:
    for name, value in results.items():
        typer.echo(f"{name}={value}")


def _again(ctx: typer.Context, *more: str) -> str:
    """The command that goes on with this one."""
    given = list(ctx.obj if isinstance(ctx.obj, list) else sys.argv[1:])
    return shlex.join(["prcut", *given, *(option for option in more if option not in given)])


def _widths(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) for part in parts):
        raise InvalidInputError(f"hidden={text!r} must be widths such as 512,512.")
    return tuple(map(int, parts))


def _log_file(path: str) -> Path | None:
    """The log of a run on a local disk."""
    if "://" in path or not _is_leader():
        return None
    Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path) / "log.txt"


@contextmanager
def _messages(quiet: bool, again: str, log: Path | None = None) -> Iterator[Messages]:
    """Messages of a command that ``again`` goes on with when it is interrupted."""
    with Messages(quiet=quiet, log=log) as messages:
        try:
            yield messages
        except (KeyboardInterrupt, Terminated):
            messages.warn(f"interrupted; go on with: {again}")
            raise


@contextmanager
def _forgotten_if_refused(path: str) -> Iterator[None]:
    """Leave no run folder behind that was only made to find that its input cannot be used."""
    is_new = not Path(path).exists()
    try:
        yield
    except InvalidInputError:
        made = list(Path(path).glob("*")) if is_new else []
        if made and {one.name for one in made} <= {"plan.json", "log.txt"}:
            for one in made:
                one.unlink()
            Path(path).rmdir()
        raise


def _check_run(path: str, resume: bool, again: str) -> None:
    """Refuse a folder that holds something, unless it is a run that is to go on."""
    from pyarrow import fs

    from prcut.storage import Folder

    folder = Folder(path)
    folder.check_is_no_file()
    if folder.exists("plan.json"):
        state = "finished" if folder.exists("result.json") else "begun"
        if not resume:
            raise InvalidInputError(
                f"{path} holds a run that was {state}; go on with it by `{again}`, or choose "
                "another --out."
            )
        return
    inside = folder.filesystem.get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    # a run that was killed before its plan was written leaves only its log
    if any(info.base_name != "log.txt" for info in inside):
        raise InvalidInputError(f"{path} holds other files; choose another --out.")


def _model_path(path: str) -> str:
    """The model of a run, or the path itself."""
    from prcut.storage import Folder

    folder = Folder(path)
    if folder.exists("plan.json"):
        from prcut.runs import read_plan

        read_plan(folder)
        if not folder.exists("result.json"):
            raise InvalidInputError(
                f"{path} is a run that is not finished; go on with it by `prcut fit … --resume`."
            )
        return f"{path.rstrip('/')}/model"
    return path


def _load(path: str) -> LoadedModel:
    from prcut.model_folder import load_model

    return load_model(_model_path(path))


def _write_labels(assigner: Any, *arguments: Any, **options: Any) -> Any:
    from prcut.label_files import assign_parquet

    return assign_parquet(assigner, *arguments, **options)
