"""The command line: ``prcut fit data.parquet --clusters 10``.

Each command imports the library when it runs, so that ``--help`` and completion are quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import prcut
from prcut.errors import InvalidInputError
from prcut.ui.cli import options
from prcut.ui.cli.console import Messages
from prcut.ui.cli.data_commands import dedup, doctor, embed, plan, sample
from prcut.ui.cli.fit_command import check_run_folder, fit, write_labels
from prcut.ui.cli.options import argument, option
from prcut.ui.cli.shared import (
    Results,
    as_lines,
    command,
    load,
    model_path,
    open_engine,
    remove_earlier,
    run_app,
)

# names that `prcut name` prints; all of them are in the run folder
_PRINTED_NAMES = 20
# how `prcut update` words its changes
_CHANGES = {"birth": "split from", "merge": "joined", "death": "left to"}

# help texts of options
CLASSES = "Classes to compare with: a column or a .npy file."
LANGUAGE = "Stop words: english, any (words of over a fifth of the texts), or a .txt file of words."
STICKINESS = "Cost of moving an earlier row, as a fraction of the largest gain of a move."
CENTROIDS = "Parquet file of a run's clusters: id, parent, layer, size and mean vector."

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

    Results go to standard output, messages to standard error. With --json, results are one object.
    """


@command
def assign(
    messages: Messages,
    run_or_model: options.RunOrModel,
    data: options.Data,
    out: Annotated[str, option("--out,-o DIR", "Folder for the labels.")],
    column: options.Column = None,
    id_column: options.IdColumn = None,
    top: options.Top = 0,
    names: Annotated[bool, option("--names", "Also write the names by prcut name.")] = False,
    device: options.Device = "auto",
    engine: options.EngineName = "local",
    address: options.Address = None,
    overwrite: options.Overwrite = False,
) -> Results:
    """Write the cluster of every row of DATA to Parquet files.

    Each file of DATA gives a file of the same name with the columns id (or row), label, confidence,
    label_K for every coarser layer; with --names also name and name_K; with --top clusters and
    probs. A model fitted with --outliers labels outliers -1, and writes their nearest cluster in a
    column cluster. Memory does not grow with the number of rows. The same command resumes an
    interrupted one.

    [bold]Examples[/bold]

    prcut assign run more.parquet --out labels

    prcut assign run/model s3://bucket/parts --out s3://bucket/labels --id-column id --top 3
    """
    loaded = load(run_or_model)
    if overwrite:
        remove_earlier(out, data, "labels")
    fitted: dict[str, Any] = loaded.description.get("run", {})
    written = write_labels(
        messages,
        run_or_model,
        data,
        out,
        with_names=names,
        column=column or fitted.get("column"),
        id_column=id_column or fitted.get("id_column"),
        top=top,
        device=device,
        engine=open_engine(engine, address),
    )
    if written.n_kept:
        messages.say(f"{written.n_kept} of {written.n_files} files were already written")
    outliers = {} if written.n_outliers is None else {"outliers": written.n_outliers}
    return {"labels": out, "rows": written.n_samples, "files": written.n_files, **outliers}


@command
def report(
    messages: Messages,
    run: options.Run,
    out: Annotated[str | None, option("--out,-o FILE", "HTML file, by default RUN.html.")] = None,
    texts: options.Texts = None,
    images: options.Images = None,
    labels: Annotated[str | None, option("--labels COLUMN|FILE", CLASSES)] = None,
    data: options.OldData = None,
) -> Results:
    """Write a report of a run as one HTML file: map, sizes, cut, examples, warnings.

    The file is self-contained and makes no network requests.

    [bold]Examples[/bold]

    prcut report run --texts text --labels intent

    prcut report fashion --images 28x28 --labels classes.npy --out fashion.html
    """
    path = out or f"{Path(run.rstrip('/')).name}.html"
    with messages.progress() as display:
        from prcut.ui.report.report import write_report

        contents = {"texts": texts, "images": images, "labels": labels}
        write_report(run, path, data=data, on_progress=display.on_progress, **contents)
    return {"report": path}


@command
def name(
    messages: Messages,
    run: options.Run,
    texts: Annotated[str, option("--texts COLUMN|FILE", options.TEXTS)],
    data: options.OldData = None,
    language: Annotated[str, option("--language NAME", LANGUAGE)] = "english",
) -> Results:
    """Name the clusters and layers of a run by the key terms of their texts.

    Names, key terms and exemplars go to names.json in the run folder; info, report and assign
    --names show them.

    [bold]Examples[/bold]

    prcut name run --texts text

    prcut name run --texts questions.txt --language any
    """
    with messages.progress() as display:
        from prcut.ui.naming import name_run

        names = name_run(
            run, texts=texts, data=data, language=language, on_progress=display.on_progress
        )
    shown = {f"cluster_{i}": one.name for i, one in enumerate(names.clusters[:_PRINTED_NAMES])}
    return {"names": f"{run.rstrip('/')}/names.json", "clusters": len(names.clusters), **shown}


@command
def info(path: Annotated[str, argument("PATH", "A file or folder.")]) -> Results:
    """Describe a file or folder of prcut and how complete it is.

    PATH may be a run, a model, labels or data.

    [bold]Examples[/bold]

    prcut info run
    """
    from prcut.ui.cli.info import describe_path

    return describe_path(path)


@command
def status(run: Annotated[str, argument("RUN", "A run folder.")]) -> tuple[Results, str]:
    """Show the progress of every stage of a run, from any machine that sees its folder.

    [bold]Examples[/bold]

    prcut status run
    """
    from prcut.runs.folder import read_plan
    from prcut.runtime.folder import Folder
    from prcut.runtime.progress import read_status

    folder = Folder(run)
    read_plan(folder)
    stages, is_finished = read_status(folder), folder.exists("result.json")
    described = [{**one.progress._asdict(), "state": one.state} for one in stages]
    lines = [one.describe() for one in stages] + ["finished" if is_finished else "not finished"]
    return {"run": run, "finished": is_finished, "stages": described}, "\n".join(lines)


@command
def update(
    messages: Messages,
    run: Annotated[str, argument("RUN", "A finished run folder; it is not changed.")],
    data: options.Data,
    out: Annotated[str | None, option("--out,-o RUN", "Run folder, by default DATA-prcut.")] = None,
    column: options.Column = None,
    id_column: options.IdColumn = None,
    old_data: Annotated[str | None, option("--old-data DATA", "Data of RUN, if moved.")] = None,
    stickiness: Annotated[float, option("--stickiness X", STICKINESS)] = 0.1,
    device: options.Device = "auto",
) -> tuple[Results, str]:
    """Continue RUN with the rows of DATA; clusters keep their ids.

    Clusters are added, merged or removed where that lowers the objective. The labels have a column
    cluster_id; an id is never given to a second cluster. RUN itself stays as it is.

    [bold]Examples[/bold]

    prcut update week1 week2.parquet --out week2

    prcut update week2 week3.npy --out week3 --stickiness 0.2
    """
    from prcut.runs.update import update_run

    path = out or f"{Path(data.rstrip('/')).stem}-prcut"
    folder = check_run_folder(path)
    how: dict[str, Any] = {"old_data": old_data, "stickiness": stickiness, "device": device}
    result = update_run(run, data, path, column=column, id_column=id_column, **how)
    written, plan = folder.read_json("result.json"), folder.read_json("plan.json")
    labels = f"{path}/labels"
    columns = {"column": plan["column"], "id_column": plan["id_column"]}
    write_labels(messages, path, data, labels, of_fit=True, device=device, **columns)
    changes = written["changes"]
    results = {
        "run": result.path,
        "model": f"{result.path}/model",
        "labels": f"{result.path}/labels",
        "rows": result.n_samples,
        "clusters": result.n_clusters,
        "renamed": written["n_renamed"],
        **{f"{kind}s": sum(one["kind"] == kind for one in changes) for kind in _CHANGES},
    }
    said = [
        f"{one['kind']} of cluster {one['cluster']}: {one['n_rows']} rows"
        + (f", {_CHANGES[one['kind']]} {one['other']}" if one["other"] >= 0 else "")
        for one in changes
    ] or ["no cluster was added, merged or removed"]
    return results | {"changes": changes}, "\n".join([as_lines(results), *said])


@command
def explain(
    run: options.Run,
    rows: Annotated[str | None, option("--rows N,N,…", "Numbers of rows, from 0.")] = None,
    ids: Annotated[str | None, option("--ids ID,ID,…", "Ids of rows.")] = None,
    data: options.OldData = None,
) -> tuple[Results, str]:
    """Explain why rows of RUN are in their clusters: neighbours, runner-up, cost of moving.

    [bold]Examples[/bold]

    prcut explain run --rows 0,17
    """
    from prcut.runs.explain import explain_run

    if (rows is None) == (ids is None):
        raise InvalidInputError("give either --rows N,N,… or --ids ID,ID,….")
    given = [one.strip() for one in (rows or ids or "").split(",")]
    if rows is not None and not all(one.isdigit() for one in given):
        raise InvalidInputError(f"{rows=} must be numbers of rows, such as 0,17.")
    numbers = None if rows is None else [int(one) for one in given]
    found = explain_run(run, numbers, given if rows is None else None, data=data)
    said = found.ids or [f"row {row}" for row in found.rows.tolist()]
    reasons = dict(zip(map(str, said), found.reasons.explain(), strict=True))
    return {"reasons": reasons}, "\n".join(f"{row}: {why}" for row, why in reasons.items())


@command
def export(
    run_or_model: options.RunOrModel,
    onnx: Annotated[str | None, option("--onnx FILE", "ONNX file to write.")] = None,
    hub: Annotated[str | None, option("--hub REPO_ID", "Repository on Hugging Face.")] = None,
    centroids: Annotated[str | None, option("--centroids FILE", CENTROIDS)] = None,
) -> Results:
    """Write a model to an ONNX file or to the Hugging Face Hub, or the centroids of a run.

    [bold]Examples[/bold]

    prcut export run --onnx model.onnx

    prcut export run/model --hub name/clusters

    prcut export run --centroids centroids.parquet
    """
    if onnx is hub is centroids is None:
        raise InvalidInputError("give --onnx FILE, --hub REPO_ID or --centroids FILE to export.")
    loaded = load(run_or_model)
    results: Results = {}
    if centroids is not None:
        from prcut.curate.centroids import write_centroids

        n_clusters = write_centroids(run_or_model, centroids, loaded)
        results |= {"centroids": centroids, "clusters": n_clusters}
    if onnx is not None:
        from prcut.training.assigner.onnx_export import export_onnx

        export_onnx(onnx, loaded.assigner)
        results["onnx"] = onnx
    if hub is not None:
        from prcut.training.assigner.hub import push_to_hub

        results["hub"] = push_to_hub(model_path(run_or_model), hub)
    return results


for _command in (fit, assign, report, name, info, status, update, explain, export):
    app.command()(_command)
for _command in (embed, dedup, sample, plan, doctor):
    app.command()(_command)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; an error is one line on standard error."""
    return run_app(app, "prcut", sys.argv[1:] if arguments is None else arguments)
