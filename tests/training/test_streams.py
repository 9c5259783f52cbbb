"""Logical streams: what a step draws depends on the seed and the step alone."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import reference
from prcut.errors import InvalidInputError
from prcut.training.pairs import EdgePairs, GraphPairs, PairBatch
from prcut.training.streams import draw_steps, stream_generator
from training.test_pairs import samplers, weighted_graph


def draw_step(
    sampler: GraphPairs, batch_size: int, seed: int, step: int, **options: Any
) -> PairBatch:
    (batch,) = draw_steps(sampler, batch_size, seed, [step], **options)
    return batch


def pairs_of(batch: PairBatch) -> list[tuple[float, ...]]:
    ends = batch.rows[batch.source].tolist(), batch.rows[batch.target].tolist()
    return list(zip(*ends, batch.weight.tolist(), strict=True))


def test_streams_of_a_batch_are_drawn_apart() -> None:
    states = {
        stream_generator(*triple).initial_seed() for triple in itertools.product(range(8), repeat=3)
    }
    assert len(states) == 8**3
    batch = draw_step(EdgePairs(reference.random_graph(50)), 64, seed=0, step=0, n_streams=4)
    assert len({tuple(part.tolist()) for part in batch.rows.split(16)}) == 8


@samplers
def test_a_stream_draws_what_its_generator_decides(
    make_sampler: Callable[..., GraphPairs],
) -> None:
    sampler = make_sampler(weighted_graph())
    whole = draw_step(sampler, 32, seed=1, step=2)
    parts = [sampler.draw(4, stream_generator(1, 2, stream)) for stream in range(8)]
    expected = [(s, t, w / 8) for part in parts for s, t, w in pairs_of(part)]
    assert pairs_of(whole) == expected
    assert whole.rows.shape == (64,)
    assert not torch.equal(draw_step(sampler, 32, seed=1, step=3).rows, whole.rows)
    assert not torch.equal(draw_step(sampler, 32, seed=2, step=2).rows, whole.rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_streams": 5}, "batch_size=32 must be a multiple of n_streams=5.*35 is"),
        ({"n_streams": 0}, "n_streams=0 must be a whole number >= 1"),
        ({"seed": -1}, "seed=-1 must be a whole number >= 0"),
        ({"step": -7}, "step=-7 must be a whole number >= 0"),
    ],
)
def test_wrong_streams_are_refused(arguments: dict[str, int], message: str) -> None:
    sampler = EdgePairs(weighted_graph())
    with pytest.raises(InvalidInputError, match=message):
        draw_step(sampler, 32, **{"seed": 0, "step": 0, **arguments})
