"""Name the clusters of a run from its texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prcut.curate.names import ClusterName, Namer, Names, name_clusters, write_names
from prcut.runs.update import FinishedRun
from prcut.runtime.progress import OnProgress, Reporter
from prcut.training.assigner.predict import assign_labels
from prcut.ui.report.inspection import choose_ranges
from prcut.ui.report.row_contents import read_texts

# rows that are read at a time
_RANGE_ROWS = 1024
# rows whose texts are read where the graph is on disk, spread over all
_MOST_ROWS = 50 * _RANGE_ROWS


def name_run(
    run: str | Path,
    *,
    texts: Any,
    data: Any = None,
    language: str = "english",
    namer: Namer | None = None,
    on_progress: OnProgress = None,
) -> Names:
    """Name the clusters and layers of a finished run, and write ``names.json`` into its folder.

    Parameters
    ----------
    run : str or path
    texts : column, path or sequence
        The texts of the rows: see :mod:`prcut.ui.report.row_contents`.
    data : array, or path or URI, optional
        The clustered data, if the run does not record it or it has moved.
    language, namer
        See :func:`prcut.curate.names.name_clusters`.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress`.
    """
    finished = FinishedRun.open(run, data)
    source, assigner, fitted = finished.source, finished.fit.assigner, finished.fit.fitted
    most_rows = None if finished.plan.get("mode") == "memory" else _MOST_ROWS
    ranges = choose_ranges(source.n_samples, most_rows, _RANGE_ROWS)
    rows = np.concatenate([np.arange(*one) for one in ranges])
    # before the rows are assigned: a missing column is reported at once
    found = read_texts(source, texts, rows)
    reporter = Reporter("name", len(rows), on_progress)
    labels = []
    for start, stop in ranges:
        labels.append(assign_labels(assigner, source.read(start, stop)))
        reporter.advance(stop - start)
    names = name_clusters(
        found,
        np.concatenate(labels),
        tree=fitted.get("merge_tree_"),
        layer_sizes=fitted.get("layer_sizes_", ()),
        n_clusters=assigner.n_clusters,
        language=language,
        namer=namer,
    )

    def number_rows(cluster: ClusterName) -> ClusterName:
        """Replace positions among the rows that were read by row numbers."""
        exemplars = [one._replace(row=int(rows[one.row])) for one in cluster.exemplars]
        return cluster._replace(exemplars=exemplars)

    layers = {size: [*map(number_rows, layer)] for size, layer in names.layers.items()}
    names = Names([*map(number_rows, names.clusters)], layers)
    write_names(finished.folder, names)
    return names
