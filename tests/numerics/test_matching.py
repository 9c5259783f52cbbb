import numpy as np
import pytest
from sklearn.metrics import (
    adjusted_mutual_info_score,
    adjusted_rand_score,
    normalized_mutual_info_score,
)

from prcut.numerics.matching import (
    adjusted_rand,
    count_shared,
    match_counts,
    max_nmi,
    shared_beyond_chance,
)


def test_nmi_and_rand_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    labels, clusters = generator.integers(0, 4, 99), generator.integers(-1, 7, 99)
    expected = normalized_mutual_info_score(labels, clusters, average_method="max")
    assert max_nmi(labels, clusters) == expected
    assert max_nmi(labels, clusters) < normalized_mutual_info_score(labels, clusters)
    rand = adjusted_rand(labels, clusters)
    assert rand == pytest.approx(adjusted_rand_score(labels, clusters), rel=1e-12)
    for one_cluster in (np.zeros(9, np.int64), np.arange(9)):
        assert adjusted_rand(one_cluster, one_cluster) == 1.0


def test_information_by_chance_does_not_count() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(60, size=3000)
    clusters = np.where(rng.random(3000) < 0.7, labels, rng.integers(60, size=3000))
    exact = adjusted_mutual_info_score(labels, clusters, average_method="max")
    assert shared_beyond_chance(labels, clusters, rng) == pytest.approx(exact, abs=0.01)
    assert shared_beyond_chance(labels, rng.permutation(labels), rng) == pytest.approx(0, abs=0.01)
    assert shared_beyond_chance(np.zeros(9, int), np.zeros(9, int), rng) == 1.0


def test_counts_are_matched_for_the_largest_sum() -> None:
    labels = np.repeat([0, 1, 2], 10)
    shared = count_shared(labels, labels[::-1].copy(), 3, 4)
    assert shared.sum() == 30
    assert shared.shape == (3, 4)
    rows, columns = match_counts(shared)
    assert dict(zip(rows.tolist(), columns.tolist(), strict=True)) == {0: 2, 1: 1, 2: 0}
