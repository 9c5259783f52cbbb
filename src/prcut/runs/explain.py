"""Why rows of a finished run are in their clusters, by its graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prcut.errors import InvalidInputError
from prcut.fit.known import Known
from prcut.graph.blocks.read import open_joined
from prcut.graph.similarity_graph import load_graph
from prcut.runs.labels import RowLabels
from prcut.runs.update import FinishedRun
from prcut.runtime.sources import Source, read_all, rows_per_read
from prcut.search.explain import Reasons, find_reasons
from prcut.search.fragments import CoarseGraph, as_coarse


class RunReasons(NamedTuple):
    """Numbers of rows, rising, their ids where these were given, and why they are there."""

    rows: np.ndarray
    ids: list[str] | None
    reasons: Reasons


def explain_run(
    path: str | Path,
    rows: Sequence[int] | None = None,
    ids: Sequence[str] | None = None,
    *,
    data: Any = None,
) -> RunReasons:
    """Say why rows of a finished run, given by number or by id, are in their clusters.

    Parameters
    ----------
    path : str or path
        A run folder; of an updated run, neighbours are those among its own rows.
    rows : sequence of int, optional
    ids : sequence of str, optional
        Ids in the run's id column, in place of the numbers.
    data : array, or path or URI, optional
        What was clustered, where the run does not record it or it has moved.
    """
    run = FinishedRun.open(path, data)
    numbers = _find_ids(run.source, ids) if ids else np.unique(np.asarray(rows or [], np.int64))
    if not len(numbers):
        raise InvalidInputError("no rows to explain: give numbers of rows, or ids.")
    n_samples = run.source.n_samples
    if numbers[0] < 0 or numbers[-1] >= n_samples:
        raise InvalidInputError(f"row {numbers[[0, -1]].max()} is none of {n_samples=}.")
    names = None if ids is None else [_name(run.source, number) for number in numbers.tolist()]
    return RunReasons(numbers, names, _explain(run, numbers).named(run.fit.names.ids))


def _name(source: Source, number: int) -> str:
    ids = source.read_ids(number, number + 1)
    assert ids is not None  # noqa: S101
    return str(ids[0].as_py())


def _find_ids(source: Source, ids: Sequence[str]) -> np.ndarray:
    """Return the numbers of the rows that have these ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found, seen, step = [np.empty(0, np.int64)], set[str](), rows_per_read(source)
    for start in range(0, source.n_samples, step):
        names = source.read_ids(start, min(start + step, source.n_samples))
        if names is None:
            raise InvalidInputError("the run has no id column; give numbers of rows.")
        texts = pc.cast(names, pa.string())
        is_in = pc.is_in(texts, value_set=pa.array(list(ids), pa.string()))
        found.append(start + np.flatnonzero(is_in.to_numpy(zero_copy_only=False)))
        seen |= set(texts.filter(is_in).to_pylist())
    if missing := [one for one in ids if one not in seen]:
        raise InvalidInputError(f"no row has the id {missing[0]!r}.")
    return np.concatenate(found)


def _explain(run: FinishedRun, numbers: np.ndarray) -> Reasons:
    """Compare the clusters of the rows with those of their neighbours in the run's graph."""
    partition = run.folder / "partition"
    if run.plan["mode"] == "disk":
        joined = open_joined(run.folder / "graph")
        rows = np.array(joined.rows)
        labels = RowLabels(partition).read()[rows]
        known = Known.of_source(run.source, run.config, rows)
        graph = known.weigh(CoarseGraph.of_arrays(*joined[1:]))
    else:
        saved, rows = load_graph(run.folder / "graph"), np.arange(run.source.n_samples)
        if saved.n_samples == run.source.n_samples:
            labels = run.labels(rows, read_all(run.source))
        else:  # an update compares so many rows only
            labels = RowLabels(partition).read()[rows].astype(np.int64)
            rows, labels = np.flatnonzero(labels >= 0), labels[labels >= 0]
        known = Known.of_source(run.source, run.config, rows)
        graph = as_coarse(known.weigh(saved))
    order = np.argsort(rows)
    place = order[np.minimum(np.searchsorted(rows, numbers, sorter=order), len(rows) - 1)]
    if len(missing := numbers[rows[place] != numbers]):
        raise InvalidInputError(
            f"row {missing[0]} has no neighbours, and no reason: the model alone gave it a cluster."
        )
    n_clusters = run.fit.assigner.n_clusters
    return find_reasons(graph, labels, n_clusters, run.balance_weight, place, known.weights)
