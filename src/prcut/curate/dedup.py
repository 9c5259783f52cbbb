"""Groups of near-duplicates; chains are cut until each group lies within ε of one row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from prcut.errors import InvalidInputError
from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.graph.blocks.read import Blocks
from prcut.graph.neighbors import Metric, Neighbors, find_neighbors
from prcut.numerics.objective import ClusterCost
from prcut.runs.folder import choose_mode, read_plan, usable_memory
from prcut.runs.labels import STATE_FOLDER, check_new
from prcut.runtime.engine import Engine, LocalEngine
from prcut.runtime.folder import Folder, absolute_path, plan_key
from prcut.runtime.parquet import ParquetSource
from prcut.runtime.progress import Progress
from prcut.runtime.sources import Source, cut_row_ranges, open_source, read_all, rows_per_read
from prcut.search.fragments import contract, find_fragments
from prcut.search.merge import merge
from prcut.search.moves import improve

# a distance that is computed twice may differ in the last digits of a float32
_TOLERANCE = 1e-6
# rows with most links that are tried as the exemplar of a group
_MOST_CANDIDATES = 256
# larger chains are contracted to fragments first; also the mean rows of a part
_MOST_MERGED = 1024
_N_FRAGMENTS = 512


class Pairs(NamedTuple):
    """Pairs of different nodes, each once with ``source < target``, and their distances."""

    source: np.ndarray
    target: np.ndarray
    distance: np.ndarray

    def components(self, n_nodes: int) -> np.ndarray:
        """Return the connected component of every node, numbered from 0."""
        ones = np.ones(len(self.source), np.int8)
        graph = coo_array((ones, (self.source, self.target)), shape=(n_nodes, n_nodes))
        labels: np.ndarray = connected_components(graph.tocsr(), directed=False)[1]
        return labels


def distances_to(rows: np.ndarray, others: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the distances of all rows to all others, shape (n_rows, n_others), float64."""
    # SciPy has no cosine of a row of zeros
    found: np.ndarray = np.nan_to_num(cdist(rows, others, metric), nan=1.0)
    return found


def is_within(distances: np.ndarray, epsilon: float) -> np.ndarray:
    """Return which distances are at most ε, but for rounding."""
    near: np.ndarray = distances <= epsilon * (1 + _TOLERANCE) + _TOLERANCE
    return near


def pairs_within(
    features: np.ndarray, nodes: np.ndarray, found: Neighbors, epsilon: float, seed: int = 0
) -> Pairs:
    """Return the pairs of nodes within ε that the neighbours show, and that exemplars show.

    ``nodes`` are those of all rows, numbered from 0: copies of one row are one node. A row all of
    whose neighbours are within ε may have more of them. Of each group of nodes that are linked so
    far and have such a row, an exemplar looks for neighbours among the exemplars of the other
    groups, again and again until none has only near ones. So a group that lies within ε becomes
    one, however large it is.
    """
    n_nodes = int(nodes.max(initial=-1)) + 1
    rows = np.empty(n_nodes, np.int64)
    rows[nodes[::-1]] = np.arange(len(nodes))[::-1]  # the first row of every node
    near, looking = _near_pairs(found, nodes, epsilon)
    pairs = join_pairs([near])
    while len(exemplars := _exemplars(pairs, n_nodes, looking)) > 1:
        n_found = min(found.indices.shape[1], len(exemplars) - 1)
        chosen = np.ascontiguousarray(features[rows[exemplars]])
        again = find_neighbors(chosen, n_found, metric=found.metric, seed=seed)
        more, looking = _near_pairs(again, exemplars, epsilon)
        pairs = join_pairs([pairs, more])
        if n_found == len(exemplars) - 1:  # all were measured
            break
    return pairs


def _near_pairs(found: Neighbors, nodes: np.ndarray, epsilon: float) -> tuple[Pairs, np.ndarray]:
    """Return pairs of nodes within ε, and the nodes all of whose neighbours are."""
    given = np.asarray(found.distances, np.float64)
    distances = np.sqrt(given) if found.metric == "euclidean" else np.maximum(1 - given, 0)
    is_near = is_within(distances, epsilon) & (found.indices >= 0)
    query, rank = np.nonzero(is_near)
    pairs = nodes[found.rows[query]], nodes[found.indices[query, rank]], distances[query, rank]
    return Pairs(*pairs), nodes[found.rows[is_near.all(1)]]


def join_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Return every pair of different nodes once, with its least distance."""
    one, other, distance = (np.concatenate(column) for column in zip(*parts, strict=True))
    source, target = np.minimum(one, other), np.maximum(one, other)
    order = np.lexsort((distance, target, source))
    source, target, distance = source[order], target[order], distance[order]
    is_first = np.ones(len(source), bool)
    is_first[1:] = (np.diff(source) != 0) | (np.diff(target) != 0)
    kept = is_first & (source != target)
    return Pairs(source[kept], target[kept], distance[kept])


def _exemplars(pairs: Pairs, n_nodes: int, looking: np.ndarray) -> np.ndarray:
    """Return the node with most pairs of every component that has a node which is looking."""
    labels = pairs.components(n_nodes)
    degree = np.bincount(np.concatenate([pairs.source, pairs.target]), minlength=n_nodes)
    inside = np.flatnonzero(np.isin(labels, labels[looking]))
    order = inside[np.lexsort((inside, -degree[inside], labels[inside]))]
    return np.sort(order[np.unique(labels[order], return_index=True)[1]])


def split_chains(
    features: np.ndarray, pairs: Pairs, epsilon: float, metric: Metric
) -> list[tuple[int, np.ndarray]]:
    """Cut linked rows into groups, each within ε of its exemplar.

    Return exemplar and rows of every group, in the order of their first rows. A group is a chain if
    no row is within ε of all others. A chain is cut where greedy merging finds a low ratio cut of
    its links, and its parts are cut again if they are chains.

    >>> rows = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> pairs = Pairs(np.arange(3), np.arange(1, 4), np.ones(3))
    >>> [group.tolist() for _, group in split_chains(rows, pairs, 1.0, "euclidean")]
    [[0, 1], [2, 3]]
    """
    if len(features) == 2:  # most are pairs
        return [(0, np.arange(2))]
    shape = len(features), len(features)
    # a pair at the threshold counts half as much as copies
    weight = 1 - pairs.distance / (2 * epsilon)
    links = coo_array((weight, (pairs.source, pairs.target)), shape=shape).tocsr()
    links = csr_array(links + links.T)
    groups, left = [], [np.arange(len(features))]
    while left:
        rows = left.pop()
        inside = links if len(rows) == len(features) else csr_array(links[rows][:, rows])
        exemplar, near = _find_exemplar(features[rows], inside, epsilon, metric)
        if near.all():
            groups.append((int(rows[exemplar]), rows))
        else:
            labels = _cut(inside, near)
            left += [rows[labels == label] for label in range(int(labels.max()) + 1)]
    return sorted(groups, key=lambda group: int(group[1][0]))


def _find_exemplar(
    features: np.ndarray, links: csr_array, epsilon: float, metric: Metric
) -> tuple[int, np.ndarray]:
    """Return the row with most rows within ε, the nearest to all of them, and which rows are."""
    candidates = np.argsort(-links.sum(1), kind="stable")[:_MOST_CANDIDATES]
    distances = distances_to(features, features[candidates], metric)
    near = is_within(distances, epsilon)
    best = np.lexsort((candidates, distances.sum(0).round(9), -near.sum(0)))[0]
    return int(candidates[best]), near[:, best]


def _cut(links: csr_array, near: np.ndarray) -> np.ndarray:
    """Return the part of every row, at least two: cheap merges, then moves that lower the cut."""
    n_rows = links.shape[0]
    fragments = np.arange(n_rows)
    if n_rows > _MOST_MERGED:
        fragments = find_fragments(links, _N_FRAGMENTS, np.random.default_rng(0))
    if fragments.max() == 0:  # one fragment: split off the rows near the exemplar
        return near.astype(np.int64)
    coarse = contract(links, fragments)
    n_parts = min(int(fragments.max()) + 1, max(2, n_rows // _MOST_MERGED))
    cost = ClusterCost.of(n_rows, float(links.sum()), n_parts, balance_weight=0)
    labels, _ = improve(coarse, merge(coarse, cost).labels(n_parts), cost)
    return labels[fragments]


_FORMAT = 1
# neighbours within ε of a row; where a row has more, exemplars find them
_N_NEIGHBORS = 10
# fraction of a row's neighbours to find: most pairs are looked for from both ends, and near ones
# are missed more rarely
_RECALL = 0.9
# cells that a row is sent to: duplicates are nearer to each other than neighbours are
_HALO = 3
# rows of a file
_FILE_ROWS = 2**22
# bytes of a digest: among 10⁹ rows, two different ones share 128 bits with a chance of 10⁻²¹
_DIGEST_BYTES = 16
# bytes of features that are read to split groups
_BATCH_BYTES = 2**29

_Advance = Callable[[int], None]


class Duplicates(NamedTuple):
    """Result of :func:`find_duplicates`; ``n_copies`` rows repeat the bytes of an earlier row."""

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
    """Write which rows of ``data`` to keep, or finish an earlier call.

    Rows within ``epsilon`` are linked, and linked rows form a group. A group in which no row is
    within ``epsilon`` of all others is a chain, and is cut where its ratio cut is low.

    Parameters
    ----------
    data : str, path, array or Source
        A run folder, or data: see :func:`prcut.runtime.open_source`.
    path : str or path
        A new or empty folder, local or a URI.
    epsilon : float
        The largest distance of near-duplicates: 1 − cosine, or the Euclidean distance.
    keep : str
        ``"exemplar"``, the row within ``epsilon`` of all others that is nearest to them; or
        ``"best:COLUMN"``, the row with the largest value in a column of numbers.
    memory : int, optional
        Bytes that the data may take; see :func:`prcut.runs.fit_run`, also for ``engine``.

    Examples
    --------
    >>> import tempfile
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [1.0, 0.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = find_duplicates(rows, folder)
    ...     pq.read_table(f"{folder}/kept")["row"].to_pylist()
    [0, 1]
    """
    if metric not in ("cosine", "euclidean"):
        raise InvalidInputError(f"{metric=} must be 'cosine' or 'euclidean': others have no ε.")
    if not 0 < epsilon < (1 if metric == "cosine" else np.inf):
        limit = "in (0, 1)" if metric == "cosine" else "> 0"
        raise InvalidInputError(f"{epsilon=} must be a {metric} distance {limit}.")
    source = _open_data(data, column, id_column)
    value_column = _check_keep(keep, source)
    folder, engine = Folder(path), engine or LocalEngine()
    is_local = isinstance(engine, LocalEngine)
    if not is_local and source.path is None:
        raise InvalidInputError("data must be a path or URI that all nodes see, not an array.")
    if getattr(source, "id_column", None) in ("group", "kept"):
        raise InvalidInputError(f"{id_column=} is the name of a result; rename the column.")
    check_new(folder)
    state = folder / STATE_FOLDER
    plan: dict[str, Any] = {
        "kind": "duplicates",
        "format": _FORMAT,
        "fingerprint": source.fingerprint,
        "column": getattr(source, "column", None),
        "id_column": getattr(source, "id_column", None),
        "epsilon": epsilon,
        "metric": metric,
        "keep": keep,
        "seed": seed,
    }
    if state.exists("plan.json"):  # a resumed call keeps the mode of the earlier one
        earlier = state.read_json("plan.json")
        plan |= {name: earlier.get(name) for name in ("mode", "block_rows")}
    else:
        usable = usable_memory(memory, is_shared=not is_local)
        mode, block_rows = choose_mode(source, _N_NEIGHBORS, usable, on_disk=not is_local)
        plan |= {"mode": mode, "block_rows": block_rows}
    state.start(plan)

    if not state.exists("manifest.json"):
        job = _Job(state / "work", plan_key(plan), source, epsilon, metric, seed)
        run: Any = partial(engine.run, total=source.n_samples, on_progress=on_progress)
        run("digest", partial(_write_digests, job), len(job.cuts) - 1)
        _find_copies(job)
        blocks = None
        if plan["mode"] == "disk":
            # one anchor: here one row of every group of copies looks for neighbours
            rows = plan["block_rows"]
            config = BlockConfig(_N_NEIGHBORS, metric, rows, _HALO, anchors=1e-9, seed=seed)
            # by its URI, if it has one, which a folder does not know
            where = f"{absolute_path(path)}/{STATE_FOLDER}/work/blocks"
            blocks = build_blocks(source, where, config, engine=engine, on_progress=on_progress)
        n_parts = 1 if blocks is None else len(blocks)
        run("pairs", partial(_write_pairs, job, blocks), n_parts)
        members, kept = _find_members(job, n_parts, value_column)
        _write_files(folder, source, members, kept)
        n_groups = int((members == kept).sum())
        counts = {
            "n_kept": source.n_samples - len(members) + n_groups,
            "n_groups": n_groups,
            "n_copies": len(job.read("copies", "rows")[0]),
        }
        state.write_json("manifest.json", {"plan": plan, "counts": counts})
    (state / "work").delete()
    folder.clear_unfinished()
    counts = state.read_json("manifest.json")["counts"]
    return Duplicates(str(path), source.n_samples, **counts)


class _Job(NamedTuple):
    """Settings of every task."""

    work: Folder
    key: str
    source: Source
    epsilon: float
    metric: Metric
    seed: int

    @property
    def cuts(self) -> np.ndarray:
        """Where the source is cut into ranges that are read at a time."""
        return cut_row_ranges(self.source, rows_per_read(self.source))

    def seal(self, name: str, **arrays: np.ndarray) -> None:
        files = {f"{name}.{one}.npy": arrays[one] for one in arrays}
        self.work.seal(f"{name}.json", files, {"key": self.key})

    def is_sealed(self, name: str) -> bool:
        return self.work.is_sealed(f"{name}.json", self.key)

    def read(self, name: str, *arrays: str) -> list[np.ndarray]:
        return [self.work.map_array(f"{name}.{one}.npy") for one in arrays]


def _open_data(data: Any, column: str | None, id_column: str | None) -> Source:
    """Open the data, or the data of a run."""
    if not isinstance(data, str | Path) or not Folder(data).exists("plan.json"):
        return open_source(data, column=column, id_column=id_column)
    plan = read_plan(Folder(data))
    if plan.get("data") is None:
        raise InvalidInputError(
            f"{data} does not record where its data are; give the data instead."
        )
    columns = {"column": column or plan["column"], "id_column": id_column or plan["id_column"]}
    return open_source(plan["data"], **columns)


def _check_keep(keep: str, source: Source) -> str | None:
    """Return the column of the values that decide which row is kept, if there is one."""
    if keep == "exemplar":
        return None
    kind, _, column = keep.partition(":")
    if kind != "best" or not column:
        raise InvalidInputError(f"{keep=} must be exemplar, or best:COLUMN.")
    if not isinstance(source, ParquetSource):
        raise InvalidInputError(f"{keep=} needs Parquet data, which have columns.")
    _read_values(source, column, np.arange(min(1, source.n_samples)))
    return column


# -- tasks: rows with the same bytes, and pairs within ε -------------------------------------------


def _write_digests(job: _Job, number: int, advance: _Advance) -> None:
    """Write the digests of a range of rows."""
    start, stop = job.cuts[number : number + 2].tolist()
    if not job.is_sealed(name := f"digests-{number:05d}"):
        rows = job.source.read(start, stop) + job.source.dtype.type(0)  # −0 becomes 0
        blake = partial(hashlib.blake2b, digest_size=_DIGEST_BYTES, usedforsecurity=False)
        digests = b"".join(blake(row).digest() for row in np.ascontiguousarray(rows).view(np.uint8))
        job.seal(name, digest=np.frombuffer(digests, np.uint64).reshape(-1, 2))
    advance(stop - start)


def _find_copies(job: _Job) -> None:
    """Write the rows with the same bytes as an earlier row, and the first row with these bytes."""
    if job.is_sealed("copies"):
        return
    names = [f"digests-{number:05d}" for number in range(len(job.cuts) - 1)]
    digest = np.concatenate([job.read(name, "digest")[0] for name in names])
    order = np.lexsort(digest.T)  # stable: equal digests stay in the order of their rows
    is_first = np.ones(len(order), bool)
    is_first[1:] = (digest[order[1:]] != digest[order[:-1]]).any(1)
    first = np.empty_like(order)
    first[order] = order[is_first][np.cumsum(is_first) - 1]
    copies = np.flatnonzero(first != np.arange(len(first)))
    job.seal("copies", rows=copies, of=first[copies])


def _look_up(rows: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the values of rows that are among the ascending keys; other rows stay themselves."""
    if len(keys) == 0:
        return rows
    position = np.minimum(np.searchsorted(keys, rows), len(keys) - 1)
    return np.where(keys[position] == rows, values[position], rows)


def _write_pairs(job: _Job, blocks: Blocks | None, number: int, advance: _Advance) -> None:
    """Write the pairs within ε of a block; copies are one node, named by the first of them."""
    if blocks is None:  # all rows are in memory
        rows, features = np.arange(job.source.n_samples), read_all(job.source)
        n_core = len(rows)
    else:
        block = blocks.open(number)
        assert block.features is not None  # noqa: S101
        rows, features, n_core = block.rows, block.features, block.n_core
    if not job.is_sealed(name := f"pairs-{number:05d}"):
        originals = _look_up(rows, *job.read("copies", "rows", "of"))
        named, first, nodes = np.unique(originals, return_index=True, return_inverse=True)
        pairs = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        if len(features) > 1:
            looking = np.sort(first[first < n_core])  # one row of every node with a core row
            n_most = min(_N_NEIGHBORS, len(features) - 1)
            how: Any = {"metric": job.metric, "recall": _RECALL, "seed": job.seed}
            found = find_neighbors(features, n_most, rows=looking, **how)
            pairs = pairs_within(features, nodes, found, job.epsilon, job.seed)
        ends = {"source": named[pairs.source], "target": named[pairs.target]}
        job.seal(name, **ends, distance=pairs.distance)
    advance(n_core)


# -- groups, and the row that each keeps: pairs fit in memory --------------------------------------


def _find_members(job: _Job, n_parts: int, column: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of all groups, ascending, and the row that the group of each keeps."""
    parts = [Pairs(*job.read(f"pairs-{part:05d}", *Pairs._fields)) for part in range(n_parts)]
    rows, exemplar = _split_components(job, join_pairs(parts))
    copies, of = job.read("copies", "rows", "of")
    # copies, and their originals, join the group of the original
    members = np.unique(np.concatenate([rows, copies, of]))
    order = np.argsort(rows)
    kept = _look_up(_look_up(members, copies, of), rows[order], exemplar[order])
    if column is not None:
        values = _read_values(job.source, column, members)
        order = np.lexsort((members, -values, kept))
        _, first, group = np.unique(kept[order], return_index=True, return_inverse=True)
        kept[order] = members[order][first][group.reshape(-1)]
    return members, kept


def _split_components(job: _Job, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that have pairs, and the exemplar of each."""
    if not len(pairs.source):
        return pairs.source, pairs.target
    nodes, ends = np.unique(np.concatenate([pairs.source, pairs.target]), return_inverse=True)
    source, target = np.split(ends.reshape(-1), 2)
    component = Pairs(source, target, pairs.distance).components(len(nodes))
    # nodes of one component follow each other, and so do their pairs
    order = np.argsort(component, kind="stable")
    place = np.argsort(order)
    nodes, source, target = nodes[order], place[source], place[target]
    by_source = np.lexsort((target, source))
    source, target, distance = source[by_source], target[by_source], pairs.distance[by_source]
    sizes = np.bincount(component)
    starts = np.cumsum(sizes) - sizes
    bounds = np.searchsorted(source, np.append(starts, len(nodes)))
    exemplar = np.repeat(nodes[starts], sizes)  # of a pair the first row
    row_bytes = job.source.n_features * job.source.dtype.itemsize
    batch_of = np.cumsum(sizes) * row_bytes // _BATCH_BYTES
    for batch in range(int(batch_of[-1]) + 1):
        large = np.flatnonzero((batch_of == batch) & (sizes > 2))
        inside = np.repeat((batch_of == batch) & (sizes > 2), sizes)
        features = np.split(_read_rows(job, nodes[inside]), np.cumsum(sizes[large]))
        for number, rows in zip(large.tolist(), features, strict=False):
            start, inner = starts[number], slice(*bounds[number : number + 2])
            links = Pairs(source[inner] - start, target[inner] - start, distance[inner])
            for chosen, group in split_chains(rows, links, job.epsilon, job.metric):
                exemplar[start + group] = nodes[start + chosen]
    return nodes, exemplar


def _read_rows(job: _Job, rows: np.ndarray) -> np.ndarray:
    """Read some rows, by one pass over the ranges of the source that hold any."""
    features = np.empty((len(rows), job.source.n_features), job.source.dtype)
    cuts = job.cuts
    of_range = np.searchsorted(cuts, rows, side="right") - 1
    for number in np.unique(of_range).tolist():
        start, stop = cuts[number : number + 2].tolist()
        inside = of_range == number
        features[inside] = job.source.read(start, stop)[rows[inside] - start]
    return features


def _read_values(source: Any, column: str, rows: np.ndarray) -> np.ndarray:
    """Read a column of numbers; null and NaN are less than any other value."""
    values = source.read_values(column, rows)
    try:
        numbers = np.array([np.nan if one is None else one for one in values], np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"column {column!r} holds {values[0]!r}, not numbers.") from error
    return np.where(np.isnan(numbers), -np.inf, numbers)


def _write_files(folder: Folder, source: Source, members: np.ndarray, kept: np.ndarray) -> None:
    """Write the ids to keep, and the groups, in files of some million rows."""
    cuts = cut_row_ranges(source, _FILE_ROWS).tolist()
    for number, (start, stop) in enumerate(pairwise(cuts)):
        inside = slice(*np.searchsorted(members, [start, stop]))
        group = np.full(stop - start, -1)
        group[members[inside] - start] = kept[inside]
        rows, is_member = np.arange(start, stop), group >= 0
        is_kept = ~is_member | (group == rows)
        ids, id_name = source.read_ids(start, stop), getattr(source, "id_column", None)
        table = pa.table({id_name or "row": rows if ids is None else ids})
        groups = table.append_column("group", pa.array(group))
        groups = groups.append_column("kept", pa.array(is_kept)).filter(pa.array(is_member))
        name = f"part-{number:05d}.parquet"
        for kind, rows_of in (("kept", table.filter(pa.array(is_kept))), ("groups", groups)):
            sink = pa.BufferOutputStream()
            pq.write_table(rows_of, sink)
            (folder / kind).write_bytes(name, iter([memoryview(sink.getvalue())]))
