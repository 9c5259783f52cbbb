import itertools

import numpy as np
import pytest
import torch
from scipy.sparse import block_diag

import reference
from prcut import SimilarityGraph, normalized_cut, ratio_cut, spectral_lower_bound
from prcut.numerics import certificate


@pytest.mark.parametrize("n_clusters", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_no_partition_is_below_the_bound(n_clusters: int, seed: int) -> None:
    graph = reference.random_graph(6, seed)
    bound = spectral_lower_bound(graph.weight, n_clusters).value
    normalized = spectral_lower_bound(graph.weight, n_clusters, node_weight=graph.degree).value
    for labels in itertools.product(range(n_clusters), repeat=6):
        if len(set(labels)) == n_clusters:
            partition = torch.tensor(labels)
            assert ratio_cut(graph.weight, partition) >= bound - 1e-12
            assert normalized_cut(graph.weight, partition) >= normalized - 1e-12


def test_eigenvalues_are_those_of_the_scaled_laplacian() -> None:
    graph = reference.random_graph(9, seed=2)
    node_weight = torch.linspace(0.1, 3.0, 9, dtype=torch.float64)
    dense = graph.weight.to_dense().double()
    laplacian = (torch.diag(dense.sum(1)) - dense) / (node_weight[:, None] * node_weight).sqrt()
    found = spectral_lower_bound(graph.weight, 4, node_weight=node_weight)
    expected = torch.linalg.eigvalsh(laplacian)[:4].clamp_min(0)
    torch.testing.assert_close(found.eigenvalues.clamp_min(0), expected, atol=1e-10, rtol=1e-8)


def test_complete_graph_is_met_exactly() -> None:
    # every ratio cut of a complete graph into k equals ½ n (k − 1): so does the bound
    graph = SimilarityGraph.from_labels(np.zeros(12, int))
    bound = spectral_lower_bound(graph.weight, 3)
    cut = ratio_cut(graph.weight, torch.arange(12) % 3).item()
    assert bound.value == pytest.approx(12.0)
    assert bound.ratio(cut) == pytest.approx(1.0)


def ring(n_samples: int) -> SimilarityGraph:
    """Its eigenvalues 2 − 2cos(2πj/n) are double: a method that overlooks one is caught."""
    return SimilarityGraph.from_neighbors((np.arange(n_samples)[:, None] + 1) % n_samples)


@pytest.mark.parametrize("normalize", [False, True])
def test_iterated_eigenvalues_equal_dense_ones(
    normalize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [reference.random_graph(n, seed=n, density=0.1).to_scipy() for n in (150, 100, 70)]
    graph = SimilarityGraph.from_scipy(block_diag(parts))
    node_weight = graph.degree if normalize else None
    dense = spectral_lower_bound(graph.weight, 8, node_weight=node_weight)
    monkeypatch.setattr(certificate, "_DENSE_SAMPLES", 0)
    iterated = spectral_lower_bound(graph.weight, 8, node_weight=node_weight)
    assert iterated.value <= dense.value + 1e-9
    assert iterated.value == pytest.approx(dense.value, rel=1e-3)
    off = (iterated.eigenvalues - dense.eigenvalues).abs()
    assert (off <= iterated.residual + 1e-9).all()


def test_double_eigenvalues_are_both_found() -> None:
    graph = ring(2500)  # above the dense limit
    bound = spectral_lower_bound(graph.weight, 5, max_iter=2000)
    steps = torch.tensor([0, 1, 1, 2, 2]) * (2 * torch.pi / 2500)
    torch.testing.assert_close(bound.eigenvalues, (2 - 2 * steps.cos()).double(), atol=2e-5, rtol=0)
    exact = 0.5 * float((2 - 2 * steps.double().cos()).sum())
    assert bound.value <= exact


def test_stopping_early_only_loosens() -> None:
    graph = reference.random_graph(2500, density=0.01)
    early = spectral_lower_bound(graph.weight, 4, max_iter=3)
    late = spectral_lower_bound(graph.weight, 4)
    assert early.residual > late.residual
    assert early.value < late.value


def test_enough_components_can_be_cut_for_nothing() -> None:
    for n_samples in (30, 3000):
        graph = SimilarityGraph.from_neighbors(np.arange(n_samples)[:, None] ^ 1)  # pairs of rows
        bound = spectral_lower_bound(graph.weight, 5)
        assert bound.value == pytest.approx(0, abs=1e-12)
        assert bound.ratio(1.0) > 1e9
        assert bound.ratio(0.0) == 1.0


def test_wrong_input_is_refused() -> None:
    weight = reference.random_graph(5).weight
    with pytest.raises(ValueError, match="n_clusters=6 must be <= n_samples=5"):
        spectral_lower_bound(weight, 6)
    with pytest.raises(ValueError, match="node_weight must be > 0 in every row that has an edge"):
        spectral_lower_bound(weight, 2, node_weight=torch.zeros(5))
