"""``prcut fit``: cluster data into a run folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import prcut
from prcut.errors import InvalidInputError
from prcut.ui.cli import options
from prcut.ui.cli.console import Messages
from prcut.ui.cli.options import option
from prcut.ui.cli.shared import Results, command, load, model_path, open_engine, remove_earlier

if TYPE_CHECKING:
    from prcut.runs.labels import LabelFiles
    from prcut.runtime.folder import Folder

# rows of the sample that the number of clusters is found by
_COUNTED_ROWS = 20_000
# files that a killed or rejected command may leave in a run folder before the run begins
_BEGINNING = {"log.txt", "count.json", "embeddings"}
PRESET = "Defaults of the other settings: default, paper-pixels or paper-representations."


@command
def fit(  # noqa: PLR0915  # the command reads top to bottom
    messages: Messages,
    data: options.Data,
    clusters: Annotated[str, option("--clusters,-k N", "How many, auto, or limits such as 5,50.")],
    out: Annotated[str | None, option("--out,-o RUN", "Run folder, by default DATA-prcut.")] = None,
    column: options.Column = None,
    id_column: options.IdColumn = None,
    model: Annotated[str | None, option("--model NAME", "Encode --column, as prcut embed.")] = None,
    assign: Annotated[bool, option("--assign/--no-assign", "Write labels of all rows.")] = True,
    top: options.Top = 0,
    report: Annotated[str | None, option("--report FILE", "Write names and a report.")] = None,
    texts: options.Texts = None,
    images: options.Images = None,
    preset: Annotated[str, option("--preset NAME", PRESET, "Training")] = "default",
    resume: Annotated[bool, option("--resume", "Resume an existing run.", "Running")] = False,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
    memory: options.Memory = None,
    engine: options.EngineName = "local",
    address: options.Address = None,
    **settings: Any,
) -> Results:
    """Cluster DATA into a run folder: model, labels, history and log.

    [bold]Examples[/bold]

    prcut fit embeddings.npy --clusters 10

    prcut fit embeddings.npy --clusters auto

    prcut fit parts/ -k 100 --column embedding --id-column id --out run

    prcut fit parts/ -k 100 --column embedding --id-column id --out run --resume

    prcut fit parts/ -k 100 --column embedding --texts body --report report.html

    prcut fit texts.parquet --column body --model minilm -k auto

    prcut fit s3://bucket/parts -k 1000 --out s3://bucket/run --engine ray --address auto
    """
    from prcut.fit.config import FitConfig
    from prcut.runtime.device import parse_bytes
    from prcut.runtime.sources import open_source

    # everything that can be checked before any work
    wanted = parse_clusters(clusters)
    path = out or f"{Path(data.rstrip('/')).stem}-prcut"
    if resume and overwrite:
        raise InvalidInputError("give either --resume or --overwrite.")
    if report is None and (texts or images):
        raise InvalidInputError("--texts and --images are for a report; add --report FILE.")
    if overwrite:
        remove_earlier(path, data, "run")
    messages.again += "" if resume else " --resume"
    check_run_folder(path, None if resume else messages.again)
    settings = {"preset": preset, **settings}
    config = FitConfig.of(n_clusters=wanted if isinstance(wanted, int) else 1, **settings)
    if isinstance(wanted, int):
        _check_top(top, wanted)
    limit = None if memory is None else parse_bytes(memory)
    with _removed_if_rejected(path):
        if "://" not in path:
            Path(path).mkdir(parents=True, exist_ok=True)
            messages.log_to(Path(path) / "log.txt")
        if model is not None:
            data, column = _embed(messages, data, column, model, path, device)
        source = open_source(data, column=column, id_column=id_column)
        if report is not None:
            from prcut.ui.report.row_contents import check_contents

            check_contents(source, texts, images)
        messages.say(f"run folder {path}, prcut {prcut.__version__}")
        if not isinstance(wanted, int):
            n_clusters, *coarser = _count_clusters(source, path, config, wanted)
            config = FitConfig.of(n_clusters=n_clusters, layer_sizes=tuple(coarser), **settings)
            messages.say(f"{n_clusters} clusters")
            _check_top(top, n_clusters)
        where: dict[str, Any] = {"column": column, "id_column": id_column, "device": device}
        where["engine"] = open_engine(engine, address)
        with messages.progress(config) as display:
            from prcut.runs.run import fit_run

            where |= {"on_progress": display.on_progress, "on_record": display.on_record}
            result = fit_run(data, path, config, memory=limit, **where)

    results: Results = {"run": result.path, "model": f"{result.path}/model"}
    if assign:
        labels = f"{result.path}/labels"
        del where["on_progress"], where["on_record"]
        written = write_labels(messages, path, data, labels, of_fit=True, top=top, **where)
        results["labels"] = labels
        if written.n_outliers is not None:
            results["outliers"] = written.n_outliers
    if report is not None:
        _write_report(messages, path, report, texts, images)
        results["report"] = report
    return results | {
        "rows": result.n_samples,
        "used_clusters": result.used_clusters,
        "objective": result.objective,
        "ratio_cut": result.ratio_cut,
        "steps": result.n_steps,
    }


def parse_clusters(text: str) -> int | str | tuple[int, ...]:
    """Return a number of clusters, ``"auto"``, or two limits such as ``5,50``."""
    if text == "auto":
        return text
    numbers = [number.strip() for number in text.split(",")]
    if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        rule = "must be a whole number, auto, or two numbers such as 5,50"
        raise InvalidInputError(f"--clusters {text!r} {rule}.")
    return int(numbers[0]) if len(numbers) == 1 else tuple(map(int, numbers))


def _check_top(top: int, n_clusters: int) -> None:
    if not 0 <= top <= n_clusters:
        raise InvalidInputError(f"{top=} must be from 0 to {n_clusters=}.")


def check_run_folder(path: str, again: str | None = None) -> Folder:
    """Return the folder of a run to begin or resume; reject one with other files.

    If ``again``, the command that resumes the run, is given, reject a run as well.
    """
    from prcut.runtime.folder import Folder

    folder = Folder(path)
    folder.check_is_no_file()
    if not folder.exists("plan.json"):
        if set(folder.names(folders=True)) - _BEGINNING:
            raise InvalidInputError(f"{path} holds other files; choose another --out.")
    elif again is not None:
        todo = f"an unfinished run; resume it with `{again}`"
        if folder.exists("result.json"):
            todo = f"a finished run; look at it with `prcut report {path}`"
        raise InvalidInputError(
            f"{path} holds {todo}, replace it with --overwrite, or choose another --out."
        )
    return folder


def _embed(
    messages: Messages, data: str, column: str | None, model: str, path: str, device: str
) -> tuple[str, str]:
    """Embed the data inside the run folder; return the file and its column."""
    from prcut.curate.embed import VECTOR, embed_file

    file = f"{path}/embeddings/vectors.parquet"
    with messages.progress() as display:
        embed_file(data, model, file, column=column, device=device, on_progress=display.on_progress)
    return file, VECTOR


def _write_report(
    messages: Messages, run: str, path: str, texts: str | None, images: str | None
) -> None:
    """Name the clusters of a run from its texts, if any, and write its report."""
    from prcut.ui.naming import name_run
    from prcut.ui.report.report import write_report

    with messages.progress() as display:
        if texts is not None:
            name_run(run, texts=texts, on_progress=display.on_progress)
        write_report(run, path, texts=texts, images=images, on_progress=display.on_progress)


def _count_clusters(source: Any, path: str, config: Any, wanted: Any) -> list[int]:
    """Return the sizes of the layers, found by a sample of the rows or read from the plan."""
    from prcut.fit.choose import choose_n_clusters
    from prcut.runs.folder import COUNT, read_plan
    from prcut.runtime.folder import Folder
    from prcut.runtime.sources import sample_rows

    if (folder := Folder(path)).exists("plan.json"):
        plan = read_plan(folder)
        return [int(plan["n_clusters"]), *map(int, plan.get("layer_sizes", ()))]
    sample = sample_rows(source, _COUNTED_ROWS, [config.seed, 11])
    count, _ = choose_n_clusters(sample, None, config, wanted)
    curve = {"tried": count.tried.tolist(), "agreement": count.agreement.round(6).tolist()}
    folder.write_json(COUNT, {"n_clusters": count.n_clusters, "layers": count.layers(), **curve})
    return count.layers()


def write_labels(
    messages: Messages,
    run_or_model: str,
    data: str,
    path: str,
    *,
    of_fit: bool = False,
    with_names: bool = False,
    **options: Any,
) -> LabelFiles:
    """Write the labels of all rows of the data.

    With ``of_fit``, the run was fitted to these data: its partition gives the labels, and its
    status shows the progress. For options, see :func:`prcut.runs.labels.assign_parquet`.
    """
    from prcut.curate.names import read_names
    from prcut.fit.saved_fit import coarse_labels, read_ids, read_rule
    from prcut.runs.labels import RowLabels, assign_parquet
    from prcut.runtime.folder import Folder
    from prcut.runtime.progress import StatusWriter

    loaded: Any = load(run_or_model)
    layers = coarse_labels(loaded)
    if with_names:
        names = read_names(run_or_model, loaded.assigner.n_clusters)
        if names is None:
            raise InvalidInputError(
                f"{run_or_model} has no names; make them with `prcut name {run_or_model}`."
            )
        options["names"] = names.columns(layers)
    partition = Folder(run_or_model) / "partition"
    if of_fit and partition.exists("manifest.json"):
        options["partition"] = RowLabels(partition)
    # a display of its own: together with the bars of training it would not fit in 80 columns
    with messages.progress() as display:
        status = StatusWriter(run_or_model).also(display.on_progress)
        options["on_progress"] = status if of_fit else display.on_progress
        options |= {"layers": layers, "cluster_ids": read_ids(loaded)}
        options["outliers"] = read_rule(model_path(run_or_model), loaded)
        return assign_parquet(loaded.assigner, data, path, **options)


@contextmanager
def _removed_if_rejected(path: str) -> Iterator[None]:
    """Remove a new run folder if the input is rejected."""
    is_new = not Path(path).exists()
    try:
        yield
    except InvalidInputError:
        left = {one.name for one in Path(path).glob("*")} if is_new else set()
        if left and left <= {"plan.json", "log.txt", "count.json"}:
            shutil.rmtree(path, ignore_errors=True)
        raise
