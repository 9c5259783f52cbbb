import numpy as np
import pytest
import torch

from prcut import SimilarityGraph, build_graph, ratio_cut
from prcut.fit.score import score_labels
from prcut.numerics.objective import hard_objective
from prcut.search.partition import merge_clusters


@pytest.fixture(scope="module")
def graph() -> SimilarityGraph:
    rows = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    return build_graph(rows, 10)


def test_a_score_is_the_objective_the_cut_the_sizes_and_the_tree(graph: SimilarityGraph) -> None:
    labels = np.random.default_rng(1).integers(0, 4, 200)
    score = score_labels(graph, labels, 4, 0.5)
    found = torch.from_numpy(labels)
    expected = hard_objective(graph.weight, found, 4, balance_weight=0.5)
    assert score.objective == pytest.approx(float(expected), rel=1e-12)
    assert score.ratio_cut == pytest.approx(ratio_cut(graph.weight, found, 4).item())
    np.testing.assert_array_equal(score.cluster_sizes, np.bincount(labels))
    tree = merge_clusters(graph, labels, balance_weight=0.5)
    assert score.merge_tree is not None
    np.testing.assert_array_equal(score.merge_tree.children, tree.children)
    np.testing.assert_allclose(score.merge_tree.costs, tree.costs)


def test_an_empty_cluster_has_no_tree(graph: SimilarityGraph) -> None:
    score = score_labels(graph, np.arange(200) % 3, 4, 1.0)
    assert score.merge_tree is None
    assert score.cluster_sizes[3] == 0
    assert np.isfinite(score.objective)
