"""Name the clusters of a run: from its texts, by a namer, or as sheets of its images."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from prcut.errors import DataWarning, InvalidInputError
from prcut.graph.build import build_graph
from prcut.graph.saved import load_graph
from prcut.pipeline.names import Namer, Names, name_clusters, write_names
from prcut.pipeline.run_folder import check_finished, read_plan
from prcut.pipeline.saved_fit import parse_fit
from prcut.runtime.folder import Folder, parsing
from prcut.runtime.progress import Progress, Reporter
from prcut.runtime.sources import Source, rows_per_read
from prcut.training.assigner.predict import assign_labels
from prcut.training.assigner.saved import load_model
from prcut.ui.report.row_contents import read_images, read_texts
from prcut.ui.report.saved_run import open_data

SHEETS = "sheets"
# rows that are read where the graph is on disk, and the neighbours among them
_MOST_ROWS, _N_NEIGHBORS = 50_000, 15
# images in a line of a contact sheet, their pixels, and sheets made at a time
_ACROSS, _PIXELS, _AT_ONCE = 3, 96, 100
# by the end of a name, how pyarrow reads a file of texts; other files and folders are Parquet
_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


def name_run(
    run: str | Path,
    *,
    texts: Any = None,
    text_column: str | None = None,
    images: Any = None,
    data: Any = None,
    language: str = "english",
    namer: Namer | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Names:
    """Name the clusters and layers of a finished run, and write ``names.json`` into its folder.

    Parameters
    ----------
    run : str or path
    texts : optional
        Of the rows: see :mod:`prcut.ui.report.row_contents`.
    text_column : str, optional
        Column of ``texts``, where that is a Parquet, CSV or JSON lines file or a folder.
    images : optional
        Of the rows; a contact sheet of every cluster is written to ``sheets``.
    data : array, or path or URI, optional
        What was clustered, where the run does not record it or it has moved.
    language, namer
        See :func:`prcut.pipeline.names.name_clusters`.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress`.
    """
    if texts is None and images is None:
        raise InvalidInputError("names need texts or images of the rows: pass --texts or --images.")
    if text_column is not None and texts is None:
        raise InvalidInputError(f"{text_column=} is a column of texts; pass --texts FILE as well.")
    folder = Folder(run)
    plan = read_plan(folder)
    check_finished(folder)
    with parsing(f"{run}/plan.json"):
        source = open_data(run, data, plan)
        metric = plan["metric"]
    in_memory = plan["mode"] == "memory"
    ranges = _choose_ranges(source, None if in_memory else _MOST_ROWS)
    rows = np.concatenate([np.arange(*one) for one in ranges])
    # before the rows are assigned: a column that is missing is found at once
    if text_column is not None:
        texts = _read_column(str(texts), text_column)
    found = None if texts is None else read_texts(source, texts, rows)
    labels, features, about = _assign(folder, plan, source, ranges, on_progress)
    graph = load_graph(folder / "graph") if in_memory else None
    if graph is None and len(rows) > 1:
        with warnings.catch_warnings():  # of the data, which the run has had
            warnings.simplefilter("ignore", DataWarning)
            graph = build_graph(features, min(_N_NEIGHBORS, len(rows) - 1), metric=metric)
    n_exemplars = 3 if images is None else _ACROSS**2
    how: dict[str, Any] = {"language": language, "namer": namer, "n_exemplars": n_exemplars}
    names = _number_rows(name_clusters(found, labels, graph=graph, **about, **how), rows)
    if images is not None:
        _write_sheets(folder / SHEETS, source, images, names)
    write_names(folder, names)
    return names


def _choose_ranges(source: Source, most: int | None) -> list[tuple[int, int]]:
    """Choose all rows, or ranges of them that are spread evenly."""
    step = rows_per_read(source) if most is None else 1024
    starts = np.arange(0, source.n_samples, step)
    if most is not None and source.n_samples > most:
        starts = starts[np.unique(np.linspace(0, len(starts) - 1, most // step).astype(int))]
    return [(start, min(start + step, source.n_samples)) for start in starts.tolist()]


def _assign(
    folder: Folder,
    plan: dict[str, Any],
    source: Source,
    ranges: list[tuple[int, int]],
    on_progress: Callable[[Progress], None] | None,
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return labels and features of the rows, and how the clusters of the model merge.

    Features are empty where the run has its graph in memory, and none has to be made of them.
    """
    loaded = load_model(f"{folder.path}/model")
    assigner, fitted = loaded.assigner, parse_fit(loaded).fitted
    report = Reporter("name", sum(stop - start for start, stop in ranges), on_progress)
    labels, kept = [], [np.empty((0, source.n_features), np.float32)]
    for start, stop in ranges:
        features = source.read(start, stop)
        labels.append(assign_labels(assigner, features))
        if plan["mode"] != "memory":
            kept.append(np.asarray(features, np.float32))
        report.advance(stop - start)
    about = {
        "tree": fitted.get("merge_tree_"),
        "layer_sizes": fitted.get("layer_sizes_", ()),
        "n_clusters": assigner.n_clusters,
    }
    return np.concatenate(labels), np.concatenate(kept), about


def _read_column(path: str, column: str) -> list[Any]:
    from pyarrow import ArrowException, dataset

    try:
        data = dataset.dataset(path, format=_FORMATS.get(Path(path).suffix, "parquet"))
        if column not in data.schema.names:
            known = ", ".join(data.schema.names)
            raise InvalidInputError(
                f"--text-column {column!r} must be a column of {path}: {known}."
            )
        return data.to_table(columns=[column])[column].to_pylist()  # type: ignore[no-any-return]
    except (ArrowException, OSError) as error:
        raise InvalidInputError(
            f"{path} is not a Parquet, .csv or .jsonl file of texts: {error}"
        ) from error


def _number_rows(names: Names, rows: np.ndarray) -> Names:
    """Give exemplars, which are places among the rows that were read, their numbers of rows."""

    def renumber(cluster: Any) -> Any:
        exemplars = [one._replace(row=int(rows[one.row])) for one in cluster.exemplars]
        return cluster._replace(exemplars=exemplars)

    layers = {size: [*map(renumber, layer)] for size, layer in names.layers.items()}
    return Names([*map(renumber, names.clusters)], layers)


def _write_sheets(folder: Folder, source: Source, images: Any, names: Names) -> None:
    """Write a picture of the exemplars of every cluster that has any."""
    import io

    from PIL import Image

    for start in range(0, len(names.clusters), _AT_ONCE):
        some = names.clusters[start : start + _AT_ONCE]
        rows = np.unique([one.row for cluster in some for one in cluster.exemplars]).astype(int)
        found = dict(zip(rows.tolist(), read_images(source, images, rows), strict=True))
        for number, cluster in enumerate(some, start):
            if not cluster.exemplars:
                continue
            sheet = Image.new("RGB", (_ACROSS * _PIXELS, _ACROSS * _PIXELS), "white")
            for place, one in enumerate(cluster.exemplars):
                image = Image.fromarray(found[one.row]).convert("RGB")
                scale = _PIXELS / max(image.size)
                image = image.resize([max(1, round(scale * side)) for side in image.size])
                sheet.paste(image, (place % _ACROSS * _PIXELS, place // _ACROSS * _PIXELS))
            content = io.BytesIO()
            sheet.save(content, "PNG")
            folder.write_bytes(f"cluster-{number:05d}.png", iter([content.getvalue()]))
