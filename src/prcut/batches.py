"""What training eats: batches of pairs with their features, from memory or from disk.

:class:`GatheredPairs` takes the rows of a sampler's pairs from features in memory (or mapped into
it); :class:`prcut.pair_shards.PairShards` reads pairs that were written with theirs. Both give the
same batch at a step to any number of processes together.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from prcut.pairs import PairBatch, PairSampler, draw_steps
from prcut.read_ahead import read_ahead
from prcut.sparse import csr_tensor

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "FeatureBatch",
    "GatheredPairs",
    "PairStream",
    "as_features",
    "gather_rows",
    "pair_ends",
    "shared_tensor",
]


# steps whose pairs are drawn at one go: sooner than one by one
_STEPS_AHEAD = 8

_T = TypeVar("_T")


class FeatureBatch(NamedTuple):
    """Pairs with their features: what :class:`prcut.pairs.PairBatch` is with row numbers.

    Attributes
    ----------
    features : float32 tensor, shape (n_rows, n_features)
        Dense or sparse CSR; row numbers, shape (n_rows,), for a :class:`prcut.assigner.LogitTable`.
    source, target : int64 tensors, shape (n_pairs,)
        Positions in ``features``.
    weight : float32 tensor, shape (n_pairs,)
    node_weight : float32 tensor, shape (n_rows,)
    labels : int64 tensor, shape (n_rows,), optional
        Clusters of the rows, where the assigner is to be taught a partition.
    """

    features: Tensor
    source: Tensor
    target: Tensor
    weight: Tensor
    node_weight: Tensor
    labels: Tensor | None = None


class PairStream(Protocol):
    """Where batches come from."""

    def stream(
        self,
        batch_size: int,
        *,
        seed: int,
        start_step: int,
        n_streams: int,
        rank: int,
        world_size: int,
    ) -> Generator[FeatureBatch, None, None]:
        """Batches without end, from step ``start_step`` on: this process's part of each."""


class GatheredPairs:
    """Pairs drawn by a sampler, with their rows gathered from features.

    Parameters
    ----------
    sampler : PairSampler
    features : tensor, array, memory map or SciPy sparse matrix, shape (n_samples, n_features)
        None gives the row numbers themselves.
    labels : int64 tensor, shape (n_samples,), optional
        Clusters that the assigner is to be taught.
    """

    def __init__(
        self, sampler: PairSampler, features: Any = None, labels: Tensor | None = None
    ) -> None:
        self.sampler, self.labels = sampler, labels
        self._on_disk = isinstance(features, np.memmap)
        self.features = None if features is None else as_features(features)

    def stream(
        self,
        batch_size: int,
        *,
        seed: int = 0,
        start_step: int = 0,
        n_streams: int = 8,
        rank: int = 0,
        world_size: int = 1,
    ) -> Generator[FeatureBatch, None, None]:
        """Batches without end, the next one made while the last is used where that pays."""

        def drawn() -> Iterator[list[PairBatch]]:
            for first in count(start_step, _STEPS_AHEAD):
                yield draw_steps(
                    self.sampler,
                    batch_size,
                    seed,
                    range(first, first + _STEPS_AHEAD),
                    n_streams=n_streams,
                    rank=rank,
                    world_size=world_size,
                )

        def gather(pairs: PairBatch) -> FeatureBatch:
            rows = pairs.rows
            features = rows if self.features is None else gather_rows(self.features, rows)
            labels = None if self.labels is None else self.labels.index_select(0, rows)
            return FeatureBatch(features, *pairs[1:], labels)

        # working ahead hides its time where a core is idle; where none is, it costs a little
        has_idle_core = torch.get_num_threads() < (os.cpu_count() or 1) and world_size == 1
        with ExitStack() as stack:

            def ahead(made: Iterator[_T]) -> Iterator[_T]:
                if not (self._on_disk or has_idle_core):
                    return made
                return stack.enter_context(closing(read_ahead(made)))

            # two of them: the pairs of several steps come at once, and rows would wait for them
            yield from ahead(map(gather, chain.from_iterable(ahead(drawn()))))


def as_features(features: Any) -> Tensor | csr_array:
    """Features in a form that :func:`gather_rows` takes rows from, without a copy where possible.

    Arrays become tensors that share their memory; other dtypes than float16 to float64 become
    float32; sparse matrices become CSR.
    """
    if isinstance(features, Tensor):
        return features
    if hasattr(features, "tocsr"):
        from scipy.sparse import csr_array

        return csr_array(features)
    array = np.asarray(features)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or not array.dtype.isnative:
        array = array.astype(np.float32)
    if min(array.strides, default=0) < 0:  # torch knows no reversed arrays
        array = array.copy()
    return shared_tensor(array)


def shared_tensor(array: np.ndarray) -> Tensor:
    """A tensor over the memory of an array, also of a read-only map, that is only read."""
    with warnings.catch_warnings():
        # torch warns that it could write to a read-only map
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def gather_rows(features: Tensor | csr_array, rows: Tensor | slice) -> Tensor:
    """Some rows as a float32 tensor, sparse CSR where the features are sparse.

    >>> gather_rows(torch.arange(6.0).view(3, 2), torch.tensor([2, 0])).tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """
    if isinstance(features, Tensor):
        taken = features[rows] if isinstance(rows, slice) else features.index_select(0, rows)
        return taken.float()
    part = features[rows if isinstance(rows, slice) else rows.numpy()]
    return csr_tensor(
        torch.from_numpy(part.indptr.astype(np.int64)),
        torch.from_numpy(part.indices.astype(np.int64)),
        torch.from_numpy(part.data.astype(np.float32)),
        part.shape[1],
    )


def pair_ends(probs: Tensor, batch: FeatureBatch) -> tuple[Tensor, Tensor]:
    """Rows of ``probs`` at the sources and at the targets of the batch.

    Where all sources stand before all targets, as most samplers draw them, both are views: rows
    that were gathered would be copied, and their gradients added up one by one.

    >>> rows = torch.arange(4)
    >>> batch = FeatureBatch(rows, rows[:2], rows[2:], torch.ones(2), torch.ones(4))
    >>> pair_ends(torch.eye(4), batch)[1].tolist()
    [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """
    position = torch.cat([batch.source, batch.target])
    if torch.equal(position, torch.arange(len(probs), device=position.device)):
        source_probs, target_probs = probs.split(len(batch.source))
        return source_probs, target_probs
    source, target = batch.source.to(probs.device), batch.target.to(probs.device)
    return probs.index_select(0, source), probs.index_select(0, target)
