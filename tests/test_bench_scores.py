import numpy as np
import pytest

from prcut import SimilarityGraph
from prcut.bench.scores import score_clusters
from prcut.bench.task import Task


def test_cuts_are_of_whole_partitions_only() -> None:
    path = SimilarityGraph.from_neighbors([[1], [2], [3], [2]])  # 0-1-2-3
    labels = np.array([0, 0, 1, 1])
    scores = score_clusters(labels, np.array([30, 30, 10, 10]), path)
    assert (scores.ratio_cut, scores.used_clusters, scores.noise_share) == (0.5, 2, 0)
    assert scores.normalized_cut == pytest.approx(1 / 3)
    scores = score_clusters(labels, np.array([0, 0, 1, -1]), path)
    assert scores.ratio_cut is None
    assert scores.normalized_cut is None
    assert (scores.acc, scores.used_clusters, scores.noise_share) == (0.75, 2, 0.25)
    assert score_clusters(labels, np.zeros(4, int), path).ratio_cut == 0


def test_a_method_is_given_no_labels() -> None:
    assert Task._fields == ("rows", "graph", "n_clusters", "seed")
