"""Pairs on disk: drawn block by block, shuffled across all blocks, streamed in order.

A batch from one block, or a few, has many times the gradient noise of pairs from all blocks, but
fetching such pairs costs a random read each. So every block draws its pairs once, features
included, and deals them out to shards; a shard is a sample of all blocks, in random order::

    plan.json            what is being written, from which blocks
    exchange/            pairs on their way to their shards; removed at the end
    shard-00000.*.npy    features, weight, node_weight, rows; shard-00000.json seals them
    manifest.json        written last

Over all blocks, directed edges are drawn evenly, which is the kernel (A + Aᵀ)/2 of the anchors'
neighbours A; walks of ``n_steps`` > 1 stay inside the block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.build import Similarity
from prcut.numerics.validation import check_positive_int
from prcut.pipeline.outofcore.blocks import Block, Blocks
from prcut.runtime.engine import Engine, LocalEngine, read_ahead
from prcut.runtime.folder import Folder, parsing, plan_key, whole_number
from prcut.runtime.progress import Progress
from prcut.runtime.shuffle import gather, is_scattered, scatter
from prcut.training.batches import FeatureBatch
from prcut.training.pairs import WalkPairs
from prcut.training.streams import stream_generator

_FORMAT = 1
_COLUMNS = ("features", "weight", "node_weight", "rows")
# enough for the streams of a training run, however small the shards
_MIN_SHARDS = 16
_WANTED_SHARDS = 64
# bytes of the smallest and the largest shard, where there are more than the fewest
_SHARD_BYTES = 2**24, 2**30
# features that a stream reads at a time
_CHUNK_BYTES = 2**23
# (features, weight, node_weight) of some pairs
_Chunk = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class ShardConfig:
    """Options of :func:`write_pair_shards`; a walk of ``n_steps=1`` is an edge."""

    pairs_per_anchor: int = 4
    n_steps: int = 1
    similarity: Similarity = "binary"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("pairs_per_anchor", "n_steps"):
            check_positive_int(name, getattr(self, name))


def write_pair_shards(
    blocks: Blocks,
    path: str | Path,
    config: ShardConfig | None = None,
    *,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> PairShards:
    """Draw pairs from every block into shards, or finish what an earlier run began.

    Parameters are those of :func:`prcut.build_blocks`; the progress counts pairs.
    """
    if not blocks.has_features:
        raise InvalidInputError(
            f"{blocks.folder.path} has the features of some rows only; build its blocks without "
            "kept=."
        )
    plan = _Plan.of(blocks, config or ShardConfig())
    folder = Folder(path)
    folder.start(plan.to_json())
    exchange = folder / "exchange"
    if not _is_finished(folder, plan):
        engine = engine or LocalEngine()
        options: dict[str, Any] = {"total": sum(plan.n_pairs), "on_progress": on_progress}
        engine.run("draw pairs", partial(_scatter_block, exchange, plan), len(blocks), **options)
        shuffle = partial(_gather_shard, folder, exchange, plan)
        engine.run("shuffle pairs", shuffle, plan.n_shards, **options)
        _write_manifest(folder, plan)
    exchange.delete()
    return PairShards(folder)


def open_pair_shards(path: str | Path) -> PairShards:
    """Open the shards that :func:`write_pair_shards` has written in ``path``."""
    return PairShards(Folder(path))


def count_shards(n_pairs: int, n_features: int, itemsize: int) -> int:
    """Choose the number of shards: 64, or as many as keep each below a gigabyte."""
    total = n_pairs * 2 * n_features * itemsize
    smallest, largest = _SHARD_BYTES
    shard_bytes = min(max(total // _WANTED_SHARDS, smallest), largest)
    return int(max(_MIN_SHARDS, -(-total // shard_bytes)))


# -- writing ---------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """What every task needs to know; the key changes with any of it."""

    blocks: Blocks
    config: ShardConfig
    n_pairs: list[int]
    n_shards: int

    @classmethod
    def of(cls, blocks: Blocks, config: ShardConfig) -> _Plan:
        n_pairs = [config.pairs_per_anchor * record["n_anchors"] for record in blocks.records]
        itemsize = np.dtype(blocks.dtype).itemsize
        n_shards = count_shards(sum(n_pairs), blocks.n_features, itemsize)
        return cls(blocks, config, n_pairs, n_shards)

    @property
    def key(self) -> str:
        return plan_key(self.to_json())

    def to_json(self) -> dict[str, Any]:
        # older versions had these two options, and their folders are resumed
        config = {**asdict(self.config), "temperature": 0.5, "normalize": False}
        own = {"blocks": self.blocks.key, "config": config, "format": _FORMAT}
        return {**self._asdict(), **own}


def _is_finished(folder: Folder, plan: _Plan) -> bool:
    return folder.exists("manifest.json") and all(
        folder.is_sealed(f"{_name(number)}.json", plan.key) for number in range(plan.n_shards)
    )


def _write_manifest(folder: Folder, plan: _Plan) -> None:
    records = [folder.read_json(f"{_name(number)}.json") for number in range(plan.n_shards)]
    sizes = [record["n_pairs"] for record in records]
    total_weight = sum(record["weight"] for record in records)
    content = {"key": plan.key, "plan": plan.to_json(), "shards": sizes, "weight": total_weight}
    folder.write_json("manifest.json", content)


def _name(number: int) -> str:
    return f"shard-{number:05d}"


def _scatter_block(
    exchange: Folder, plan: _Plan, number: int, advance: Callable[[int], None]
) -> None:
    """Draw the pairs of a block and send each to a random shard."""
    if not is_scattered(exchange, number, plan.key):
        columns = _draw(plan.blocks[number], number, plan.n_pairs[number], plan.config)
        pairs = np.arange(len(columns["rows"]))
        rng = np.random.default_rng([plan.config.seed, 2, number])
        shard = rng.permutation(pairs) % plan.n_shards
        scatter(exchange, number, columns, pairs, shard, plan.n_shards, plan.key)
    advance(plan.n_pairs[number])


def _draw(block: Block, number: int, n_pairs: int, config: ShardConfig) -> dict[str, np.ndarray]:
    """Draw pairs of one block, with their weights and the weights of both ends."""
    graph = block.graph(config.similarity)
    total = float(graph.degree.sum())
    ends = np.empty((0, 2), np.int64)  # rows without neighbours have no pairs
    if total > 0:
        walk = WalkPairs(graph, n_steps=config.n_steps)
        batch = walk.draw(n_pairs, stream_generator(config.seed, 0, number))
        ends = torch.stack([batch.rows[batch.source], batch.rows[batch.target]], dim=1).numpy()
    # a pair stands for its fraction of the block's weight, which makes blocks comparable
    pair_weight = total / max(1, n_pairs)
    # Rows are drawn in proportion to their degree in the block. Anchors are a uniform sample of all
    # rows, and the links of an anchor are in one block; other rows do not count.
    anchor = np.zeros(len(block.rows))
    anchor[block.anchors] = pair_weight
    node_weight = (anchor / graph.degree.clamp_min(1e-30).numpy()).astype(np.float32)
    return {
        "features": np.asarray(block.features)[ends],
        "weight": np.full(len(ends), pair_weight, np.float32),
        "node_weight": node_weight[ends],
        "rows": block.rows[ends],
    }


def _gather_shard(
    folder: Folder, exchange: Folder, plan: _Plan, number: int, advance: Callable[[int], None]
) -> None:
    """Collect the pairs of a shard in random order."""
    name = _name(number)
    if not folder.is_sealed(f"{name}.json", plan.key):
        pairs = gather(exchange, len(plan.blocks), _COLUMNS, number)
        size = len(pairs["rows"])
        order = np.random.default_rng([plan.config.seed, 3, number]).permutation(size)
        arrays = {f"{name}.{column}.npy": pairs[column][order] for column in _COLUMNS}
        weight = float(pairs["weight"].sum(dtype=np.float64))
        folder.seal(f"{name}.json", arrays, {"key": plan.key, "n_pairs": size, "weight": weight})
    advance(int(folder.read_json(f"{name}.json")["n_pairs"]))


# -- reading ---------------------------------------------------------------------------------


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
        """Yield batches without end, from step ``start_step`` on.

        Each epoch orders the shards anew. ``n_streams`` logical streams read disjoint shards and
        give ``batch_size / n_streams`` pairs each; a process reads the streams
        ``rank::world_size``. So what all processes read together at a step does not depend on their
        number.
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
        n_pairs = batch_size // n_streams
        with ExitStack() as stack:
            streams = []
            for number in range(rank, n_streams, world_size):
                chunks = read_ahead(self._chunks(seed, number, n_streams, start_step * n_pairs))
                streams.append(_resize(stack.enter_context(closing(chunks)), n_pairs))
            while True:
                columns = zip(*map(next, streams), strict=True)
                features, weight, node_weight = (np.concatenate(column) for column in columns)
                yield _batch(features, weight / (len(weight) * self._mean_weight), node_weight)

    def _chunks(self, seed: int, stream: int, n_streams: int, skip: int) -> Iterator[_Chunk]:
        """Yield the columns of one stream after ``skip`` pairs, a few MB at a time."""
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
        name = _name(number)
        # reads the whole file before it is used; the second read comes from memory
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
        """Refuse arrays that are not those of pairs: a forged record has matching checksums."""
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
            raise CorruptFileError(
                f"{name} in {self.folder.path} holds weights < 0; remove the folder and run again."
            )


def _resize(chunks: Iterator[_Chunk], n_pairs: int) -> Iterator[_Chunk]:
    """Yield the same pairs in chunks of ``n_pairs``."""
    rest = next(chunks)
    while True:
        while len(rest[0]) < n_pairs:
            joined = zip(rest, next(chunks), strict=True)
            rest = tuple(np.concatenate(columns) for columns in joined)
        yield tuple(column[:n_pairs] for column in rest)
        rest = tuple(column[n_pairs:] for column in rest)


def _batch(features: np.ndarray, weight: np.ndarray, node_weight: np.ndarray) -> FeatureBatch:
    n_pairs = len(features)
    position = torch.arange(2 * n_pairs).view(n_pairs, 2)
    return FeatureBatch(
        features=torch.from_numpy(features.reshape(2 * n_pairs, -1).astype(np.float32, copy=False)),
        source=position[:, 0],
        target=position[:, 1],
        weight=torch.from_numpy(weight.astype(np.float32, copy=False)),
        node_weight=torch.from_numpy(node_weight.reshape(-1)),
    )
