"""Why rows of a finished run are in their clusters, by its graph or by its blocks on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.errors import InvalidInputError
from prcut.graph.saved import load_graph
from prcut.pipeline.outofcore.blocks import open_blocks
from prcut.pipeline.outofcore.row_labels import RowLabels, read_sums
from prcut.pipeline.update_run import FinishedRun
from prcut.runtime.sources import Source, read_all, rows_per_read
from prcut.search.explain import Reasons, compare_clusters, find_reasons


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
    if run.plan.get("weight_column") is not None:
        raise InvalidInputError("rows of a run with weights are explained by PRCut.explain only.")
    n_samples = run.source.n_samples
    if numbers[0] < 0 or numbers[-1] >= n_samples:
        raise InvalidInputError(f"row {numbers[[0, -1]].max()} is none of {n_samples=}.")
    explain = _explain_blocks if run.plan["mode"] == "disk" else _explain_graph
    names = None if ids is None else [_name(run.source, number) for number in numbers.tolist()]
    return RunReasons(numbers, names, explain(run, numbers).named(run.fit.names.ids))


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


def _explain_graph(run: FinishedRun, numbers: np.ndarray) -> Reasons:
    graph, everything = load_graph(run.folder / "graph"), np.arange(run.source.n_samples)
    if graph.n_samples == run.source.n_samples:
        labels = run.labels(everything, read_all(run.source))
    else:  # an update compares so many rows only
        labels = RowLabels(run.folder / "partition").take(everything)
        everything, labels = np.flatnonzero(labels >= 0), labels[labels >= 0]
    place = np.searchsorted(everything, numbers)
    if place.max() >= len(everything) or not np.array_equal(everything[place], numbers):
        raise InvalidInputError("some of these rows were given clusters by the model alone.")
    return find_reasons(graph, labels, run.fit.assigner.n_clusters, run.balance_weight, place)


def _explain_blocks(run: FinishedRun, numbers: np.ndarray) -> Reasons:
    """Add up what all blocks say of the rows: an edge may have been found in two of them."""
    partition = run.folder / "partition"
    cost, cuts, sizes = read_sums(partition)
    blocks, similarity = open_blocks(f"{run.folder.path}/blocks"), run.plan["similarity"]
    needs_features = similarity == "cosine" and blocks.metric != "cosine"
    row, near, weight = [], [], []
    for number in range(len(blocks)):
        block = blocks.open(number, with_features=needs_features)
        held = np.flatnonzero(np.isin(block.rows, numbers))
        if len(held):
            links = block.graph(similarity).to_scipy()[held].tocoo()
            row.append(np.searchsorted(numbers, block.rows[held[links.row]]))
            near.append(block.rows[links.col])
            weight.append(links.data.astype(np.float64))
    labels = RowLabels(partition)
    others, column = np.unique(np.concatenate(near), return_inverse=True)
    entries = np.concatenate(weight), (np.concatenate(row), column.reshape(-1))
    links = csr_array(entries, shape=(len(numbers), len(others)))
    own = labels.take(numbers)
    if (own < 0).any():
        raise InvalidInputError(f"row {numbers[own < 0][0]} has no neighbours, and no reason.")
    return compare_clusters(links, own, labels.take(others), cost, cuts, sizes)
