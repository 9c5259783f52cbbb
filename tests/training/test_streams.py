"""Logical streams: the union of what processes draw does not depend on their number."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, multiprocessing

import reference
from prcut import Assigner, RunningClusterMass, SimilarityGraph, cluster_imbalance, soft_ratio_cut
from prcut.errors import InvalidInputError
from prcut.training.pairs import EdgePairs, GraphPairs, PairBatch, UniformPairs, WalkPairs
from prcut.training.streams import draw_steps, stream_generator

MAX_Z = 4.5

samplers = pytest.mark.parametrize(
    "make_sampler",
    [
        UniformPairs,
        EdgePairs,
        *(lambda graph, s=s: WalkPairs(graph, n_steps=s) for s in (1, 2, 3, 8)),
    ],
)


def draw_step(
    sampler: GraphPairs, batch_size: int, seed: int, step: int, **options: Any
) -> PairBatch:
    (batch,) = draw_steps(sampler, batch_size, seed, [step], **options)
    return batch


def weighted_graph() -> SimilarityGraph:
    return reference.random_graph(9, seed=3, density=0.6)


def unweighted_graph() -> SimilarityGraph:
    return SimilarityGraph.from_neighbors(
        [[1, 2], [2, 0], [3, -1], [4, 1], [0, -1], [2, 6], [5, -1]]
    )


def table(batch: PairBatch, n_samples: int) -> Tensor:
    """Sum of the weights of the pairs at every (source row, target row)."""
    flat = batch.rows[batch.source] * n_samples + batch.rows[batch.target]
    total = torch.zeros(n_samples**2, dtype=torch.float64)
    return total.index_add_(0, flat, batch.weight.double()).view(n_samples, n_samples)


def pairs_of(batch: PairBatch) -> list[tuple[float, ...]]:
    ends = batch.rows[batch.source].tolist(), batch.rows[batch.target].tolist()
    return list(zip(*ends, batch.weight.tolist(), strict=True))


@samplers
def test_streams_do_not_depend_on_the_number_of_processes(
    make_sampler: Callable[..., GraphPairs],
) -> None:
    sampler = make_sampler(weighted_graph())
    whole = draw_step(sampler, 32, seed=1, step=2)
    assert whole.rows.shape == (64,)
    for world_size in (1, 2, 4, 8):
        parts = [
            draw_step(sampler, 32, seed=1, step=2, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        # every process weighs its own pairs as a whole batch: their mean is taken afterwards
        joined = [(s, t, w / world_size) for part in parts for s, t, w in pairs_of(part)]
        assert sorted(joined) == sorted(pairs_of(whole))
        rows = torch.cat([part.rows for part in parts])
        weight = torch.cat([part.node_weight for part in parts])
        together = [
            sorted(zip(r.tolist(), w.tolist(), strict=True))
            for r, w in ((rows, weight), (whole.rows, whole.node_weight))
        ]
        assert together[0] == together[1]
    assert not torch.equal(draw_step(sampler, 32, seed=1, step=3).rows, whole.rows)
    assert not torch.equal(draw_step(sampler, 32, seed=2, step=2).rows, whole.rows)


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


@samplers
def test_mean_of_streams_is_the_kernel(make_sampler: Callable[..., GraphPairs]) -> None:
    sampler = make_sampler(unweighted_graph())
    tables = torch.stack(
        [
            table(batch, sampler.graph.n_samples)
            for batch in (draw_step(sampler, 12, 0, step, n_streams=4) for step in range(800))
        ]
    )
    error = (tables.std(0) / len(tables) ** 0.5).clamp_min(1e-12)
    assert ((tables.mean(0) - sampler.kernel()) / error).abs().max() < MAX_Z


def train_step(sampler: GraphPairs, rank: int, world_size: int) -> list[Tensor]:
    """Loss and gradients of one step, averaged over ranks as DDP does, and the running mass."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(sampler.graph.n_samples, 6, generator=generator, dtype=torch.float64)
    assigner = Assigner(6, 4, (8,), generator=generator).double()
    running = RunningClusterMass(4, update_rate=0.3).double()
    batch = draw_step(sampler, 48, seed=3, step=5, n_streams=4, rank=rank, world_size=world_size)
    probs = assigner.probs(features[batch.rows])
    mass = running(probs, batch.node_weight.double())
    loss = soft_ratio_cut(batch.weight, probs[batch.source], probs[batch.target], mass)
    loss = loss + cluster_imbalance(mass)
    loss.backward()
    found = [loss.detach().clone(), *(p.grad for p in assigner.parameters() if p.grad is not None)]
    if world_size > 1:
        for tensor in found:
            distributed.all_reduce(tensor)
            tensor.div_(world_size)
    return [*found, running.running]


def two_samplers() -> list[GraphPairs]:
    graph = reference.random_graph(30, density=0.2)
    return [UniformPairs(graph), WalkPairs(graph, n_steps=3)]


def one_rank(rank: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    torch.save([train_step(sampler, rank, 2) for sampler in two_samplers()], f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_take_the_step_of_one(tmp_path: Path) -> None:
    multiprocessing.spawn(one_rank, args=(str(tmp_path),), nprocs=2)
    for rank in range(2):
        steps = torch.load(tmp_path / f"{rank}.pt")
        for sampler, step in zip(two_samplers(), steps, strict=True):
            for ours, whole in zip(step, train_step(sampler, 0, 1), strict=True):
                # weights are float32: a quarter of their batch rounds differently from the whole
                torch.testing.assert_close(ours, whole, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"world_size": 3}, "n_streams=8 must be a multiple of world_size=3"),
        ({"n_streams": 5}, "batch_size=32 must be a multiple of n_streams=5.*35 is"),
        ({"rank": 2, "world_size": 2}, "rank=2 must be >= 0 and < world_size=2"),
        ({"rank": -1}, "rank=-1 must be >= 0"),
        ({"n_streams": 0}, "n_streams=0 must be a whole number >= 1"),
        ({"seed": -1}, "seed=-1 must be a whole number >= 0"),
        ({"step": -7}, "step=-7 must be a whole number >= 0"),
    ],
)
def test_wrong_streams_are_refused(arguments: dict[str, int], message: str) -> None:
    sampler = EdgePairs(unweighted_graph())
    with pytest.raises(InvalidInputError, match=message):
        draw_step(sampler, 32, **{"seed": 0, "step": 0, **arguments})
