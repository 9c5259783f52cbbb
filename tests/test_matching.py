import itertools

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from prcut.errors import InvalidInputError
from prcut.matching import (
    adjusted_rand,
    count_shared,
    hungarian_accuracy,
    match_clusters,
    match_counts,
    max_nmi,
)


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


def test_scores_of_hand_made_clusters() -> None:
    labels = np.array([0, 0, 0, 1, 1, 2])
    assert hungarian_accuracy(labels, np.array([5, 5, 5, 9, 9, 7])) == 1
    assert hungarian_accuracy(labels, np.zeros(6, int)) == 0.5  # majority votes count once
    assert hungarian_accuracy(labels, np.arange(6)) == 0.5  # 6 clusters of one row, 3 matched
    assert hungarian_accuracy(labels, np.full(6, -1)) == 0  # noise is wrong, not a cluster
    assert max_nmi(labels, labels) == pytest.approx(1)
    # all noise is one cluster: nothing is known of the classes
    assert max_nmi(labels, np.full(6, -1)) == pytest.approx(0)
    assert adjusted_rand(labels, np.full(6, -1)) == pytest.approx(0)


def test_nmi_and_rand_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    labels, clusters = generator.integers(0, 4, 99), generator.integers(-1, 7, 99)
    expected = normalized_mutual_info_score(labels, clusters, average_method="max")
    assert max_nmi(labels, clusters) == expected
    assert max_nmi(labels, clusters) < normalized_mutual_info_score(labels, clusters)
    assert adjusted_rand(labels, clusters) == adjusted_rand_score(labels, clusters)


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        (np.zeros(3, int), "3 clusters for 4 labels"),
        (np.zeros(4), "dtype float64, expected a vector of whole numbers"),
        (np.zeros((4, 1), int), r"shape \(4, 1\)"),
    ],
)
def test_what_is_no_clustering_is_refused(clusters: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        hungarian_accuracy(np.zeros(4, int), clusters)


def test_matching_follows_the_numbers_of_the_clusters() -> None:
    labels = np.repeat([0, 1, 2], 10)
    clusters = np.array([40, 30, 20])[labels]
    assert match_clusters(labels, clusters) == {40: 0, 30: 1, 20: 2}
    shared = count_shared(labels, labels[::-1].copy(), 3, 4)
    assert shared.sum() == 30
    assert shared.shape == (3, 4)
    rows, columns = match_counts(shared)
    assert dict(zip(rows.tolist(), columns.tolist(), strict=True)) == {0: 2, 1: 1, 2: 0}
