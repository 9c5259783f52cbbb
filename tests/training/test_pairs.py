"""Samplers: the mean of what they draw is their kernel, entry by entry, and their mass the mass."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import reference
from prcut import SimilarityGraph
from prcut.errors import InvalidInputError
from prcut.numerics.sparse import csr_tensor
from prcut.training import RunningClusterMass
from prcut.training.pairs import (
    GraphPairs,
    PairBatch,
    UniformPairs,
    WalkPairs,
    _draw_distinct,
)

# of the hundreds of z-scores below about one in 10⁵ would exceed this by chance
MAX_Z = 4.5


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def weighted_graph() -> SimilarityGraph:
    """Nine rows of very different degrees; row 4 has no edges."""
    matrix = reference.random_graph(9, seed=3, density=0.6).to_scipy().toarray()
    matrix[0] *= 10
    matrix[:, 0] *= 10
    matrix[4] = matrix[:, 4] = 0
    return SimilarityGraph.from_scipy(matrix)


def unweighted_graph() -> SimilarityGraph:
    """A hub, a triangle with a tail, and a pair apart."""
    neighbors = [[1, 2, 3, 4], [2, 0, -1, -1], [1, -1, -1, -1], [5, -1, -1, -1]]
    neighbors += [[-1] * 4, [-1] * 4, [7, -1, -1, -1], [6, -1, -1, -1]]
    return SimilarityGraph.from_neighbors(np.array(neighbors))


GRAPHS: dict[str, Callable[[], SimilarityGraph]] = {
    "weighted": weighted_graph,
    "unweighted": unweighted_graph,
}
graphs = pytest.mark.parametrize("make_graph", GRAPHS.values(), ids=GRAPHS)

SAMPLERS: dict[str, Callable[..., GraphPairs]] = {
    "uniform": UniformPairs,
    **{f"walk {s}": lambda graph, s=s: WalkPairs(graph, n_steps=s) for s in (1, 2, 3, 8)},
}
samplers = pytest.mark.parametrize("make_sampler", SAMPLERS.values(), ids=SAMPLERS)
walks = pytest.mark.parametrize("make_sampler", list(SAMPLERS.values())[1:], ids=list(SAMPLERS)[1:])


def kernel_by_loops(graph: SimilarityGraph, n_steps: int) -> Tensor:
    """W D⁻¹ W … D⁻¹ W, normalised, from dense tables."""
    dense = graph.weight.to_dense().double()
    walk = dense / dense.sum(1, keepdim=True).clamp_min(1e-300)
    for _ in range(n_steps - 1):
        dense = dense @ walk
    return dense / dense.sum()


def table(batch: PairBatch, n_samples: int, value: Tensor) -> Tensor:
    """Sum of ``value`` over the pairs at every (source row, target row)."""
    flat = batch.rows[batch.source] * n_samples + batch.rows[batch.target]
    total = torch.zeros(n_samples**2, dtype=torch.float64).index_add_(0, flat, value.double())
    return total.view(n_samples, n_samples)


@graphs
@walks
def test_mean_of_drawn_pairs_is_the_kernel(
    make_graph: Callable[[], SimilarityGraph], make_sampler: Callable[..., GraphPairs]
) -> None:
    sampler = make_sampler(make_graph())
    assert isinstance(sampler, WalkPairs)
    n_draws = 200_000
    batch = sampler.draw(n_draws, seeded(5))
    torch.testing.assert_close(batch.weight, torch.full((n_draws,), 1 / n_draws))
    found = table(batch, sampler.graph.n_samples, torch.ones(n_draws))
    expected = n_draws * kernel_by_loops(sampler.graph, sampler.n_steps)
    possible = expected > 0
    assert found[~possible].sum() == 0
    z = (found - expected)[possible] / (expected * (1 - expected / n_draws))[possible].sqrt()
    assert z.abs().max() < MAX_Z
    assert stats.chisquare(found[possible].numpy(), expected[possible].numpy()).pvalue > 1e-4


@graphs
@pytest.mark.parametrize("batch_size", [1, 3, 6])
def test_uniform_pairs_are_all_edges_between_the_batches(
    make_graph: Callable[[], SimilarityGraph], batch_size: int
) -> None:
    graph, generator = make_graph(), seeded(1)
    dense = graph.weight.to_dense()
    for _ in range(20):
        batch = UniformPairs(graph).draw(batch_size, generator)
        sources, targets = batch.rows.split(batch_size)
        between = dense[sources][:, targets]
        source, target = between.nonzero(as_tuple=True)  # in the order of the entries
        assert torch.equal(batch.source, source)
        assert torch.equal(batch.target, batch_size + target)
        scale = (graph.n_samples / batch_size) ** 2 / float(graph.degree.sum())
        assert torch.equal(batch.weight, (between[source, target].double() * scale).float())


@graphs
@samplers
def test_node_weights_give_the_cluster_mass(
    make_graph: Callable[[], SimilarityGraph], make_sampler: Callable[..., GraphPairs]
) -> None:
    sampler = make_sampler(make_graph())
    graph = sampler.graph
    probs = reference.random_probs(graph.n_samples, 3, sharpness=2.0)
    node_weight = torch.ones_like(graph.degree)
    if not isinstance(sampler, UniformPairs):
        node_weight = node_weight * (graph.degree > 0)  # never drawn: missing, as documented
    mass = node_weight @ probs / node_weight.sum()

    generator = seeded(2)
    batch_size, n_draws = (4, 1_500) if isinstance(sampler, UniformPairs) else (50, 400)
    batches = [sampler.draw(batch_size, generator) for _ in range(n_draws)]
    rows = torch.stack([batch.rows for batch in batches])
    weight = torch.stack([batch.node_weight for batch in batches]).double()
    assert z_of_mass(probs[rows], weight, mass) < MAX_Z
    if not isinstance(sampler, UniformPairs):  # where weights matter, their lack is seen
        assert z_of_mass(probs[rows], torch.ones_like(weight), mass) > 2 * MAX_Z
    running = RunningClusterMass(3, update_rate=1.0).double()
    torch.testing.assert_close(
        running(probs[rows[0]], weight[0]), weight[0] @ probs[rows[0]] / weight[0].sum()
    )


def z_of_mass(probs: Tensor, weight: Tensor, mass: Tensor) -> float:
    """Largest error of the weighted mean in standard errors: draws are independent, rows not."""
    residual = (weight[..., None] * (probs - mass)).sum(1)
    z = residual.mean(0) / (residual.std(0) / len(residual) ** 0.5)
    return float(z.abs().max())


@samplers
def test_the_generator_decides_alone(make_sampler: Callable[..., GraphPairs]) -> None:
    sampler = make_sampler(weighted_graph())
    state = torch.get_rng_state()
    first, again, other = (sampler.draw(5, seeded(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.rows, other.rows)
    assert torch.equal(torch.get_rng_state(), state)
    for name, dtype in zip(PairBatch._fields, [torch.int64] * 3 + [torch.float32] * 2, strict=True):
        assert getattr(first, name).dtype == dtype, name
    assert first.node_weight.shape == first.rows.shape == (10,)


@samplers
def test_scale_of_the_weights_changes_nothing(make_sampler: Callable[..., GraphPairs]) -> None:
    matrix = weighted_graph().to_scipy()
    batches = [
        make_sampler(SimilarityGraph.from_scipy(matrix * scale)).draw(6, seeded())
        for scale in (1.0, 2.0**-200, 2.0**200)  # beyond float32, exact in float64
    ]
    for batch in batches[1:]:
        for ours, theirs in zip(batch, batches[0], strict=True):
            assert torch.equal(ours, theirs)


def test_64_bit_arithmetic() -> None:
    count = 2**40
    drawn = _draw_distinct(count, 4_000, seeded())
    assert drawn.dtype == torch.int64
    assert len(drawn.unique()) == 4_000
    assert stats.kstest(drawn.numpy() / count, "uniform").pvalue > 1e-3
    # entries of a graph with more of them than 32 bits can number
    start = torch.full((4_000,), count)
    share = torch.rand(4_000, dtype=torch.float64, generator=seeded())
    entry = WalkPairs(unweighted_graph(), n_steps=1)._draw_entries(start, start + 3, share)
    assert set((entry - count).tolist()) == {0, 1, 2}
    # 32-bit indices, which products prefer, do not leak into the batch
    weight = weighted_graph().weight
    short = csr_tensor(weight.crow_indices().int(), weight.col_indices().int(), weight.values())
    for make_sampler in SAMPLERS.values():
        batches = [make_sampler(SimilarityGraph(w)).draw(6, seeded()) for w in (weight, short)]
        for ours, theirs in zip(*batches, strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)


def test_small_weights_survive_beside_large_ones() -> None:
    """Weights beyond the precision of their running sum: rows keep to their own edges."""
    matrix = torch.zeros(6, 6, dtype=torch.float64)
    matrix[0, 1] = matrix[1, 0] = 1e20
    for i, j in ((2, 3), (3, 4), (4, 5)):
        matrix[i, j] = matrix[j, i] = 1e-20
    walk = WalkPairs(SimilarityGraph.from_scipy(matrix.numpy()), n_steps=2)
    rows = torch.arange(6).repeat(50)
    share = torch.rand(1, 300, dtype=torch.float64, generator=seeded())
    assert (matrix[rows, walk._walk(rows, share)] > 0).all()
    ones = SimilarityGraph.from_scipy(
        np.float32([[0, 2**25, 0], [2**25, 0, 1], [0, 1, 0]])  # 2²⁵ + 1 is 2²⁵ in float32
    )
    before = WalkPairs(ones, n_steps=1)._before
    assert before is not None
    assert (before.diff() > 0).all()


@samplers
def test_graph_without_edges_is_refused(make_sampler: Callable[..., GraphPairs]) -> None:
    empty = SimilarityGraph.from_scipy(np.zeros((5, 5)))
    with pytest.raises(InvalidInputError, match=r"n_samples=5 rows has no edges.*n_neighbors"):
        make_sampler(empty)


def test_wrong_sizes_are_refused() -> None:
    graph = unweighted_graph()
    with pytest.raises(InvalidInputError, match="batch_size=9 must be <= n_samples=8"):
        UniformPairs(graph).draw(9, seeded())
    for sampler in (UniformPairs(graph), WalkPairs(graph, n_steps=1)):
        with pytest.raises(InvalidInputError, match="batch_size=0 must be a whole number >= 1"):
            sampler.draw(0, seeded())
    for n_steps in (0, 1.5):
        with pytest.raises(InvalidInputError, match=f"n_steps={n_steps} must be a whole number"):
            WalkPairs(graph, n_steps=n_steps)  # type: ignore[arg-type]
