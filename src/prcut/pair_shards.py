"""Pairs on disk: drawn block by block, shuffled across all blocks, streamed in order.

A batch from one block, or a few, has many times the gradient noise of pairs from everywhere, and
fetching pairs from everywhere is a random read each. So every block draws its pairs once, features
included, and deals them out to shards; a shard is a sample of all blocks, in random order::

    plan.json            what is being written, from which blocks
    exchange/            pairs on their way to their shards; removed at the end
    shard-00000.*.npy    features, weight, node_weight, rows; shard-00000.json seals them
    manifest.json        written last

Over all blocks, directed edges are drawn evenly, which is the kernel (A + Aᵀ)/2 of the anchors'
neighbours A; with ``n_steps`` > 1 walks go on inside the block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prcut.batches import FeatureBatch
from prcut.blocks import Block, Blocks
from prcut.engine import Engine, Here
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.exchange import gather, is_scattered, scatter
from prcut.pairs import WalkPairs, stream_generator
from prcut.progress import Progress
from prcut.read_ahead import read_ahead
from prcut.similarity import Similarity
from prcut.storage import Folder, parsing, plan_key, whole_number
from prcut.validation import check_positive_int

__all__ = ["PairShards", "ShardConfig", "count_shards", "open_pair_shards", "write_pair_shards"]

_FORMAT = 1
_COLUMNS = ("features", "weight", "node_weight", "rows")
# enough for the streams of a training run, even where they are small
_MIN_SHARDS = 16
# more while they have the first number of bytes at least, and so many that none exceeds the second
_WANTED_SHARDS = 64
_SHARD_BYTES = 2**24, 2**30
# pairs read at a time
_CHUNK_BYTES = 2**23


@dataclass(frozen=True)
class ShardConfig:
    """What is drawn from the blocks.

    Parameters
    ----------
    pairs_per_anchor : int
    n_steps : int
        Length of the walk from one end of a pair to the other; 1 draws edges.
    similarity : {"binary", "mean", "self_tuning", "cosine"}
    temperature : float
        As for :func:`prcut.similarity.build_graph`.
    normalize : bool
        Node weights for the normalised cut instead of the ratio cut.
    seed : int
    """

    pairs_per_anchor: int = 4
    n_steps: int = 1
    similarity: Similarity = "binary"
    temperature: float = 0.5
    normalize: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive_int("pairs_per_anchor", self.pairs_per_anchor)
        check_positive_int("n_steps", self.n_steps)


def write_pair_shards(
    blocks: Blocks,
    path: str | Path,
    config: ShardConfig | None = None,
    *,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> PairShards:
    """Draw pairs from every block into shards, or finish what an earlier run began.

    Parameters
    ----------
    blocks : Blocks
    path : str or path
        A folder of its own, local or a URI of any pyarrow filesystem.
    config : ShardConfig, optional
    engine : Engine, optional
        Where pairs are drawn and shuffled; by default here.
    on_progress : callable, optional
        Called with a :class:`prcut.progress.Progress` (in pairs) after every block and shard.
    """
    config = config or ShardConfig()
    folder = Folder(path)
    n_pairs = [config.pairs_per_anchor * record["n_anchors"] for record in blocks.records]
    itemsize = np.dtype(blocks.dtype).itemsize
    n_shards = count_shards(sum(n_pairs), blocks.n_features, itemsize)
    plan = {
        "blocks": blocks.key,
        "config": asdict(config),
        "format": _FORMAT,
        "n_pairs": n_pairs,
        "n_shards": n_shards,
    }
    key = plan_key(plan)
    folder.start(plan)
    exchange = folder / "exchange"
    if folder.exists("manifest.json") and all(
        folder.is_sealed(f"{_shard(number)}.json", key) for number in range(n_shards)
    ):
        exchange.delete()
        return PairShards(folder)
    engine = engine or Here()
    options: dict[str, Any] = {"total": sum(n_pairs), "on_progress": on_progress}
    draw = partial(_scatter_block, exchange, blocks, n_pairs, n_shards, config, key)
    engine.run("draw pairs", draw, len(blocks), **options)
    shuffle = partial(_gather_shard, folder, exchange, len(blocks), config.seed, key)
    engine.run("shuffle pairs", shuffle, n_shards, **options)
    records = [folder.read_json(f"{_shard(number)}.json") for number in range(n_shards)]
    sizes = [record["n_pairs"] for record in records]
    total_weight = sum(record["weight"] for record in records)
    folder.write_json(
        "manifest.json", {"key": key, "plan": plan, "shards": sizes, "weight": total_weight}
    )
    exchange.delete()
    return PairShards(folder)


def _scatter_block(
    exchange: Folder,
    blocks: Blocks,
    n_pairs: list[int],
    n_shards: int,
    config: ShardConfig,
    key: str,
    number: int,
    advance: Callable[[int], None],
) -> None:
    """Draw the pairs of a block and send each to a random shard."""
    if not is_scattered(exchange, number, key):
        columns = _draw(blocks[number], number, n_pairs[number], config)
        places = np.arange(len(columns["rows"]))
        shard = np.random.default_rng([config.seed, 2, number]).permutation(places) % n_shards
        scatter(exchange, number, columns, places, shard, n_shards, key)
    advance(n_pairs[number])


def _gather_shard(
    folder: Folder,
    exchange: Folder,
    n_blocks: int,
    seed: int,
    key: str,
    number: int,
    advance: Callable[[int], None],
) -> None:
    """Collect the pairs of a shard in random order."""
    name = _shard(number)
    if not folder.is_sealed(f"{name}.json", key):
        pairs = gather(exchange, n_blocks, _COLUMNS, number)
        size = len(pairs["rows"])
        order = np.random.default_rng([seed, 3, number]).permutation(size)
        arrays = {f"{name}.{column}.npy": pairs[column][order] for column in _COLUMNS}
        weight = float(pairs["weight"].sum(dtype=np.float64))
        folder.seal(f"{name}.json", arrays, {"key": key, "n_pairs": size, "weight": weight})
    advance(int(folder.read_json(f"{name}.json")["n_pairs"]))


def open_pair_shards(path: str | Path) -> PairShards:
    """The shards that :func:`write_pair_shards` has written in ``path``."""
    return PairShards(Folder(path))


def count_shards(n_pairs: int, n_features: int, itemsize: int) -> int:
    """Shards for so many pairs: 64, or as many as keep each below a gigabyte."""
    total = n_pairs * 2 * n_features * itemsize
    smallest, largest = _SHARD_BYTES
    shard_bytes = min(max(total // _WANTED_SHARDS, smallest), largest)
    return int(max(_MIN_SHARDS, -(-total // shard_bytes)))


def _draw(block: Block, number: int, n_pairs: int, config: ShardConfig) -> dict[str, np.ndarray]:
    """Pairs of one block, with their weights and those of their ends in the cluster mass."""
    graph = block.graph(config.similarity, temperature=config.temperature)
    total = float(graph.degree.sum())
    if total == 0:  # rows without neighbours have no pairs
        n_features = block.features.shape[1]
        return {
            "features": np.empty((0, 2, n_features), block.features.dtype),
            "weight": np.empty(0, np.float32),
            "node_weight": np.empty((0, 2), np.float32),
            "rows": np.empty((0, 2), np.int64),
        }
    walk = WalkPairs(graph, n_steps=config.n_steps)
    batch = walk.draw(n_pairs, stream_generator(config.seed, 0, number))
    ends = torch.stack([batch.rows[batch.source], batch.rows[batch.target]], dim=1).numpy()
    # a pair stands for its share of the block's weights, which makes blocks comparable
    share = total / n_pairs
    node_weight = np.full(ends.shape, share, np.float32)
    if not config.normalize:
        # rows are drawn in proportion to their degree in the block; anchors are a uniform sample
        # and each has its own links in one block, which other rows have not
        anchor = np.zeros(len(block.rows))
        anchor[block.anchors] = share
        node_weight = (anchor / graph.degree.clamp_min(1e-30).numpy()).astype(np.float32)[ends]
    return {
        "features": np.asarray(block.features)[ends],
        "weight": np.full(n_pairs, share, np.float32),
        "node_weight": node_weight,
        "rows": block.rows[ends],
    }


def _shard(number: int) -> str:
    return f"shard-{number:05d}"


class PairShards:
    """Pairs on disk, streamed batch by batch."""

    def __init__(self, folder: Folder) -> None:
        manifest = folder.read_manifest(_FORMAT, "write_pair_shards")
        with parsing(f"{folder.path}/manifest.json"):
            self.sizes = np.asarray([whole_number(size) for size in manifest["shards"]], np.int64)
            self._mean_weight = float(manifest["weight"]) / max(1, self.n_pairs)
            if not 0 <= self._mean_weight < np.inf or (self.n_pairs and self._mean_weight == 0):
                raise ValueError(f"weight is {manifest['weight']}")
        self.folder = folder
        self._n_features: int | None = None  # of the shard that was read first

    @property
    def n_pairs(self) -> int:
        """Number of pairs in all shards."""
        return int(self.sizes.sum())

    def stream(
        self,
        batch_size: int,
        *,
        seed: int = 0,
        start_step: int = 0,
        n_streams: int = 4,
        rank: int = 0,
        world_size: int = 1,
    ) -> Generator[FeatureBatch, None, None]:
        """Batches without end, from step ``start_step`` on; each epoch orders the shards anew.

        ``n_streams`` logical streams read disjoint shards and give ``batch_size / n_streams`` pairs
        each; a process reads the streams ``rank::world_size``. So what all processes read together
        at a step does not depend on how many they are.
        """
        for name, value in (("batch_size", batch_size), ("n_streams", n_streams)):
            check_positive_int(name, value)
        if batch_size % n_streams or n_streams % world_size:
            raise InvalidInputError(
                f"{batch_size=} must be a multiple of {n_streams=}, and that of {world_size=}."
            )
        if n_streams > len(self.sizes):
            raise InvalidInputError(
                f"{n_streams=} must be <= the number of shards, {len(self.sizes)}."
            )
        share = batch_size // n_streams
        mine = range(rank, n_streams, world_size)
        with ExitStack() as stack:
            streams = []
            for number in mine:
                chunks = read_ahead(self._chunks(seed, number, n_streams, start_step * share))
                streams.append(_Stream(stack.enter_context(closing(chunks))))
            while True:
                parts = zip(*(one.take(share) for one in streams), strict=True)
                features, weight, node_weight = (np.concatenate(part) for part in parts)
                yield _batch(features, weight / (len(weight) * self._mean_weight), node_weight)

    def _chunks(self, seed: int, stream: int, n_streams: int, skip: int) -> Iterator[_Chunk]:
        """Columns of one stream after ``skip`` pairs, a few MB at a time."""
        for epoch in count():
            order = np.random.default_rng([seed, 4, epoch]).permutation(len(self.sizes))
            mine = order[stream::n_streams]
            if not self.sizes[mine].any():
                raise InvalidInputError(
                    f"the shards of stream {stream} hold no pairs; lower n_streams={n_streams}."
                )
            for number in mine:
                size = int(self.sizes[number])
                if skip >= size:
                    skip -= size
                    continue
                yield from self._shard_chunks(int(number), skip)
                skip = 0

    def _shard_chunks(self, number: int, start: int) -> Iterator[_Chunk]:
        name = _shard(number)
        # a pass over the file before it is used: the bytes come from memory the second time
        self.folder.verify(self.folder.read_json(f"{name}.json"))
        stop = int(self.sizes[number])
        row = self.folder.read_array(f"{name}.features.npy", start, start + 1)
        chunk = max(1, _CHUNK_BYTES // max(1, row.nbytes))
        for first in range(start, stop, chunk):
            last = min(first + chunk, stop)
            columns = tuple(
                self.folder.read_array(f"{name}.{column}.npy", first, last)
                for column in ("features", "weight", "node_weight")
            )
            self._check(columns, last - first, name)
            yield columns

    def _check(self, columns: _Chunk, n_pairs: int, name: str) -> None:
        """Refuse arrays that are whole, but not those of pairs: checksums cannot tell."""
        self._n_features = self._n_features or columns[0].shape[-1]
        shapes = (n_pairs, 2, self._n_features), (n_pairs,), (n_pairs, 2)
        for column, shape in zip(columns, shapes, strict=True):
            is_right = column.shape == shape and column.dtype in (np.float16, np.float32)
            if not is_right or not np.isfinite(column).all():
                raise CorruptFileError(
                    f"the arrays of {name} in {self.folder.path} are not those of {n_pairs} pairs, "
                    "or hold NaN or infinity; remove the folder and run again."
                )
        if columns[1].min() < 0 or columns[2].min() < 0:
            raise CorruptFileError(f"{name} in {self.folder.path} holds weights < 0.")


# (features, weight, node_weight) of some pairs
_Chunk = tuple[np.ndarray, ...]


class _Stream:
    """Chunks cut to the lengths asked for."""

    def __init__(self, chunks: Iterator[_Chunk]) -> None:
        self._chunks = chunks
        self._rest: _Chunk | None = None

    def take(self, n_pairs: int) -> _Chunk:
        taken: list[_Chunk] = []
        while n_pairs > 0:
            if self._rest is None or not len(self._rest[0]):
                self._rest = next(self._chunks)
            taken.append(tuple(column[:n_pairs] for column in self._rest))
            self._rest = tuple(column[n_pairs:] for column in self._rest)
            n_pairs -= len(taken[-1][0])
        return tuple(np.concatenate(columns) for columns in zip(*taken, strict=True))


def _batch(features: np.ndarray, weight: np.ndarray, node_weight: np.ndarray) -> FeatureBatch:
    n_pairs = len(features)
    place = torch.arange(2 * n_pairs).view(n_pairs, 2)
    return FeatureBatch(
        features=torch.from_numpy(features.reshape(2 * n_pairs, -1).astype(np.float32, copy=False)),
        source=place[:, 0],
        target=place[:, 1],
        weight=torch.from_numpy(weight.astype(np.float32, copy=False)),
        node_weight=torch.from_numpy(node_weight.reshape(-1)),
    )
