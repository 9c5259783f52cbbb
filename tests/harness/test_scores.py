import itertools

import numpy as np
import pytest
from benchmarks.harness.scores import hungarian_accuracy, match_clusters, score_clusters
from benchmarks.harness.task import Task

from prcut import SimilarityGraph


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


def naive_accuracy(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Over all matchings of classes with distinct clusters, or with none."""
    classes, names = np.unique(labels), [*np.unique(clusters[clusters >= 0])]
    names += [-5] * len(classes)  # a cluster no row is in
    return max(
        sum(
            int(((labels == one) & (clusters == other)).sum())
            for one, other in zip(classes, chosen, strict=True)
        )
        / len(labels)
        for chosen in itertools.permutations(names, len(classes))
    )


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 5])
@pytest.mark.parametrize("with_noise", [False, True])
def test_accuracy_is_that_of_the_best_matching(n_clusters: int, with_noise: bool) -> None:
    generator = np.random.default_rng(n_clusters)
    for _ in range(5):
        labels = generator.integers(0, 3, 40)
        clusters = generator.integers(-int(with_noise), n_clusters, 40)
        assert hungarian_accuracy(labels, clusters) == pytest.approx(
            naive_accuracy(labels, clusters)
        )


def test_accuracy_of_hand_made_clusters() -> None:
    labels = np.array([0, 0, 0, 1, 1, 2])
    assert hungarian_accuracy(labels, np.array([5, 5, 5, 9, 9, 7])) == 1
    assert hungarian_accuracy(labels, np.zeros(6, int)) == 0.5  # majority votes count once
    assert hungarian_accuracy(labels, np.arange(6)) == 0.5  # 6 clusters of one row, 3 matched
    assert hungarian_accuracy(labels, np.full(6, -1)) == 0  # noise is wrong, not a cluster


def test_matching_follows_the_numbers_of_the_clusters() -> None:
    labels = np.repeat([0, 1, 2], 10)
    assert match_clusters(labels, np.array([40, 30, 20])[labels]) == {40: 0, 30: 1, 20: 2}
