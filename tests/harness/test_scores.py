import itertools

import numpy as np
import pytest
from benchmarks.harness.scores import hungarian_accuracy, match_clusters, score_clusters
from benchmarks.harness.task import Task
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 4)), min_size=1, max_size=30))
def test_accuracy_is_that_of_the_best_matching(pairs: list[tuple[int, int]]) -> None:
    """Over all matchings of classes with distinct clusters, or with none; -1 is always wrong."""
    labels, clusters = np.array(pairs).T
    classes = np.unique(labels)
    names = [*np.unique(clusters[clusters >= 0]), *[-5] * len(classes)]  # -5: no row is in it
    matchings = itertools.permutations(names, len(classes))
    right = [
        sum(
            int(((labels == one) & (clusters == other)).sum())
            for one, other in zip(classes, matching, strict=True)
        )
        for matching in matchings
    ]
    assert hungarian_accuracy(labels, clusters) == pytest.approx(max(right) / len(labels))


def test_matching_follows_the_numbers_of_the_clusters() -> None:
    labels = np.repeat([0, 1, 2], 10)
    assert match_clusters(labels, np.array([40, 30, 20])[labels]) == {40: 0, 30: 1, 20: 2}
