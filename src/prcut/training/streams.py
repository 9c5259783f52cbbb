"""Logical streams of random numbers: a step's batch depends on nothing but the seed and the step.

A batch is made of ``n_streams`` equally large streams, each seeded by (seed, step, stream).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from torch import Generator

from prcut.errors import InvalidInputError
from prcut.numerics.validation import check_positive_int
from prcut.training.pairs import PairBatch, PairSampler


def stream_generator(seed: int, step: int, stream: int) -> Generator:
    """Return the generator of one logical stream at one step, on the CPU.

    It depends on nothing else: a run that resumes at ``step`` draws what the first would have
    drawn.

    >>> import torch
    >>> draws = [torch.rand(1, generator=stream_generator(0, 7, stream)) for stream in (1, 1, 2)]
    >>> bool(draws[0] == draws[1]), bool(draws[0] == draws[2])
    (True, False)
    """
    for name, value in (("seed", seed), ("step", step), ("stream", stream)):
        if value < 0:
            raise InvalidInputError(f"{name}={value} must be a whole number >= 0.")
    # hashed, because neighbouring seeds would start related streams; 32 bits are all that torch's
    # generator on the CPU keeps of a seed. NumPy's SeedSequence takes ten times as long
    digest = blake2b(f"{seed} {step} {stream}".encode(), digest_size=4).digest()
    return Generator().manual_seed(int.from_bytes(digest, "little"))


def draw_steps(
    sampler: PairSampler,
    batch_size: int,
    seed: int,
    steps: Sequence[int],
    *,
    n_streams: int = 8,
) -> list[PairBatch]:
    """Draw the batches of several steps, faster than one by one.

    :class:`prcut.training.pairs.UniformPairs` meets edges within a stream only, ``n_streams`` times
    fewer than in an undivided batch: take ``n_streams=1`` for the paper's batches.

    ``n_streams`` divides ``batch_size``.

    >>> from prcut import SimilarityGraph
    >>> from prcut.training.pairs import EdgePairs
    >>> sampler = EdgePairs(SimilarityGraph.from_neighbors([[1], [2], [1]]))
    >>> (batch,) = draw_steps(sampler, 16, seed=0, steps=[3])
    >>> batch.rows.shape, batch.weight.sum().item()
    (torch.Size([32]), 1.0)
    """
    check_streams(batch_size, n_streams)
    streams = [
        [stream_generator(seed, step, stream) for stream in range(n_streams)] for step in steps
    ]
    return sampler.draw_batches(batch_size // n_streams, streams)


def check_streams(batch_size: int, n_streams: int) -> None:
    """Refuse a batch that streams cannot divide equally."""
    for name, value in (("batch_size", batch_size), ("n_streams", n_streams)):
        check_positive_int(name, value)
    if batch_size % n_streams:
        raise InvalidInputError(
            f"{batch_size=} must be a multiple of {n_streams=}, so that streams are equally "
            f"large; {batch_size + -batch_size % n_streams} is."
        )
