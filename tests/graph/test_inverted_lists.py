import numpy as np
import pytest

from prcut.graph import inverted_lists
from prcut.graph.exact_search import drop_own, search_exactly
from prcut.graph.inverted_lists import (
    Lists,
    plan_lists,
    search_lists,
    tune_candidates,
    tune_probe,
)
from prcut.graph.neighbors import find_neighbors
from prcut.graph.rows import as_vectors, project
from reference import mixture


def lower_estimate(found: np.ndarray) -> float:
    return float(found.mean() - 2 * found.std() / np.sqrt(len(found)))


def test_tuning_foretells_the_recall_of_every_n_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of lists against real searches, on the very queries of the tuning."""
    monkeypatch.setattr(inverted_lists, "_BLOCK_QUERIES", 16)
    features, queries, n_neighbors = mixture(4000), np.arange(3999, -1, -2), 10
    vectors = as_vectors(features, "euclidean")
    sample = np.arange(0, 2000, 7)
    lists = Lists.fill(vectors, queries, 64, np.random.default_rng(0))
    true = find_neighbors(features, n_neighbors, rows=queries[sample], recall=1.0).indices
    kept = np.random.default_rng(1).random(true.shape) < 0.995
    for recall in (0.6, 0.9, 0.97):
        n_probe, lower, n_read = tune_probe(lists, sample, true, kept, recall)
        lower_ends = []
        for probe in (max(n_probe - 1, 1), n_probe):
            options = {"n_probe": probe, "n_candidates": n_neighbors}
            _, found = search_lists(lists, vectors, n_neighbors, **options)
            hit = kept & (true[:, :, None] == found[sample][:, None]).any(2)
            lower_ends.append(lower_estimate(hit.mean(1)))
        assert lower_ends[1] == pytest.approx(lower, abs=1e-6)
        assert lower_ends[0] < recall <= lower_ends[1] or n_probe == 1
        assert 4000 / 64 < n_read < 4000
    assert tune_probe(lists, sample, true, np.zeros(true.shape, bool), 0.1)[0] == 0


def test_candidates_of_a_projection_hold_the_true_neighbours() -> None:
    rng = np.random.default_rng(0)
    main = rng.normal(size=(1000, 20)) @ rng.normal(size=(20, 200))
    features = (main + rng.normal(size=main.shape)).astype(np.float32)
    queries = np.arange(200)
    for metric in ("euclidean", "cosine", "inner_product"):
        vectors = as_vectors(features, metric)
        _, true = drop_own(queries, *search_exactly(vectors, queries, 11))
        projected = project(vectors, 24, np.random.default_rng(0))
        tuned = tune_candidates(projected, queries, true, 0.9)
        assert tuned is not None
        n_candidates, true, kept = tuned
        _, found = drop_own(queries, *search_exactly(projected, queries, n_candidates + 1))
        np.testing.assert_array_equal(kept, (true[:, :, None] == found[:, None]).any(2))
        assert 0.9 <= lower_estimate(kept.mean(1)) < 1
        assert tune_candidates(project(vectors, 1, rng), queries, true, 0.9) is None


def test_exact_or_lists_by_their_work() -> None:
    plan = plan_lists
    assert plan(3000, 3000) == 0
    assert plan(60_000, 60_000) == 512
    assert plan(200_000, 200_000) == 1024
    assert plan(1_000_000, 10) == 0
    assert plan(1_000_000, 100) == 0  # few queries do not pay for lists
    assert 0 < plan(1_000_000, 10_000) < plan(1_000_000, 1_000_000)
    assert plan(100, 10**9) == 0  # nor do a hundred rows fill any


def test_too_few_rows_in_the_lists_are_marked() -> None:
    features = np.concatenate([mixture(3000), mixture(3, seed=5) + 1000])
    vectors = as_vectors(features, "inner_product")
    queries = np.arange(3003)
    lists = Lists.fill(vectors, queries, 64, np.random.default_rng(0))
    options = {"n_probe": 1, "n_candidates": 1000}
    distances, indices = search_lists(lists, vectors, 1000, **options)
    assert (indices == -1).any()
    assert (distances[indices == -1] == -np.inf).all()
    assert np.isfinite(distances[indices >= 0]).all()
    assert (indices != np.arange(3003)[:, None]).all()
