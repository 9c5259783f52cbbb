"""One battery over every objective: loops, enumeration, gradients, symmetries, extremes."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from prcut import SimilarityGraph, cluster_imbalance, expected_ratio_cut, soft_ratio_cut
from prcut.numerics import objective
from prcut.numerics.cuts import cluster_cuts, ratio_cut
from prcut.numerics.expectation import ratio_cut_upper_bound
from prcut.numerics.objective import (
    ClusterCost,
    hard_objective,
    soft_graph_ratio_cut,
    soft_pair_sums,
    softmax,
)


class Objective(NamedTuple):
    """An objective as a function of (graph, probs) giving its total, and its slow reference."""

    value: Callable[[SimilarityGraph, Tensor], Tensor]
    reference: Callable[[SimilarityGraph, Tensor], Tensor]
    node_weight: Callable[[SimilarityGraph], Tensor]
    exact_on_hard: bool = True


def ones(graph: SimilarityGraph) -> Tensor:
    return torch.ones(graph.n_samples, dtype=torch.float64)


def on_pairs(node_weight: Callable[[SimilarityGraph], Tensor]) -> Callable[..., Tensor]:
    def value(graph: SimilarityGraph, probs: Tensor) -> Tensor:
        source, target, weight = reference.undirected_edges(graph)
        mass = node_weight(graph).to(probs.dtype) @ probs
        return soft_ratio_cut(weight.to(probs.dtype), probs[source], probs[target], mass)

    return value


OBJECTIVES = {
    "pairs, ratio": Objective(
        on_pairs(ones), lambda g, p: reference.surrogate(g, p, ones(g)), ones
    ),
    "pairs, normalised": Objective(
        on_pairs(lambda g: g.degree),
        lambda g, p: reference.surrogate(g, p, g.degree),
        lambda g: g.degree,
    ),
    "graph, ratio": Objective(
        lambda g, p: soft_graph_ratio_cut(g.weight, p),
        lambda g, p: reference.surrogate(g, p, ones(g)),
        ones,
    ),
    "graph, normalised": Objective(
        lambda g, p: soft_graph_ratio_cut(g.weight, p, node_weight=g.degree),
        lambda g, p: reference.surrogate(g, p, g.degree),
        lambda g: g.degree,
    ),
    "expected": Objective(
        lambda g, p: expected_ratio_cut(g.weight, p), reference.expectation, ones
    ),
    "upper bound": Objective(
        lambda g, p: ratio_cut_upper_bound(g.weight, p),
        reference.upper_bound,
        ones,
        exact_on_hard=False,
    ),
}

objectives = pytest.mark.parametrize("name", OBJECTIVES)
shapes = st.tuples(st.integers(2, 7), st.integers(1, 3), st.integers(0, 10**6))


@objectives
@given(shape=shapes, sharpness=st.floats(0, 30), density=st.floats(0.1, 1))
@settings(max_examples=25, deadline=None)
def test_equals_loops_on_any_graph(
    name: str, shape: tuple[int, int, int], sharpness: float, density: float
) -> None:
    n_samples, n_clusters, seed = shape
    graph = reference.random_graph(n_samples, seed, density)
    probs = reference.random_probs(n_samples, n_clusters, seed, sharpness)
    torch.testing.assert_close(
        OBJECTIVES[name].value(graph, probs),
        OBJECTIVES[name].reference(graph, probs).sum(),
        atol=1e-10,
        rtol=1e-10,
    )


@objectives
@given(shape=shapes)
@settings(max_examples=15, deadline=None)
def test_gradcheck(name: str, shape: tuple[int, int, int]) -> None:
    n_samples, n_clusters, seed = shape
    graph = reference.random_graph(n_samples, seed, density=1.0)
    # one column less than the softmax has: inside (0, 1) even for a single cluster
    probs = reference.random_probs(n_samples, n_clusters + 1, seed)[:, 1:].requires_grad_()
    assert torch.autograd.gradcheck(lambda p: OBJECTIVES[name].value(graph, p), (probs,))


@objectives
@given(shape=shapes)
@settings(max_examples=25, deadline=None)
def test_one_hot_equals_the_hard_cut(name: str, shape: tuple[int, int, int]) -> None:
    n_samples, n_clusters, seed = shape
    objective = OBJECTIVES[name]
    graph = reference.random_graph(n_samples, seed)
    labels = reference.random_labels(n_samples, n_clusters, seed)  # clusters may be empty
    cut = ratio_cut(graph.weight, labels, n_clusters, node_weight=objective.node_weight(graph))
    value = objective.value(graph, reference.one_hot(labels, n_clusters))
    if objective.exact_on_hard:
        torch.testing.assert_close(value, cut, atol=1e-10, rtol=1e-10)
    else:
        assert cut * (1 - 1e-12) <= value <= 2 * cut * (1 + 1e-12)


@objectives
def test_scaling_weights_scales_the_value(name: str) -> None:
    graph = reference.random_graph(9)
    scaled = SimilarityGraph.from_scipy(graph.to_scipy() * 1e6)
    probs = reference.random_probs(9, 3)
    value = OBJECTIVES[name].value
    factor = 1.0 if "normalised" in name else 1e6  # the volume scales with the cut
    torch.testing.assert_close(value(scaled, probs), factor * value(graph, probs))


@objectives
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [50.0, 1e4, 1e30])
def test_extreme_logits_stay_finite(name: str, dtype: torch.dtype, size: float) -> None:
    graph = reference.random_graph(12)
    generator = torch.Generator().manual_seed(0)
    logits = size * torch.randn(12, 5, generator=generator, dtype=dtype)
    logits[:, 4] = -size  # one cluster that nobody is in
    logits.requires_grad_()
    value = OBJECTIVES[name].value(graph, logits.softmax(1))
    value.backward()
    assert torch.isfinite(value)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@objectives
def test_graph_without_edges_cuts_nothing(name: str) -> None:
    graph = SimilarityGraph.from_scipy(torch.zeros(5, 5).numpy())
    probs = reference.random_probs(5, 2).requires_grad_()
    value = OBJECTIVES[name].value(graph, probs)
    value.backward()
    assert value == 0
    assert probs.grad is not None
    assert not probs.grad.isnan().any()


@given(shape=shapes, sharpness=st.floats(0, 30))
@settings(max_examples=60, deadline=None)
def test_bound_is_above_and_within_twice_the_surrogate(
    shape: tuple[int, int, int], sharpness: float
) -> None:
    n_samples, n_clusters, seed = shape
    weight = reference.random_graph(n_samples, seed).weight
    probs = reference.random_probs(n_samples, n_clusters, seed, sharpness)
    exact = expected_ratio_cut(weight, probs, reduction="none")
    bound = ratio_cut_upper_bound(weight, probs, reduction="none")
    surrogate = soft_graph_ratio_cut(weight, probs, reduction="none")
    slack = 1 + 1e-9
    assert (exact <= bound * slack).all()
    assert (bound <= 2 * surrogate * slack).all()


def test_surrogate_bound_and_expectation_meet_as_n_grows() -> None:
    gaps = []
    for n_samples in (40, 160, 640):
        weight = reference.random_graph(n_samples, seed=1, density=0.3).weight
        probs = reference.random_probs(n_samples, 3, seed=2)
        exact = expected_ratio_cut(weight, probs)
        surrogate = soft_graph_ratio_cut(weight, probs)
        bound = ratio_cut_upper_bound(weight, probs)
        gaps.append((float(abs(surrogate / exact - 1)), float(bound / exact - 1)))
    for before, after in itertools.pairwise(gaps):
        # O(1/n): four times the rows, about a quarter of the gap
        assert after[0] < 0.4 * before[0]
        assert after[1] < 0.4 * before[1]


@pytest.mark.parametrize("n_heads", [None, 2])
@pytest.mark.parametrize("rows_at_once", [1, 4, 100])
def test_sums_over_pairs_and_their_gradient(
    monkeypatch: pytest.MonkeyPatch, n_heads: int | None, rows_at_once: int
) -> None:
    n_pairs, n_clusters = 7, 3
    values_of_a_row = n_clusters * (n_heads or 1)
    monkeypatch.setattr(objective, "_VALUES_IN_CACHE", rows_at_once * values_of_a_row)
    generator = torch.Generator().manual_seed(0)
    shape = (2, n_pairs, n_clusters) if n_heads is None else (2, n_pairs, n_clusters, n_heads)
    ends = torch.rand(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(n_pairs, generator=generator, dtype=torch.float64)
    node_weight = torch.rand(2, n_pairs, generator=generator, dtype=torch.float64)
    cuts, masses = soft_pair_sums(weight, ends, node_weight)
    expected_cuts, expected_masses = torch.zeros(2, *shape[2:], dtype=torch.float64)
    for pair in range(n_pairs):
        source, target = ends[:, pair].detach()
        split = source * (1 - target) + target * (1 - source)
        expected_cuts += 0.5 * weight[pair] * split
        expected_masses += node_weight[0, pair] * source + node_weight[1, pair] * target
    torch.testing.assert_close(cuts, expected_cuts)
    torch.testing.assert_close(masses, expected_masses)
    assert torch.autograd.gradcheck(lambda p: soft_pair_sums(weight, p, node_weight), (ends,))


@pytest.mark.parametrize("n_clusters", [1, 2, 10, 1000])
def test_imbalance_is_the_divergence_from_uniform(n_clusters: int) -> None:
    mass = reference.random_probs(1, n_clusters, sharpness=3.0)[0]
    uniform = torch.full_like(mass, 1 / n_clusters)
    expected = torch.nn.functional.kl_div(uniform.log(), mass, reduction="sum")
    torch.testing.assert_close(cluster_imbalance(mass), expected)
    assert cluster_imbalance(uniform).abs() < 1e-12


def test_imbalance_gradcheck_and_empty_cluster() -> None:
    mass = reference.random_probs(1, 5)[0].requires_grad_()
    assert torch.autograd.gradcheck(cluster_imbalance, (mass,))
    collapsed = torch.tensor([1.0, 0.0], requires_grad=True)
    value = cluster_imbalance(collapsed)
    value.backward()
    torch.testing.assert_close(value, torch.tensor(2.0).log())
    assert collapsed.grad is not None
    assert torch.isfinite(collapsed.grad).all()
    assert collapsed.grad[1] < collapsed.grad[0]  # pushes mass into the empty cluster


def cost_of(graph: SimilarityGraph, n_clusters: int, balance_weight: float) -> ClusterCost:
    total = float(graph.weight.values().sum())
    return ClusterCost.of(graph.n_samples, total, n_clusters, balance_weight=balance_weight)


@given(
    n_samples=st.integers(1, 12),
    n_clusters=st.integers(1, 15),
    seed=st.integers(0, 10**6),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    balance_weight=st.sampled_from([0.0, 0.5, 1.0, 7.0]),
)
@settings(max_examples=80, deadline=None)
def test_objective_of_cuts_and_sizes_is_that_of_labels_and_of_loops(
    n_samples: int, n_clusters: int, seed: int, density: float, balance_weight: float
) -> None:
    graph = reference.random_graph(n_samples, seed, density)
    labels = reference.random_labels(n_samples, n_clusters, seed)  # some clusters are empty
    cuts = cluster_cuts(graph.weight, labels, n_clusters).numpy()
    sizes = np.bincount(labels.numpy(), minlength=n_clusters).astype(float)
    found = cost_of(graph, n_clusters, balance_weight).objective(cuts, sizes)
    official = hard_objective(graph.weight, labels, n_clusters, balance_weight=balance_weight)
    looped = reference.partition_objective(
        graph.weight.to_dense().numpy(),
        np.ones(n_samples),
        labels.numpy(),
        n_clusters,
        float(graph.weight.values().sum()),
        balance_weight,
    )
    assert found == pytest.approx(official, rel=1e-11, abs=1e-11)
    assert found == pytest.approx(looped, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("n_clusters", [1, 3])
def test_graphs_without_edges_leave_the_balance_only(n_clusters: int) -> None:
    cost = ClusterCost.of(6, 0.0, n_clusters, balance_weight=1.0)
    even = np.full(n_clusters, 6 / n_clusters)
    assert cost.objective(np.zeros(n_clusters), even) == pytest.approx(0.0, abs=1e-12)
    if n_clusters == 3:  # that is what balance_weight means
        emptied = np.array([3.0, 3.0, 0.0])
        assert cost.objective(np.zeros(3), emptied) == pytest.approx(1.0)


@pytest.mark.parametrize("shape", [(7, 3), (7, 40), (7, 3, 2)])
def test_softmax_is_torchs_with_its_gradient(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    slope = torch.randn(shape, generator=generator, dtype=torch.float64)
    expected = logits.softmax(1)
    torch.testing.assert_close(softmax(logits), expected)
    gradients = [torch.autograd.grad(p, logits, slope)[0] for p in (softmax(logits), expected)]
    torch.testing.assert_close(*gradients)
    assert softmax(torch.tensor([[0.0, 1000.0]])).min() > 0
