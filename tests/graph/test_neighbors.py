import tracemalloc

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from prcut.graph import neighbors
from prcut.graph import rows as vectors
from prcut.graph.neighbors import (
    Lists,
    draw_anchors,
    drop_own,
    find_nearest,
    find_neighbors,
    plan_lists,
    remeasure,
    search_exactly,
    search_lists,
    tune_candidates,
    tune_probe,
)
from prcut.graph.rows import as_vectors, project
from reference import mixture

METRICS = ["euclidean", "cosine", "inner_product"]


def scores(features: np.ndarray, metric: str) -> np.ndarray:
    """What every row measures to every row, in float64; larger is nearer only by product."""
    features = features.astype(np.float64)
    if metric == "euclidean":
        return np.asarray(((features[:, None] - features[None]) ** 2).sum(2))
    if metric == "cosine":
        length = np.linalg.norm(features, axis=1, keepdims=True)
        features = features / np.where(length == 0, 1, length)
    return np.asarray(features @ features.T)


def nearest_scores(features: np.ndarray, n_neighbors: int, metric: str) -> np.ndarray:
    table = scores(features, metric)
    sign = 1 if metric == "euclidean" else -1
    np.fill_diagonal(table, sign * np.inf)
    return sign * np.sort(sign * table, axis=1)[:, :n_neighbors]


def words(n_samples: int) -> np.ndarray:
    """Rows of mostly zeros, of lengths that leave no ties."""
    rng = np.random.default_rng(0)
    drawn = rng.random((n_samples, 60), dtype=np.float32)
    rows: np.ndarray = np.where(rng.random(drawn.shape) < 0.2, drawn, 0).astype(np.float32)
    return rows


def measured_recall(features: np.ndarray, found: neighbors.Neighbors, n_queries: int) -> float:
    """Fraction of the true neighbours found, on queries that the tuning did not choose."""
    some = np.random.default_rng(999).choice(len(found.rows), n_queries, replace=False)
    exact = find_neighbors(
        features,
        found.indices.shape[1],
        rows=found.rows[some],
        metric=found.metric,
        recall=1.0,
    )
    hit = (exact.indices[:, :, None] == found.indices[some][:, None]).any(2)
    return float(hit.mean())


@pytest.fixture(params=[0, neighbors.FEW_COLUMNS], ids=["blocks", "one by one"])
def lists_for_few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inverted lists, read both ways, at sizes that a test can check against the exact search."""
    monkeypatch.setattr(neighbors, "_EXACT_DISTANCES", 10**6)
    monkeypatch.setattr(neighbors, "FEW_COLUMNS", request.param)


@given(
    n_samples=st.integers(2, 40),
    n_features=st.integers(1, 5),
    n_neighbors=st.integers(1, 39),
    metric=st.sampled_from(METRICS),
    coarse=st.booleans(),
    sparse=st.booleans(),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=120, deadline=None)
def test_the_nearest_others_by_brute_force(
    n_samples: int,
    n_features: int,
    n_neighbors: int,
    metric: str,
    coarse: bool,
    sparse: bool,
    seed: int,
) -> None:
    """Coarse values bring duplicates, ties and rows of zeros, where own numbers hide."""
    rng = np.random.default_rng(seed)
    n_neighbors = min(n_neighbors, n_samples - 1)
    features = rng.normal(size=(n_samples, n_features)).astype(np.float32)
    if coarse:
        features = np.round(features)
    given_as = scipy.sparse.csr_array(features) if sparse else features
    found = find_neighbors(given_as, n_neighbors, metric=metric)  # type: ignore[arg-type]
    assert found.indices.shape == found.distances.shape == (n_samples, n_neighbors)
    for row, near in enumerate(found.indices):
        assert row not in near
        assert len(set(near)) == n_neighbors
    expected = nearest_scores(features, n_neighbors, metric)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-5, atol=1e-5)
    named = np.take_along_axis(scores(features, metric), found.indices, 1)
    np.testing.assert_allclose(found.distances, named, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_small_chunks_change_nothing(
    metric: str, form: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = form(mixture(60))
    whole = find_neighbors(features, 7, metric=metric)  # type: ignore[arg-type]
    monkeypatch.setattr(vectors, "CHUNK_NUMBERS", 16 * 5)  # fewer rows than neighbours
    monkeypatch.setattr(neighbors, "CHUNK_NUMBERS", 16 * 5)
    monkeypatch.setattr(neighbors, "_BLOCK_QUERIES", 32)
    parts = find_neighbors(features, 7, metric=metric)  # type: ignore[arg-type]
    np.testing.assert_array_equal(parts.indices, whole.indices)
    np.testing.assert_allclose(parts.distances, whole.distances, rtol=1e-5)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_duplicates_are_neighbors_at_exactly_zero_and_never_the_row_itself(form: type) -> None:
    features = form(np.repeat(mixture(20, 50) + 10, 9, axis=0))
    found = find_neighbors(features, 8)
    assert (found.distances == 0).all()
    assert (found.indices // 9 == np.arange(180)[:, None] // 9).all()
    assert (found.indices != np.arange(180)[:, None]).all()
    further = find_neighbors(features, 9)
    assert (further.distances[:, :8] == 0).all()
    assert (further.distances[:, 8] > 0).all()


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_far_from_zero_keep_their_distances(dtype: type, form: type) -> None:
    """|x|² + |y|² - 2xy in float32 would see nothing but rounding here."""
    rng = np.random.default_rng(0)
    near = np.round(rng.normal(size=(400, 8)) * 64).astype(dtype)
    found = find_neighbors(form(near + dtype(2**16)), 5)
    np.testing.assert_allclose(found.distances, nearest_scores(near, 5, "euclidean"), rtol=1e-6)


@pytest.mark.parametrize("n_samples", [500, 3000])
@pytest.mark.usefixtures("lists_for_few")
def test_anchors_find_among_all_rows(n_samples: int) -> None:
    features = mixture(n_samples)
    rows = np.array([n_samples - 1, 3, 250, 3])  # neither sorted nor without repeats
    if n_samples > 1000:
        rows = np.concatenate([rows, np.arange(0, n_samples, 2)])
    found = find_neighbors(features, 6, rows=rows)
    every = find_neighbors(features, 6, recall=1.0)
    assert (found.n_lists > 0) == (n_samples > 1000)
    np.testing.assert_array_equal(found.rows, rows)
    fraction = (found.indices[:, :, None] == every.indices[rows][:, None]).any(2).mean()
    assert fraction >= (0.98 if found.n_lists else 1.0)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("recall", [0.8, 0.98])
@pytest.mark.usefixtures("lists_for_few")
def test_lists_reach_the_recall_on_other_queries(metric: str, recall: float) -> None:
    features = mixture(8000)
    found = find_neighbors(features, 15, metric=metric, recall=recall)  # type: ignore[arg-type]
    assert 0 < 3 * found.n_probe < found.n_lists
    assert found.recall >= recall
    # 2,000 queries: the tuned recall is a lower estimate, so this leaves twice the noise
    assert measured_recall(features, found, 2000) >= recall - 0.003
    linked = found.indices >= 0
    first, place = np.nonzero(linked)
    other = found.indices[linked]
    pairs = features[first].astype(np.float64), features[other].astype(np.float64)
    if metric == "euclidean":
        expected = ((pairs[0] - pairs[1]) ** 2).sum(1)
    else:
        expected = (pairs[0] * pairs[1]).sum(1)
        if metric == "cosine":
            expected /= np.linalg.norm(pairs[0], axis=1) * np.linalg.norm(pairs[1], axis=1)
    np.testing.assert_allclose(found.distances[first, place], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.usefixtures("lists_for_few")
def test_many_columns_are_projected_and_measured_in_full(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    features = mixture(4000) @ rng.normal(size=(16, 300)).astype(np.float32)
    features += rng.normal(size=features.shape).astype(np.float32)
    features[2000:2100] = features[:100]
    widths: list[int] = []
    fill = Lists.fill

    def watched(given: vectors.Vectors, *args: object) -> Lists:
        widths.append(given.features.shape[1])
        return fill(given, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Lists, "fill", watched)
    found = find_neighbors(features, 10, metric=metric, recall=0.95)  # type: ignore[arg-type]
    assert widths == [96]
    assert found.n_lists > 0
    assert 0.95 <= found.recall < 1
    assert measured_recall(features, found, 1000) >= 0.945
    if metric == "euclidean":
        assert (found.distances[:100, 0] == 0).all()  # duplicates
    named = [
        scores(features[[row, near[-1]]], metric)[0, 1] for row, near in enumerate(found.indices)
    ]
    np.testing.assert_allclose(found.distances[:, -1], named, rtol=1e-4)
    # noise has no main directions
    noise = rng.normal(size=(4000, 300)).astype(np.float32)
    exact = find_neighbors(noise, 10, metric=metric)  # type: ignore[arg-type]
    assert widths == [96, 300]
    assert (exact.n_lists, exact.recall) == (0, 1.0)


def test_rows_without_structure_are_searched_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "_EXACT_DISTANCES", 10**6)
    features = np.random.default_rng(0).random((4000, 64), dtype=np.float32)
    tuned: list[int] = []
    tune = neighbors.tune_probe

    def watched(*args: object) -> tuple[int, float, float]:
        found = tune(*args)  # type: ignore[arg-type]
        tuned.append(found[0])
        return found

    monkeypatch.setattr(neighbors, "tune_probe", watched)
    found = find_neighbors(features, 15)
    assert tuned  # lists were tried, and given up
    assert (found.n_lists, found.n_probe, found.recall) == (0, 0, 1.0)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_sparse_rows_are_found_as_dense_ones(metric: str, form: str, kind: str) -> None:
    text = words(40)
    rows = np.array([35, 3, 3])
    sparse = getattr(scipy.sparse, f"{form}_{kind}")(text)
    found = find_neighbors(sparse, 5, rows=rows, metric=metric)  # type: ignore[arg-type]
    expected = find_neighbors(text, 5, rows=rows, metric=metric)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5)
    assert found.distances.dtype == np.float32
    assert found.indices.dtype == np.int64
    assert (found.recall, found.n_lists, found.metric) == (1.0, 0, metric)


@pytest.mark.parametrize("metric", METRICS)
def test_wide_sparse_rows_are_never_made_dense(metric: str) -> None:
    """2.4 GB, were they dense."""
    rng = np.random.default_rng(0)
    place = np.repeat(np.arange(3000), 20), rng.integers(200_000, size=60_000)
    text = scipy.sparse.csr_array((rng.random(60_000, np.float32), place), (3000, 200_000))
    find_neighbors(text[:10], 3, metric=metric)  # type: ignore[arg-type] # imports
    tracemalloc.start()
    found = find_neighbors(text, 5, metric=metric)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    some = np.arange(0, 3000, 300)
    used = np.unique(text[some].indices)  # no other column matters to the products of these rows
    products = (text[some][:, used] @ text[:, used].T).toarray()
    norm = np.asarray(text.power(2).sum(1))
    if metric == "euclidean":
        expected = -(norm[some, None] + norm - 2 * products)
    else:
        length = np.where(norm > 0, np.sqrt(norm), 1) if metric == "cosine" else np.ones(3000)
        expected = products / length[some, None] / length
    expected[np.arange(len(some)), some] = -np.inf
    best = -np.sort(-expected, axis=1)[:, :5]
    sign = -1 if metric == "euclidean" else 1
    np.testing.assert_allclose(sign * found.distances[some], best, rtol=1e-4, atol=1e-5)


@given(
    n_samples=st.integers(1, 300),
    fraction=st.floats(0, 1, exclude_min=True),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=50, deadline=None)
def test_anchors_are_sorted_distinct_rows(n_samples: int, fraction: float, seed: int) -> None:
    drawn = draw_anchors(n_samples, fraction, np.random.default_rng(seed))
    assert drawn.dtype == np.int64
    assert len(drawn) == max(1, round(fraction * n_samples))
    assert (np.diff(drawn) > 0).all()
    assert 0 <= drawn[0] <= drawn[-1] < n_samples


FEATURES = np.zeros((80, 2), np.float32)


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (
            FEATURES,
            {"n_neighbors": 100},
            r"^n_neighbors=100 must be < n_samples=80; "
            r"lower n_neighbors or pass a precomputed graph\.$",
        ),
        (FEATURES, {"n_neighbors": 80}, "n_neighbors=80 must be < n_samples=80"),
        (FEATURES, {"n_neighbors": 0}, "n_neighbors=0 must be a whole number >= 1"),
        (FEATURES, {"n_neighbors": 2.5}, "n_neighbors=2.5 must be a whole number"),
        (FEATURES, {"metric": "manhattan"}, "metric='manhattan' must be 'euclidean', 'cosine' or"),
        (FEATURES, {"recall": 0.0}, r"recall=0.0 must lie in \(0, 1\]"),
        (FEATURES, {"recall": 98}, r"recall=98 must lie in \(0, 1\]"),
        (FEATURES, {"rows": [0, 80]}, r"rows lie in \[0, 80\], expected rows in \[0, n_samples=80"),
        (FEATURES, {"rows": [-1]}, r"rows lie in \[-1, -1\]"),
        (FEATURES, {"rows": [0.5]}, r"rows have shape \(1,\) and dtype float64, expected integers"),
        (FEATURES, {"rows": [[0]]}, r"rows have shape \(1, 1\)"),
        (FEATURES.astype(int), {}, r"dtype int64, expected float16.*features.astype\('float32'\)"),
        (FEATURES[0], {}, r"features have shape \(2,\), expected \(n_samples, n_features\)"),
        (FEATURES[:, :0], {}, r"features have shape \(80, 0\)"),
        (FEATURES[:0], {}, "n_neighbors=15 must be < n_samples=0"),
        (
            np.where(np.arange(80)[:, None] < 3, np.nan, FEATURES),
            {},
            r"NaN or infinity \(in float32\) in 3 of 80 rows; remove or replace them",
        ),
        (np.where(np.eye(80, 2) > 0, -np.inf, FEATURES), {"metric": "cosine"}, "in 2 of 80 rows"),
        (np.full((80, 2), 1e200), {}, r"NaN or infinity \(in float32\) in 80 of 80 rows"),
        (np.full((80, 2), 1e19), {}, r"norm beyond 8.5e\+37 in 80 of 80 rows.* scale the features"),
    ],
)
def test_wrong_input_is_refused(features: np.ndarray, options: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=message):
        find_neighbors(features, **options)


@pytest.mark.parametrize("metric", ["euclidean", "inner_product"])
def test_blocks_are_joined_to_the_search_of_all_rows(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = mixture(90)
    expected = find_nearest(features[[7, 80]], features, 12, metric == "inner_product")
    monkeypatch.setattr(neighbors, "_BLOCK_ROWS", 10)  # fewer than are asked for
    found = search_exactly(as_vectors(features, metric), np.array([7, 80]), 12)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)


def test_remeasured_duplicates_are_at_zero_and_come_first() -> None:
    features = np.array([[1e3, 0.1], [0.0, 0.0], [1e3, 0.1]], np.float32)
    for form in (features, features.astype(np.float64), csr_array(features)):
        vectors = as_vectors(form, "euclidean")
        distances, indices = remeasure(vectors, np.array([0]), np.array([[1, 2, -1, 0]]))
        assert indices.tolist() == [[2, 0, 1, -1]]
        assert distances[0, :2].tolist() == [0, 0]
        assert distances[0, 2:] == pytest.approx([1e6 + 0.01, np.inf])


@given(n_columns=st.integers(1, 400), n_found=st.integers(1, 20), largest=st.booleans())
@settings(max_examples=60, deadline=None)
def test_groups_select_what_topk_does(n_columns: int, n_found: int, largest: bool) -> None:
    n_found = min(n_found, n_columns)
    table = torch.rand(5, n_columns, generator=torch.Generator().manual_seed(n_columns))
    table[:, ::3] = table[:, :1].clone()  # ties
    values, columns = neighbors._select(table, n_found, largest)
    assert torch.equal(values, table.topk(n_found, dim=1, largest=largest).values)
    assert torch.equal(values, table.gather(1, columns))
    assert all(len(set(row.tolist())) == n_found for row in columns)


def test_the_own_number_is_dropped_or_else_the_last() -> None:
    indices = np.array([[0, 5, 6], [7, 1, 8], [5, 6, 9]])
    distances, others = drop_own(np.array([0, 1, 2]), indices / 10, indices)
    assert others.tolist() == [[5, 6], [7, 8], [5, 6]]
    assert distances.tolist() == [[0.5, 0.6], [0.7, 0.8], [0.5, 0.6]]


def lower_estimate(found: np.ndarray) -> float:
    return float(found.mean() - 2 * found.std() / np.sqrt(len(found)))


def test_tuning_foretells_the_recall_of_every_n_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of lists against real searches, on the very queries of the tuning."""
    monkeypatch.setattr(neighbors, "_QUERIES_TOGETHER", 16)
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
    assert plan_lists(3000, 3000) == 0
    assert plan_lists(60_000, 60_000) == 512
    assert plan_lists(200_000, 200_000) == 1024
    assert plan_lists(1_000_000, 10) == 0
    assert plan_lists(1_000_000, 100) == 0  # few queries do not pay for lists
    assert 0 < plan_lists(1_000_000, 10_000) < plan_lists(1_000_000, 1_000_000)
    assert plan_lists(100, 10**9) == 0  # nor do a hundred rows fill any


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
