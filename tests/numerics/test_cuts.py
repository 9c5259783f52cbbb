import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from prcut import SimilarityGraph, normalized_cut, ratio_cut
from prcut.numerics.cuts import cluster_links


@given(n_samples=st.integers(1, 12), n_clusters=st.integers(1, 5), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_equals_loops(n_samples: int, n_clusters: int, seed: int) -> None:
    graph = reference.random_graph(n_samples, seed)
    labels = reference.random_labels(n_samples, n_clusters, seed)
    ones = torch.ones(n_samples)
    ratio = reference.hard_cut(graph, labels, n_clusters, ones)
    normalized = reference.hard_cut(graph, labels, n_clusters, graph.degree)
    for value, expected in (
        (ratio_cut(graph.weight, labels, n_clusters, reduction="none"), ratio),
        (ratio_cut(graph.weight, labels, n_clusters), ratio.sum()),
        (normalized_cut(graph.weight, labels, n_clusters, reduction="none"), normalized),
        (normalized_cut(graph.weight, labels, n_clusters), normalized.sum()),
    ):
        torch.testing.assert_close(value, expected, atol=1e-12, rtol=1e-12)


def test_many_clusters_need_no_table() -> None:
    # a (n_samples, n_clusters) table of 10¹⁰ entries would not fit
    n_samples = 100_000
    ring = (torch.arange(n_samples)[:, None] + 1) % n_samples
    graph = SimilarityGraph.from_neighbors(ring.numpy())
    labels = torch.arange(n_samples)
    assert ratio_cut(graph.weight, labels) == n_samples  # ½ · 2 for every single row
    assert normalized_cut(graph.weight, labels) == n_samples / 2


def test_float32_weights_are_summed_in_float64() -> None:
    neighbors = [[(i + 1) % 4] for i in range(4)]
    graph = SimilarityGraph.from_neighbors(neighbors, [[1e8], [1.0], [1e8], [1.0]])
    # the cut is 1e8 + 1 + 1e8 + 1 from either side, which float32 cannot hold
    assert ratio_cut(graph.weight, torch.tensor([0, 1, 0, 1])) == (2e8 + 2) / 2


def test_cluster_of_isolated_rows_adds_nothing() -> None:
    graph = SimilarityGraph.from_neighbors([[1], [0], [-1]])
    labels = torch.tensor([0, 0, 1])
    assert normalized_cut(graph.weight, labels) == 0
    assert ratio_cut(graph.weight, labels, 5, reduction="none").tolist() == [0.0] * 5


@pytest.mark.parametrize(
    ("labels", "n_clusters", "message"),
    [
        (torch.zeros(3), None, "labels have dtype torch.float32 .* expected integers"),
        (torch.zeros(4, dtype=torch.int64), None, r"shape \(4,\), expected .*=\(3,\)"),
        (torch.tensor([0, -1, 0]), None, "labels contain -1, expected values >= 0"),
        (torch.tensor([0, 2, 0]), 2, "labels contain 2, expected values < n_clusters=2"),
    ],
)
def test_wrong_labels_are_refused(
    labels: torch.Tensor, n_clusters: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ratio_cut(reference.random_graph(3).weight, labels, n_clusters)


def test_wrong_graph_node_weight_and_reduction_are_refused() -> None:
    labels = torch.zeros(3, dtype=torch.int64)
    weight = reference.random_graph(3).weight
    with pytest.raises(
        ValueError, match=r"weight is of type SimilarityGraph, .* pass graph\.weight"
    ):
        ratio_cut(reference.random_graph(3), labels)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"labels is of type ndarray, .* torch\.as_tensor\(labels\)"
    ):
        ratio_cut(weight, labels.numpy())  # type: ignore[arg-type]
    for cut in (ratio_cut, normalized_cut, cluster_links):
        with pytest.raises(ValueError, match=r"layout torch.strided .* expected torch.sparse_csr"):
            cut(weight.to_dense(), labels)
    with pytest.raises(ValueError, match=r"node_weight has shape \(2,\), expected"):
        ratio_cut(weight, labels, node_weight=torch.ones(2))
    with pytest.raises(ValueError, match="finite and >= 0"):
        ratio_cut(weight, labels, node_weight=torch.tensor([1.0, -1.0, 1.0]))
    with pytest.raises(ValueError, match="reduction='mean' must be 'sum' or 'none'"):
        ratio_cut(weight, labels, reduction="mean")  # type: ignore[arg-type]
