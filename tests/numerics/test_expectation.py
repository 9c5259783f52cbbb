import pytest
import torch

import reference
from prcut import SimilarityGraph, expected_ratio_cut
from prcut.numerics.expectation import N_NODES


@pytest.mark.parametrize("n_samples", [8, 64, 500, 4000])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 10.0, 1e4])
def test_default_nodes_reach_1e_10(n_samples: int, sharpness: float) -> None:
    weight = reference.random_graph(n_samples, density=min(1.0, 20 / n_samples)).weight
    probs = reference.random_probs(n_samples, 5, sharpness=sharpness)
    value = expected_ratio_cut(weight, probs)
    finer = expected_ratio_cut(weight, probs, n_nodes=4 * N_NODES)
    torch.testing.assert_close(value, finer, atol=0, rtol=1e-10)


def test_clusters_of_unequal_mass() -> None:
    """A crowded, a small and an almost empty cluster, each with its own interval."""
    weight = reference.random_graph(3000, density=0.005).weight
    logits = torch.zeros(3000, 3, dtype=torch.float64)
    logits[:, 1], logits[:, 2] = -5, -30
    probs = logits.softmax(1)
    value = expected_ratio_cut(weight, probs, reduction="none")
    finer = expected_ratio_cut(weight, probs, n_nodes=128, reduction="none")
    torch.testing.assert_close(value, finer, atol=0, rtol=1e-10)
    # an almost empty cluster is a single row when it is anything: ½ Σ p_i d_i
    single = 0.5 * (probs[:, 2] @ (weight @ torch.ones(3000, dtype=torch.float64)))
    torch.testing.assert_close(value[2], single, atol=0, rtol=1e-6)


def test_float32_probs_are_computed_in_float64() -> None:
    weight = reference.random_graph(40).weight.float()
    probs = reference.random_probs(40, 3).float().requires_grad_()
    value = expected_ratio_cut(weight, probs)
    value.backward()
    assert value.dtype == torch.float64
    assert probs.grad is not None
    assert probs.grad.dtype == torch.float32
    exact = expected_ratio_cut(weight.double(), probs.detach().double())
    torch.testing.assert_close(value.detach(), exact, atol=0, rtol=1e-12)


def test_nodes_must_be_positive() -> None:
    graph = SimilarityGraph.from_neighbors([[1], [0]])
    with pytest.raises(ValueError, match="n_nodes=0 must be a whole number >= 1"):
        expected_ratio_cut(graph.weight, torch.full((2, 2), 0.5), n_nodes=0)
