"""A graph in parts: each holds all edges of its own nodes, and values of other nodes travel.

A part belongs to a block. Its own nodes come first, the *outside* nodes that its edges lead to come
after them; these are own nodes of other parts. A part *offers* to each of its neighbours the nodes
that the neighbour has outside: whoever needs a value of an outside node reads it from what its part
has posted, four bytes each. So a level of the search is::

    manifest.json        written last
    part-00000.json      n_own, size, total (weight of all edges of own nodes), and the files
    .indptr .indices .weight .sizes     the graph; rows of outside nodes are empty
    .offers .cuts        own nodes by the part they are offered to; (part, start, stop) of each
    .sources .picked     the parts that are read from, and where in what they post each value is
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.runtime.folder import Folder
from prcut.search.fragments import CoarseGraph


class Part(NamedTuple):
    """A part of a graph, and how values of its outside nodes come to it."""

    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray
    sizes: np.ndarray  # of own nodes: numbers of rows, or sums of their weights
    offers: np.ndarray
    cuts: np.ndarray
    sources: np.ndarray
    picked: np.ndarray

    @classmethod
    def of(cls, graph: csr_array, n_own: int, **arrays: np.ndarray) -> Part:
        """Make a part of a square graph over own and outside nodes."""
        whole = arrays["sizes"].astype(np.int32)
        if np.array_equal(whole, arrays["sizes"]):  # not sums of weights
            arrays["sizes"] = whole
        compact = {
            "indptr": graph.indptr[: n_own + 1].astype(np.int32),
            "indices": graph.indices.astype(np.int32),
            "weight": graph.data,
        }
        return cls(**compact, **arrays)

    @property
    def n_own(self) -> int:
        """Number of own nodes."""
        return len(self.sizes)

    @property
    def graph(self) -> CoarseGraph:
        """Own and outside nodes; the latter have neither edges nor size."""
        n_outside = len(self.picked)
        indptr = np.concatenate([self.indptr, np.repeat(self.indptr[-1:], n_outside)])
        n_nodes = self.n_own + n_outside
        arrays = self.weight.astype(np.float64), np.asarray(self.indices), indptr
        links = csr_array(arrays, shape=(n_nodes, n_nodes))
        return CoarseGraph(
            links, np.concatenate([self.sizes.astype(np.float64), np.zeros(n_outside)])
        )


class Level(NamedTuple):
    """All parts of a graph, in a folder."""

    folder: Folder
    n_parts: int
    key: str

    @property
    def is_whole(self) -> bool:
        """Whether all parts were finished."""
        return self.folder.is_sealed("manifest.json", self.key)

    def finish(self) -> None:
        """Say that all parts are there."""
        self.folder.seal("manifest.json", {}, {"key": self.key})

    def has(self, number: int) -> bool:
        """Return whether a part is there; what it picks is written last."""
        return self.folder.is_sealed(f"{_name(number)}.picked.json", self.key)

    def save(self, number: int, part: Part, **more: np.ndarray) -> None:
        """Write a part, and more arrays with it, but not yet what it picks."""
        name, arrays = _name(number), part._asdict() | more
        del arrays["picked"]
        files = {f"{name}.{array}.npy": values for array, values in arrays.items()}
        total = float(part.weight.sum(dtype=np.float64))
        size = float(part.sizes.sum(dtype=np.float64))
        content = {"key": self.key, "n_own": part.n_own, "size": size, "total": total}
        content["squares"] = float(np.square(part.weight, dtype=np.float64).sum())
        self.folder.seal(f"{name}.json", files, content)

    def save_picked(self, number: int, picked: np.ndarray) -> None:
        """Write where the values of outside nodes are found."""
        name, content = _name(number), {"key": self.key}
        self.folder.seal(f"{name}.picked.json", {f"{name}.picked.npy": picked}, content)

    def load(self, number: int) -> Part:
        """Open a part."""
        return Part(*(self.map(number, array) for array in Part._fields))

    def map(self, number: int, array: str) -> np.ndarray:
        """Open one array of a part."""
        return self.folder.map_array(f"{_name(number)}.{array}.npy")

    def records(self) -> list[dict[str, Any]]:
        """Return what was noted of every part."""
        return [self.folder.read_json(f"{_name(number)}.json") for number in range(self.n_parts)]

    def first_nodes(self) -> np.ndarray:
        """Return the first node of every part, and last the number of all nodes."""
        return np.cumsum([0, *(record["n_own"] for record in self.records())])


class Posts(NamedTuple):
    """A value of every node, posted by all parts of a level."""

    level: Level
    folder: Folder
    key: str

    def has(self, number: int) -> bool:
        """Return whether a part has posted."""
        return self.folder.is_sealed(f"{_name(number)}.json", self.key)

    def post(self, number: int, part: Part, values: np.ndarray, **content: Any) -> None:
        """Write the values of a part's own nodes, for the part itself and for its neighbours."""
        name = _name(number)
        arrays = {"values": values, "outbox": values[part.offers]}
        files = {f"{name}.{array}.npy": arrays[array] for array in arrays}
        self.folder.seal(f"{name}.json", files, {"key": self.key, **content})

    def record(self, number: int) -> dict[str, Any]:
        """Return what a part has noted beside its values."""
        found: dict[str, Any] = self.folder.read_json(f"{_name(number)}.json")
        return found

    def own(self, number: int) -> np.ndarray:
        """Read the values of a part's own nodes."""
        return self.folder.read_array(f"{_name(number)}.values.npy")

    def inbox(self, number: int, sources: np.ndarray) -> list[np.ndarray]:
        """Read what other parts have posted for this one, part by part."""
        slices = ((source, _slice(self.level, source, number)) for source in sources.tolist())
        return [
            self.folder.read_array(f"{_name(source)}.outbox.npy", *rows) for source, rows in slices
        ]

    def outside(self, number: int, part: Part) -> np.ndarray:
        """Read the values of a part's outside nodes."""
        values: np.ndarray = joined(self.inbox(number, part.sources))[part.picked]
        return values

    def all(self, number: int, part: Part) -> np.ndarray:
        """Read the values of own and outside nodes."""
        return np.concatenate([self.own(number), self.outside(number, part)])


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    """Join arrays, of which there may be none."""
    return np.concatenate([np.empty(0, np.int32), *arrays]) if arrays else np.empty(0, np.int32)


def join_parts(level: Level) -> CoarseGraph:
    """Join all parts to one graph; the weight within nodes is left to the caller."""
    first = level.first_nodes()
    rows, columns, weights, sizes = [], [], [], []
    for number in range(level.n_parts):
        part = level.load(number)
        # what a part offers are the numbers of the nodes themselves
        outside = [
            first[source]
            + level.folder.read_array(f"{_name(source)}.offers.npy", *_slice(level, source, number))
            for source in part.sources.tolist()
        ]
        own = first[number] + np.arange(part.n_own)
        node = np.concatenate([own, joined(outside)[part.picked]])
        rows.append(np.repeat(own, np.diff(part.indptr)))
        columns.append(node[part.indices])
        weights.append(part.weight)
        sizes.append(part.sizes)
    arrays = (np.concatenate(one) for one in (weights, rows, columns))
    weight, row, column = arrays
    n_nodes = int(first[-1])
    links = csr_array((weight.astype(np.float64), (row, column)), shape=(n_nodes, n_nodes))
    links.indices, links.indptr = (a.astype(np.int32) for a in (links.indices, links.indptr))
    return CoarseGraph(links, np.concatenate(sizes).astype(np.float64))


def cut_offers(targets: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort nodes, without repeats, by the parts they are offered to; return offers and cuts."""
    pairs = np.unique(np.stack([targets, nodes], axis=1), axis=0)
    target, start, count = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    cuts = np.stack([target, start, start + count], axis=1)
    return pairs[:, 1].astype(np.int32), cuts.astype(np.int64)


def _slice(level: Level, source: int, target: int) -> tuple[int, int]:
    """Return where in what ``source`` posts the values for ``target`` are."""
    cuts = level.folder.read_array(f"{_name(source)}.cuts.npy")
    position = int(np.searchsorted(cuts[:, 0], target))
    if position == len(cuts) or cuts[position, 0] != target:
        return 0, 0
    return int(cuts[position, 1]), int(cuts[position, 2])


def _name(number: int) -> str:
    return f"part-{number:05d}"
