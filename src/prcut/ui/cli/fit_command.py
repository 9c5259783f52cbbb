"""``prcut fit``: cluster data into a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import prcut
from prcut.errors import InvalidInputError
from prcut.ui.cli import options
from prcut.ui.cli.embed_command import embed_data
from prcut.ui.cli.name_command import check_contents, write_named_report
from prcut.ui.cli.shared import (
    command_again,
    echo,
    load,
    messages_of,
    open_engine,
    remove_earlier,
)

if TYPE_CHECKING:
    from prcut.pipeline.config import FitConfig
    from prcut.pipeline.labels import LabelFiles
    from prcut.ui.cli.console import Messages

# what is printed of a result, by the names of its attributes
_FIGURES = {
    "rows": "n_samples",
    "used_clusters": "used_clusters",
    "objective": "objective",
    "ratio_cut": "ratio_cut",
    "steps": "n_steps",
}
# rows by which the number of clusters is found
_COUNTED_ROWS = 20_000


@options.with_options(*options.SETTINGS)
def fit(
    ctx: typer.Context,
    data: str,
    clusters: str,
    out: str | None = None,
    column: str | None = None,
    id_column: str | None = None,
    text_column: str | None = None,
    image_column: str | None = None,
    model: str | None = None,
    assign: bool = True,
    top: int = 0,
    report: str | None = None,
    texts: str | None = None,
    images: str | None = None,
    preset: str = "default",
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    memory: str | None = None,
    engine: str = "local",
    address: str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> None:
    """Cluster DATA into a run folder: model, labels, history and log.

    [bold]Examples[/bold]

    prcut fit embeddings.npy --clusters 10

    prcut fit embeddings.npy --clusters auto

    prcut fit parts/ -k 100 --column embedding --id-column id --out run

    prcut fit parts/ -k 100 --column embedding --id-column id --out run --resume

    prcut fit parts/ -k 100 --column embedding --texts body --report report.html

    prcut fit texts.parquet --text-column body --model minilm -k auto

    prcut fit s3://bucket/parts -k 1000 --out s3://bucket/run --engine ray --address auto
    """
    from prcut.pipeline.config import FitConfig
    from prcut.runtime.memory import parse_bytes

    wanted = options.parse_clusters(clusters)
    path = out or f"{Path(data.rstrip('/')).stem}-prcut"
    again = command_again(ctx, "--resume")
    if overwrite:
        if resume:
            raise InvalidInputError("give either --resume or --overwrite.")
        remove_earlier(path, data, "run")
    _check_run(path, resume, again)
    configure: Any = partial(FitConfig.of, preset, **settings)  # type: ignore[arg-type]
    config = configure(wanted if isinstance(wanted, int) else 1)
    if isinstance(wanted, int):
        _check_top(top, wanted)
    limit = None if memory is None else parse_bytes(memory)
    with (
        _removed_if_refused(path),
        messages_of(quiet, again, log=_log_file(path)) as messages,
    ):
        source: dict[str, Any] = {"column": column, "id_column": id_column, "device": device}
        source["engine"] = open_engine(engine, address)
        if model or text_column or image_column:
            how = {"text_column": text_column, "image_column": image_column}
            data = _embed(data, model, path, messages, source, how)
            texts = (texts or text_column) if report else texts
        columns = {name: source[name] for name in ("column", "id_column")}
        check_contents(data, report, texts, images, **columns)
        messages.say(f"run folder {path}, prcut {prcut.__version__}")
        if not isinstance(wanted, int):
            n_clusters, *coarser = _count_clusters(data, path, columns, config, wanted)
            config = configure(n_clusters, layer_sizes=tuple(coarser))
            messages.say(f"{config.n_clusters} clusters")
            _check_top(top, config.n_clusters)
        result = _run(data, path, config, messages, limit, source)
        results: dict[str, Any] = {"run": result.path, "model": f"{result.path}/model"}
        if assign:
            results["labels"] = f"{result.path}/labels"
            written = write_labels(result, data, messages, top=top, **source)
            results |= {} if written.n_outliers is None else {"outliers": written.n_outliers}
        results |= write_named_report(result.path, report, messages, texts, images)
    echo(results | {name: getattr(result, _FIGURES[name]) for name in _FIGURES})


def _embed(
    data: str,
    model: str | None,
    path: str,
    messages: Messages,
    source: dict[str, Any],
    how: dict[str, Any],
) -> str:
    """Embed the data inside the run; return where, and change the source to these vectors."""
    from prcut.pipeline.embed_files import VECTOR

    if model is None:
        raise InvalidInputError("texts and images need an encoder; add --model NAME.")
    if source["column"] is not None:
        raise InvalidInputError("--column is for vectors; leave it out where --model makes them.")
    how |= {name: source[name] for name in ("id_column", "device", "engine")}
    # a report shows the texts beside their vectors
    how["keep"] = [name for name in (how["text_column"],) if name]
    where = f"{path}/embeddings"
    source["id_column"] = embed_data(data, model, where, messages, **how).id_column
    source["column"] = VECTOR
    return where


def _check_top(top: int, n_clusters: int) -> None:
    if not 0 <= top <= n_clusters:
        raise InvalidInputError(f"{top=} must be from 0 to {n_clusters=}.")


def _count_clusters(
    data: str, path: str, columns: dict[str, Any], config: FitConfig, wanted: Any
) -> list[int]:
    """Return the sizes of the layers of a sample of the rows, or what an earlier call found."""
    from prcut.pipeline.choose import choose_n_clusters
    from prcut.pipeline.run_folder import COUNT, read_plan
    from prcut.runtime.folder import Folder
    from prcut.runtime.sources import open_source, sample_rows

    if (folder := Folder(path)).exists("plan.json"):
        plan = read_plan(folder)
        return [int(plan["n_clusters"]), *map(int, plan.get("layer_sizes", ()))]
    sample = sample_rows(open_source(data, **columns), _COUNTED_ROWS, [config.seed, 11])
    count, _ = choose_n_clusters(sample, None, config, wanted)
    curve = {"tried": count.tried.tolist(), "agreement": count.agreement.round(6).tolist()}
    folder.write_json(COUNT, {"n_clusters": count.n_clusters, "layers": count.layers(), **curve})
    return count.layers()


def _run(
    data: str,
    path: str,
    config: FitConfig,
    messages: Messages,
    memory: int | None,
    source: dict[str, Any],
) -> Any:
    """Fit, with bars of progress."""
    from prcut.pipeline.run import fit_run

    with messages.progress(config) as display:
        return fit_run(
            data,
            path,
            config,
            memory=memory,
            on_progress=display.on_progress,
            on_record=display.on_record,
            **source,
        )


def write_labels(result: Any, data: str, messages: Messages, **how: Any) -> LabelFiles:
    """Write the labels of all rows of a run into its folder."""
    from prcut.pipeline.labels import assign_parquet
    from prcut.pipeline.outofcore.row_labels import RowLabels
    from prcut.pipeline.saved_fit import coarse_labels, read_ids, read_rule
    from prcut.runtime.folder import Folder
    from prcut.runtime.progress import StatusWriter

    # bars of their own: beside those of the training they would not fit in 80 columns
    with messages.progress() as display:
        on_progress = StatusWriter(result.path).also(display.on_progress)
        path, found = f"{result.path}/labels", Folder(f"{result.path}/partition")
        how["partition"] = RowLabels(found) if found.exists("manifest.json") else None
        loaded = load(result.path)
        how["layers"], how["cluster_ids"] = coarse_labels(loaded), read_ids(loaded)
        how["outliers"] = read_rule(f"{result.path}/model", loaded)
        return assign_parquet(result.assigner, data, path, on_progress=on_progress, **how)


def _log_file(path: str) -> Path | None:
    """Return the log of a run on a local disk; other runs have none."""
    if "://" in path:
        return None
    Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path) / "log.txt"


@contextmanager
def _removed_if_refused(path: str) -> Iterator[None]:
    """Remove a run folder that was made only to find that its input is not usable."""
    is_new = not Path(path).exists()
    try:
        yield
    except InvalidInputError:
        made = list(Path(path).glob("*")) if is_new else []
        if made and {one.name for one in made} <= {"plan.json", "log.txt", "count.json"}:
            for one in made:
                one.unlink()
            Path(path).rmdir()
        raise


def _check_run(path: str, resume: bool, again: str) -> None:
    """Refuse a folder that holds anything but a run to resume."""
    from prcut.runtime.folder import Folder

    folder = Folder(path)
    folder.check_is_no_file()
    if folder.exists("plan.json"):
        if not resume:
            todo = f"an unfinished run; resume it with `{again}`"
            if folder.exists("result.json"):
                todo = f"a finished run; look at it with `prcut report {path}`"
            raise InvalidInputError(
                f"{path} holds {todo}, replace it with --overwrite, or choose another --out."
            )
        return
    # a run that was killed before its plan was written leaves only its log, a number, embeddings
    if set(folder.names(folders=True)) - {"log.txt", "count.json", "embeddings"}:
        raise InvalidInputError(f"{path} holds other files; choose another --out.")
