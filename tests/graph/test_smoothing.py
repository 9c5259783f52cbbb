import torch

import reference
from prcut import SimilarityGraph
from prcut.graph.build import graph_features


def test_rows_of_one_component_become_alike() -> None:
    labels = torch.arange(3).repeat_interleave(40)
    graph = SimilarityGraph.from_labels(labels)
    features = graph_features(graph, 8, generator=torch.Generator().manual_seed(0))
    assert features.shape == (120, 8)
    means = torch.stack([features[labels == label].mean(0) for label in range(3)])
    within = (features - means[labels]).norm(dim=1).max()
    between = torch.pdist(means).min()
    assert within < 0.05 * between


def test_generators_decide_and_columns_never_exceed_rows() -> None:
    graph = reference.random_graph(12)
    one, two, other = (
        graph_features(graph, 64, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert one.shape == (12, 12)


def test_rows_without_edges_stay_finite() -> None:
    graph = SimilarityGraph.from_neighbors([[1], [0], [-1], [-1]])
    features = graph_features(graph, 2, generator=torch.Generator().manual_seed(0))
    assert torch.isfinite(features).all()
