"""The stages of :mod:`prcut.pipeline.dedup`: copies, pairs within ε, components, groups.

::

    digests/     digests of the rows, on their way to the bucket where equal ones meet
    copies.*     rows with the bytes of another row, and that row
    pairs-*      by block: pairs within ε, and a forest that links the same rows
    components.* rows that have a pair, and the component of each
    rows/ links/ rows and pairs, on their way to the bucket of their component
    groups-*     by bucket: rows that are not kept, and the row that is kept instead
    removed.*    all of these, and the copies
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from prcut.errors import InvalidInputError
from prcut.graph.neighbors import Metric
from prcut.graph.within import Pairs, find_within, forest, pairs_within
from prcut.pipeline.duplicates import split_chains
from prcut.pipeline.outofcore.blocks import Blocks
from prcut.runtime.folder import Folder
from prcut.runtime.shuffle import gather, is_scattered, scatter
from prcut.runtime.sources import Source, read_all

N_NEIGHBORS = 10
"""Neighbours within ε of a row, where exemplars find more."""

# rows of a bucket of digests; bytes of a bucket of groups
_BUCKET_ROWS, _BUCKET_BYTES = 2**22, 2**28
_DIGEST_BYTES = 16
_Advance = Callable[[int], None]


class Job(NamedTuple):
    """What every task needs to know; without blocks all rows are in memory."""

    work: Folder
    source: Source
    values: str | None
    epsilon: float
    metric: Metric
    seed: int
    key: str
    cuts: np.ndarray
    blocks: Blocks | None = None

    @property
    def n_ranges(self) -> int:
        """Number of row ranges."""
        return len(self.cuts) - 1

    @property
    def n_parts(self) -> int:
        """Number of blocks, or one."""
        return 1 if self.blocks is None else len(self.blocks)

    @property
    def n_digest_buckets(self) -> int:
        """Number of buckets in which digests meet."""
        return max(1, -(-self.source.n_samples // _BUCKET_ROWS))

    def seal(self, name: str, **arrays: np.ndarray) -> None:
        """Write arrays and their record."""
        files = {f"{name}.{one}.npy": arrays[one] for one in arrays}
        self.work.seal(f"{name}.json", files, {"key": self.key})

    def is_sealed(self, name: str) -> bool:
        """Return whether an earlier call wrote these arrays."""
        return self.work.is_sealed(f"{name}.json", self.key)

    def read(self, name: str, *arrays: str) -> list[np.ndarray]:
        """Map some of the arrays."""
        return [self.work.map_array(f"{name}.{one}.npy") for one in arrays]

    def join(self, name: str, n_tasks: int, *arrays: str) -> list[np.ndarray]:
        """Return arrays that tasks wrote, end to end."""
        parts = [self.read(f"{name}-{number:05d}", *arrays) for number in range(n_tasks)]
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    def columns(self, *names: str) -> list[str]:
        """Return the names of columns that are sent; values only where they are wanted."""
        return [*names, *(["value"] if self.values is not None else [])]


def look_up(rows: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the values of rows that are keys, which ascend, and −1 for other rows."""
    if len(keys) == 0:
        return np.full(len(rows), -1, np.int64)
    position = np.minimum(np.searchsorted(keys, rows), len(keys) - 1)
    return np.where(keys[position] == rows, values[position], -1)


# -- copies: rows with the same bytes --------------------------------------------------------------


def send_digests(job: Job, number: int, advance: _Advance) -> None:
    """Send the digests of a range of rows to buckets, with the values that decide what is kept."""
    start, stop = job.cuts[number : number + 2].tolist()
    exchange, n_buckets = job.work / "digests", job.n_digest_buckets
    if not is_scattered(exchange, number, job.key):
        digest = _digest(job.source.read(start, stop) + job.source.dtype.type(0))  # −0 becomes 0
        columns = {"rows": np.arange(start, stop), "digest": digest}
        if job.values is not None:
            columns["value"] = read_values(job.source, job.values, start, stop)
            job.seal(f"value-{number:05d}", value=columns["value"])
        bucket = (digest[:, 0] % np.uint64(n_buckets)).astype(np.int64)
        scatter(exchange, number, columns, np.arange(len(digest)), bucket, n_buckets, job.key)
    advance(stop - start)


def _digest(rows: np.ndarray) -> np.ndarray:
    """Return 128 bits of every row, uint64, shape (n_rows, 2), which no other row shares."""
    content = np.ascontiguousarray(rows).view(np.uint8)
    blake = partial(hashlib.blake2b, digest_size=_DIGEST_BYTES, usedforsecurity=False)
    digests = b"".join(blake(row).digest() for row in content)
    return np.frombuffer(digests, np.uint64).reshape(-1, 2)


def read_values(source: Any, column: str, start: int, stop: int) -> np.ndarray:
    """Read a range of a column of numbers; null and NaN are less than any other value."""
    values = source.read_values(column, np.arange(start, stop))
    try:
        numbers = np.array([np.nan if one is None else one for one in values], np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"column {column!r} holds {values[0]!r}, not numbers.") from error
    return np.where(np.isnan(numbers), -np.inf, numbers)


def find_copies(job: Job, number: int, advance: _Advance) -> None:
    """Write the copies in a bucket of digests, and the row that stands for each: the best one."""
    found = gather(job.work / "digests", job.n_ranges, job.columns("rows", "digest"), number)
    rows, digest = found["rows"], found["digest"]
    if not job.is_sealed(name := f"copies-{number:05d}"):
        order = np.lexsort((rows, -found.get("value", np.zeros(len(rows))), *digest.T))
        rows, digest = rows[order], digest[order]
        is_first = np.ones(len(rows), bool)
        is_first[1:] = (digest[1:] != digest[:-1]).any(1)
        first = rows[is_first][np.cumsum(is_first) - 1]
        job.seal(name, rows=rows[~is_first], of=first[~is_first])
    advance(len(rows))


def join_copies(job: Job) -> None:
    """Sort the copies of all buckets."""
    if not job.is_sealed("copies"):
        rows, of = job.join("copies", job.n_digest_buckets, "rows", "of")
        order = np.argsort(rows)
        job.seal("copies", rows=rows[order], of=of[order])
    (job.work / "digests").delete()


# -- pairs within ε, and their components ----------------------------------------------------------


def _open_part(job: Job, number: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return rows, features and the number of core rows, which come first, of a block or of all."""
    if job.blocks is None:
        return np.arange(job.source.n_samples), read_all(job.source), job.source.n_samples
    block = job.blocks[number]
    return block.rows, block.features, block.n_core


def find_pairs(job: Job, number: int, advance: _Advance) -> None:
    """Write the pairs within ε of a block; copies are one node, named by the row that is kept."""
    rows, features, n_core = _open_part(job, number)
    if not job.is_sealed(name := f"pairs-{number:05d}"):
        instead = look_up(rows, *job.read("copies", "rows", "of"))
        whole = np.where(instead < 0, rows, instead)
        named, first, nodes = np.unique(whole, return_index=True, return_inverse=True)
        pairs = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        if len(features) > 1:
            # one row of every node that has one here
            looking, n_most = np.sort(first[first < n_core]), min(N_NEIGHBORS, len(features) - 1)
            near = job.epsilon, job.metric, job.seed
            found = find_within(features, looking, n_most, *near)
            pairs = pairs_within(features, nodes, found, job.epsilon, job.seed)
        pairs = Pairs(named[pairs.source], named[pairs.target], pairs.distance)
        linked, root = forest(pairs)
        job.seal(name, **pairs._asdict(), linked=linked, root=root)
    advance(n_core)


def join_pairs(job: Job) -> int:
    """Write the component of every row that has a pair; return how many buckets these take."""
    if not job.is_sealed("components"):
        linked, root = job.join("pairs", job.n_parts, "linked", "root")
        rows, roots = forest(Pairs(linked, root, np.zeros(len(linked))))
        component = np.unique(roots, return_inverse=True)[1]
        n_bytes = len(rows) * (job.source.n_features * job.source.dtype.itemsize + 64)
        n_buckets = np.array([max(1, -(-n_bytes // _BUCKET_BYTES))])
        job.seal("components", rows=rows, component=component, n_buckets=n_buckets)
    return int(job.read("components", "n_buckets")[0][0])


# -- groups: components, split where one row does not stand for all --------------------------------


def send_groups(job: Job, n_buckets: int, number: int, advance: _Advance) -> None:
    """Send linked core rows, and pairs, to the bucket of their component."""
    rows, features, n_core = _open_part(job, number)
    exchanges = job.work / "rows", job.work / "links"
    if not all(is_scattered(one, number, job.key) for one in exchanges):
        known = job.read("components", "rows", "component")
        component = look_up(rows[:n_core], *known)
        sent = np.flatnonzero(component >= 0)
        columns = {"rows": rows[sent], "component": component[sent], "features": features[sent]}
        if job.values is not None:
            columns["value"] = _pick_values(job, rows[sent])
        pairs = Pairs(*job.read(f"pairs-{number:05d}", *Pairs._fields))._asdict()
        pairs["component"] = look_up(pairs["source"], *known)
        for exchange, table in zip(exchanges, (columns, pairs), strict=True):
            bucket = table["component"] % n_buckets
            scatter(exchange, number, table, np.arange(len(bucket)), bucket, n_buckets, job.key)
    advance(n_core)


def _pick_values(job: Job, rows: np.ndarray) -> np.ndarray:
    """Read the values of some rows from the files of their ranges."""
    picked = np.empty(len(rows))
    of_range = np.searchsorted(job.cuts, rows, side="right") - 1
    for number in np.unique(of_range).tolist():
        inside = of_range == number
        (values,) = job.read(f"value-{number:05d}", "value")
        picked[inside] = values[rows[inside] - job.cuts[number]]
    return picked


def split_groups(job: Job, number: int, advance: _Advance) -> None:
    """Write which rows of a bucket are not kept, and which row is kept instead of each."""
    names = job.columns("rows", "component", "features")
    found = gather(job.work / "rows", job.n_parts, names, number)
    if not job.is_sealed(name := f"groups-{number:05d}"):
        order = np.lexsort((found["rows"], found["component"]))
        found = {one: found[one][order] for one in found}
        gone, instead = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for inside, pairs in _components(job, number, found):
            rows, features = found["rows"][inside], found["features"][inside]
            for exemplar, group in split_chains(features, pairs, job.epsilon, job.metric):
                kept = exemplar
                if job.values is not None:
                    kept = int(group[found["value"][inside][group].argmax()])
                gone.append(rows[group[group != kept]])
                instead.append(np.full(len(gone[-1]), rows[kept]))
        job.seal(name, rows=np.concatenate(gone), of=np.concatenate(instead))
    advance(len(found["rows"]))


def _components(
    job: Job, number: int, found: dict[str, np.ndarray]
) -> Iterator[tuple[slice, Pairs]]:
    """Yield where the rows of every component are, and its pairs, numbered within it."""
    links = gather(job.work / "links", job.n_parts, [*Pairs._fields, "component"], number)
    order = np.lexsort((links["target"], links["source"], links["component"]))
    source, target, distance, component = (one[order] for one in links.values())
    labels, starts = np.unique(found["component"], return_index=True)
    starts = np.append(starts, len(found["rows"]))
    bounds = np.append(np.searchsorted(component, labels), len(component))
    for place in range(len(labels)):
        inside, near = slice(*starts[place : place + 2]), slice(*bounds[place : place + 2])
        # a pair that two blocks have found counts once
        is_new = np.ones(near.stop - near.start, bool)
        is_new[1:] = (np.diff(source[near]) != 0) | (np.diff(target[near]) != 0)
        pairs = Pairs(*(column[near][is_new] for column in (source, target, distance)))
        ends = np.searchsorted(found["rows"][inside], pairs[:2])
        yield inside, pairs._replace(source=ends[0], target=ends[1])


def join_groups(job: Job, n_buckets: int) -> tuple[int, int, int]:
    """Join copies and near-duplicates; return how many rows are kept, groups, and copies."""
    copies, of = job.read("copies", "rows", "of")
    if not job.is_sealed("removed"):
        rows, kept = job.join("groups", n_buckets, "rows", "of")
        order = np.argsort(rows)
        instead = look_up(of, rows[order], kept[order])
        rows = np.concatenate([rows, copies])
        kept = np.concatenate([kept, np.where(instead < 0, of, instead)])
        order = np.argsort(rows)
        job.seal("removed", rows=rows[order], kept=kept[order], named=np.unique(kept))
    rows, named = job.read("removed", "rows", "named")
    return job.source.n_samples - len(rows), len(named), len(copies)
