"""Near-duplicates of a whole collection: groups of rows within ε, and the row of each to keep.

::

    kept/        ids of the rows to keep, in the order of the data, as Parquet
    groups/      id, group and kept of every row that has a duplicate; a group is named by the
                 number of the row that it keeps
    _prcut/      plan and records, under a name that readers of Parquet skip

Rows with the same bytes are found by their digests, however many there are; other pairs are found
inside blocks, whose halos hold the pairs across their borders. Every stage is a set of idempotent
tasks: the same call resumes a killed one, with the same bytes. Memory holds one block, and some 50
bytes for each row that has a duplicate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prcut.errors import InvalidInputError
from prcut.graph.neighbors import Metric
from prcut.graph.within import check_epsilon
from prcut.pipeline import dedup_stages as stages
from prcut.pipeline.dedup_stages import Job
from prcut.pipeline.labels import STATE_FOLDER, check_new
from prcut.pipeline.outofcore.build_blocks import BlockConfig, build_blocks
from prcut.pipeline.run_folder import read_plan
from prcut.pipeline.run_plan import GraphConfig, choose_mode, usable_memory
from prcut.runtime.engine import Engine, LocalEngine
from prcut.runtime.folder import Folder, absolute_path, plan_key
from prcut.runtime.parquet_source import ParquetSource
from prcut.runtime.progress import Progress
from prcut.runtime.sources import Source, cut_row_ranges, open_source, rows_per_read

_FORMAT = 1
# cells that a row is sent to: duplicates are nearer to each other than neighbours are
_HALO = 3
# rows of a file
_FILE_ROWS = 2**22


class Duplicates(NamedTuple):
    """What :func:`find_duplicates` has written; ``n_copies`` rows have the bytes of another."""

    path: str
    n_samples: int
    n_kept: int
    n_groups: int
    n_copies: int


def find_duplicates(
    data: Any,
    path: str | Path,
    *,
    epsilon: float = 0.05,
    metric: Metric = "cosine",
    keep: str = "exemplar",
    column: str | None = None,
    id_column: str | None = None,
    memory: int | None = None,
    seed: int = 0,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Duplicates:
    """Write which rows of ``data`` to keep, or finish what an earlier call began.

    Rows within ``epsilon`` are linked, and linked rows form a group. A group in which no row is
    within ``epsilon`` of all others is a chain, and is cut where its ratio cut is low.

    Parameters
    ----------
    data : str, path, array or Source
        A run folder, or what :func:`prcut.runtime.open_source` opens.
    path : str or path
        A new or empty folder, local or a URI.
    epsilon : float
        The largest distance of near-duplicates: 1 − cosine, or the Euclidean distance.
    keep : str
        ``"exemplar"``, the row within ``epsilon`` of all others that is nearest to them; or
        ``"best:COLUMN"``, the row with the largest value in a column of numbers.
    memory : int, optional
        Bytes that the data may take; see :func:`prcut.pipeline.fit_run`, also for ``engine``.

    Examples
    --------
    >>> import tempfile
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [1.0, 0.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = find_duplicates(rows, folder)
    ...     pq.read_table(f"{folder}/kept")["row"].to_pylist()
    [0, 1]
    """
    check_epsilon(epsilon, metric)
    source = _open_data(data, column, id_column)
    values = _check_keep(keep, source)
    folder, engine = Folder(path), engine or LocalEngine()
    if not isinstance(engine, LocalEngine) and source.path is None:
        raise InvalidInputError("data must be a path or URI that all nodes see, not an array.")
    if getattr(source, "id_column", None) in ("group", "kept"):
        raise InvalidInputError(f"{id_column=} is the name of a result; rename the column.")
    check_new(folder)
    state = folder / STATE_FOLDER
    plan = {
        "kind": "duplicates",
        "format": _FORMAT,
        "fingerprint": source.fingerprint,
        **{name: getattr(source, name, None) for name in ("column", "id_column")},
        "epsilon": epsilon,
        "metric": metric,
        "keep": keep,
        "seed": seed,
        **_choose_mode(state, source, metric, memory, isinstance(engine, LocalEngine)),
    }
    state.start(plan)
    cuts = cut_row_ranges(source, rows_per_read(source))
    given = values, epsilon, metric, seed, plan_key(plan), cuts
    job = Job(state / "work", source, *given)
    if not state.exists("manifest.json"):
        options: dict[str, Any] = {"engine": engine, "on_progress": on_progress}
        counts = _run_stages(job, path, plan, options)
        state.write_json("manifest.json", {"key": job.key, "plan": plan, "counts": counts})
    job.work.delete()
    folder.clear_unfinished()
    counts = state.read_json("manifest.json")["counts"]
    return Duplicates(str(path), source.n_samples, *counts)


def _run_stages(
    job: Job, path: str | Path, plan: dict[str, Any], options: dict[str, Any]
) -> tuple[int, int, int]:
    """Run every stage; return how many rows are kept, how many groups there are, and copies."""
    source = job.source
    total: Any = {"total": source.n_samples, "on_progress": options["on_progress"]}
    run = partial(options["engine"].run, **total)
    run("digest", partial(stages.send_digests, job), job.n_ranges)
    run("copies", partial(stages.find_copies, job), job.n_digest_buckets)
    stages.join_copies(job)
    if plan["mode"] == "disk":
        sizes = stages.N_NEIGHBORS, job.metric, plan["block_rows"], _HALO
        # one anchor: pairs within ε are found more quickly than all neighbours
        config = BlockConfig(*sizes, anchors=1e-9, seed=job.seed)
        # by its URI, if it has one, which a folder does not know
        where = f"{absolute_path(path)}/{STATE_FOLDER}/work/blocks"
        job = job._replace(blocks=build_blocks(source, where, config, **options))
    run("pairs", partial(stages.find_pairs, job), job.n_parts)
    n_buckets = stages.join_pairs(job)
    run("send groups", partial(stages.send_groups, job, n_buckets), job.n_parts)
    run("split groups", partial(stages.split_groups, job), n_buckets)
    counts = stages.join_groups(job, n_buckets)
    run(
        "write",
        partial(_write_range, job, Folder(path)),
        len(cut_row_ranges(source, _FILE_ROWS)) - 1,
    )
    return counts


# -- what is given ---------------------------------------------------------------------------------


def _open_data(data: Any, column: str | None, id_column: str | None) -> Source:
    """Open the data, or those of a run."""
    if not isinstance(data, str | Path) or not Folder(data).exists("plan.json"):
        return open_source(data, column=column, id_column=id_column)
    plan = read_plan(Folder(data))
    where = plan.get("data")
    if where is None:
        raise InvalidInputError(f"{data} does not say where its data are; give the data instead.")
    columns = {"column": column or plan["column"], "id_column": id_column or plan["id_column"]}
    return open_source(where, **columns)


def _check_keep(keep: str, source: Source) -> str | None:
    """Return the column of the values that decide which row is kept, if there is one."""
    if keep == "exemplar":
        return None
    kind, _, column = keep.partition(":")
    if kind != "best" or not column:
        raise InvalidInputError(f"{keep=} must be exemplar, or best:COLUMN.")
    if not isinstance(source, ParquetSource):
        raise InvalidInputError(f"{keep=} needs Parquet data, which have columns.")
    stages.read_values(source, column, 0, min(1, source.n_samples))
    return column


def _choose_mode(
    state: Folder, source: Source, metric: Metric, memory: int | None, is_local: bool
) -> dict[str, Any]:
    """Choose memory or disk, and the rows of a block; a resumed call keeps what was chosen."""
    if state.exists("plan.json"):
        earlier = state.read_json("plan.json")
        return {name: earlier.get(name) for name in ("mode", "block_rows")}
    usable = usable_memory(memory, is_shared=not is_local)
    graph = GraphConfig(stages.N_NEIGHBORS, metric)
    mode, block_rows = choose_mode(source, graph, usable, on_disk=not is_local)
    return {"mode": mode, "block_rows": block_rows}


# -- files -----------------------------------------------------------------------------------------


def _write_range(job: Job, folder: Folder, number: int, advance: Callable[[int], None]) -> None:
    """Write the ids to keep, and the groups, of a range of rows."""
    start, stop = cut_row_ranges(job.source, _FILE_ROWS)[number : number + 2].tolist()
    name, record = f"part-{number:05d}.parquet", f"written-{number:05d}.json"
    if not job.work.exists(record):
        removed, kept, named = job.read("removed", "rows", "kept", "named")
        inside = slice(*np.searchsorted(removed, [start, stop]))
        group = np.full(stop - start, -1)
        group[removed[inside] - start] = kept[inside]
        own = named[slice(*np.searchsorted(named, [start, stop]))]
        group[own - start] = own
        rows, is_member = np.arange(start, stop), group >= 0
        is_kept = ~is_member | (group == rows)
        ids, id_name = job.source.read_ids(start, stop), getattr(job.source, "id_column", None)
        table = pa.table({id_name or "row": rows if ids is None else ids})
        grouped = table.append_column("group", pa.array(group))
        grouped = grouped.append_column("kept", pa.array(is_kept))
        write_table(folder / "kept", name, table.filter(pa.array(is_kept)))
        write_table(folder / "groups", name, grouped.filter(pa.array(is_member)))
        job.work.write_json(record, {"key": job.key})
    advance(stop - start)


def write_table(folder: Folder, name: str, table: pa.Table) -> None:
    """Write a Parquet file atomically."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    folder.write_bytes(name, iter([memoryview(sink.getvalue())]))
