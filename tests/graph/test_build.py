import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from prcut import SimilarityGraph
from prcut.errors import DataWarning
from prcut.graph import build as similarity
from prcut.graph.build import build_graph, edge_similarity, graph_features
from prcut.graph.neighbors import Neighbors, find_neighbors

KINDS = ["binary", "mean", "self_tuning", "cosine", lambda source, target: np.ones(len(source))]
FORMS = [np.asarray, scipy.sparse.csr_array, scipy.sparse.csc_matrix]


def normal(n_samples: int, n_features: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=(n_samples, n_features)), np.float32)


def dense(graph: SimilarityGraph) -> np.ndarray:
    return np.asarray(graph.weight.to_dense().numpy())


def directed_weights(features: np.ndarray, n_neighbors: int, kind: str, tau: float) -> np.ndarray:
    """The formulas, one pair at a time; rows are in general position, so no ties."""
    n_samples = len(features)
    rows = features.astype(np.float64)
    squared = ((rows[:, None] - rows[None]) ** 2).sum(2)
    near = np.argsort(squared + np.diag(np.full(n_samples, np.inf)), axis=1)[:, :n_neighbors]
    scale = [np.sqrt(squared[i, near[i, min(7, n_neighbors) - 1]]) for i in range(n_samples)]
    weight = np.zeros((n_samples, n_samples))
    for i in range(n_samples):
        for j in near[i]:
            length = np.linalg.norm(rows[i]) * np.linalg.norm(rows[j])
            weight[i, j] = {
                "binary": 1.0,
                "mean": 1.0,
                "self_tuning": np.exp(-squared[i, j] / (scale[i] * scale[j])),
                "cosine": np.exp((rows[i] @ rows[j] / length - 1) / tau),
            }[kind]
    return weight


@given(
    n_samples=st.integers(3, 25),
    n_neighbors=st.integers(1, 12),
    kind=st.sampled_from(["binary", "mean", "self_tuning", "cosine"]),
    tau=st.floats(0.05, 2),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
@pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")  # few neighbours leave components
def test_weights_are_the_formulas(
    n_samples: int, n_neighbors: int, kind: str, tau: float, seed: int
) -> None:
    features = normal(n_samples, seed=seed)
    n_neighbors = min(n_neighbors, n_samples - 1)
    graph = build_graph(features, n_neighbors, similarity=kind, temperature=tau)  # type: ignore[arg-type]
    directed = directed_weights(features, n_neighbors, kind, tau)
    either, mean = np.maximum(directed, directed.T), (directed + directed.T) / 2
    np.testing.assert_allclose(dense(graph), mean if kind == "mean" else either, rtol=1e-3)


def test_cosine_weights_do_not_depend_on_how_neighbors_were_found() -> None:
    features = normal(60)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    # on the sphere both metrics name the same neighbours
    by_cosine = build_graph(features, 8, similarity="cosine", metric="cosine", temperature=0.2)
    by_distance = build_graph(unit, 8, similarity="cosine", temperature=0.2)
    np.testing.assert_allclose(dense(by_cosine), dense(by_distance), rtol=1e-4)


def test_scale_of_a_row_not_searched_for_is_the_source_s() -> None:
    features = np.array([[0.0], [1.0], [3.0], [7.0]])
    found = find_neighbors(features, 2, rows=[0, 2])
    # scales: row 0 has 3, row 2 has 3; rows 1 and 3 were not searched for
    expected = np.exp([[-1 / 9, -9 / 9], [-4 / 9, -9 / 9]])
    np.testing.assert_allclose(edge_similarity(found, "self_tuning"), expected, rtol=1e-6)


@pytest.mark.parametrize("n_neighbors", [3, 10])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_duplicates_do_not_divide_by_zero(n_neighbors: int, metric: str) -> None:
    features = np.concatenate([np.ones((9, 3), np.float32), normal(20)])
    found = find_neighbors(features, n_neighbors, metric=metric)  # type: ignore[arg-type]
    weight = edge_similarity(found, "self_tuning")
    assert np.isfinite(weight).all()
    same = found.indices[:9] < 9
    np.testing.assert_allclose(weight[:9][same], 1, rtol=1e-3)
    # their scale is far below all others, so nothing else is near
    assert (weight[:9][~same] < 1e-6).all()
    equal = find_neighbors(np.ones((9, 3)), 3)
    assert (edge_similarity(equal, "self_tuning") == 1).all()


def test_a_missing_neighbor_weighs_nothing() -> None:
    missing = np.inf * np.array([[-1], [1]])
    for metric, worst in zip(["cosine", "euclidean"], missing, strict=True):
        found = Neighbors(
            rows=np.arange(3),
            indices=np.array([[1, -1], [0, 2], [-1, -1]]),
            distances=np.array([[0.5, worst[0]], [0.5, 0.25], [worst[0], worst[0]]], np.float32),
            metric=metric,  # type: ignore[arg-type]
        )
        for kind in KINDS:
            weight = edge_similarity(found, kind, features=np.eye(3))  # type: ignore[arg-type]
            assert weight.dtype == np.float32
            assert np.isfinite(weight).all()
            np.testing.assert_array_equal(weight > 0, found.indices >= 0)


def test_callable_sees_pairs_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "_CHUNK_NUMBERS", 3 * 7)
    features = normal(30).astype(np.float16)
    sizes = []

    def closeness(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        assert source.shape == target.shape
        assert source.dtype == np.float16
        sizes.append(len(source))
        return np.asarray(1 / (1 + np.abs(source - target).sum(1)))

    graph = build_graph(features, 6, similarity=closeness)
    assert max(sizes) == 7
    assert sum(sizes) == 30 * 6
    source, target, weight = (part.numpy() for part in graph.edges)
    np.testing.assert_allclose(weight, closeness(features[source], features[target]), rtol=1e-3)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
@pytest.mark.parametrize("kind", ["binary", "mean", "self_tuning", "cosine", "callable"])
@pytest.mark.parametrize("anchors", [1.0, 0.3])
@pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
def test_sparse_features_give_the_graph_of_dense_ones(
    kind: str, metric: str, anchors: float
) -> None:
    if (kind, metric) == ("self_tuning", "inner_product"):
        pytest.skip("an inner product has no scale")
    features = normal(80, 20) * (np.random.default_rng(1).random((80, 20)) < 0.3)

    def shared(source: scipy.sparse.csr_array, target: scipy.sparse.csr_array) -> np.ndarray:
        assert isinstance(source, scipy.sparse.csr_array)
        return np.asarray(abs(source.multiply(target)).sum(1))

    def shared_dense(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        return np.asarray(abs(source * target).sum(1))

    graphs = [
        build_graph(form, 6, similarity=similar, metric=metric, anchors=anchors)  # type: ignore[arg-type]
        for form, similar in (
            (features, shared_dense if kind == "callable" else kind),
            (scipy.sparse.coo_matrix(features), shared if kind == "callable" else kind),
        )
    ]
    np.testing.assert_allclose(dense(graphs[1]), dense(graphs[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
def test_anchors_alone_have_neighbors() -> None:
    features = normal(200)
    graph = build_graph(features, 5, anchors=0.1, seed=3)
    again = build_graph(features, 5, anchors=0.1, seed=3)
    assert (dense(graph) == dense(again)).all()
    complete = dense(build_graph(features, 5)) > 0
    assert ((dense(graph) > 0) <= complete).all()
    assert 20 * 5 / 2 <= graph.n_edges <= 20 * 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nothing_to_say_is_said_by_silence(kind: str, dtype: type, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", normal(100).astype(dtype))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = build_graph(mapped, 10, similarity=kind)  # type: ignore[arg-type]
    assert graph.n_components == 1


def remark(features: object, n_neighbors: int = 10, **options: object) -> str:
    with pytest.warns(DataWarning) as caught:
        graph = build_graph(features, n_neighbors, **options)  # type: ignore[arg-type]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert np.isfinite(dense(graph)).all()
    return str(caught[0].message)


@pytest.mark.parametrize("form", FORMS)
def test_one_warning_with_every_number(form: type) -> None:
    features = np.concatenate([normal(50), normal(40, seed=1) + 100, np.zeros((4, 3))])
    features = np.hstack([features, np.full((94, 2), 0.0)]).astype(np.float32)
    features[10] = features[11]
    text = remark(form(features), similarity="cosine", metric="euclidean")
    for part in (
        "4 of 94 rows repeat an earlier one",
        "2 of 5 columns are constant",
        "4 of 94 rows are all zeros and have no direction",
        "2 components, the largest of 54 and the smallest of 40 of 94 rows",
    ):
        assert part in text
    assert len(text.splitlines()) == 5


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("chunk", [2**18, 10])
def test_repeats_are_counted(dtype: type, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prcut.graph.rows._CHUNK_NUMBERS", chunk)
    rng = np.random.default_rng(0)
    features = rng.integers(-4, 4, size=(2000, 4)).astype(dtype)
    features[features == 0] = rng.choice([0.0, -0.0], size=int((features == 0).sum()))
    n_distinct = len(np.unique(features, axis=0))
    assert n_distinct < 2000
    (said,) = similarity._remarks_on_features(features, by_direction=False)
    assert said.startswith(f"{2000 - n_distinct:,} of 2,000 rows repeat an earlier one")
    assert similarity._remarks_on_features(np.unique(features, axis=0), False) == []


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float32, np.float64])
def test_remarks_on_sparse_features_are_those_on_dense_ones(dtype: type) -> None:
    features = np.random.default_rng(0).integers(2, size=(60, 7)).astype(dtype)
    features[:, 2], features[:, 4], features[7], features[1:, 5] = 1, 0, 0, 1
    features[7, 2], features[9:11] = 1, 0
    stored = scipy.sparse.csr_array(features)
    stored.data[::3] = 0  # zeros may be stored, or not
    said = similarity._remarks_on_features(stored, by_direction=True)
    assert said == similarity._remarks_on_features(stored.toarray(), by_direction=True)
    assert len(said) == 3
    kept = scipy.sparse.csr_array(features[:, [2, 4]][:5])
    assert "2 of 2 columns are constant" in similarity._remarks_on_features(kept, False)[1]


def test_zero_rows_matter_only_where_directions_do() -> None:
    features = np.concatenate([normal(50), np.zeros((1, 3), np.float32)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_graph(features, 10)
    for options in ({"metric": "cosine"}, {"similarity": "cosine"}):
        assert "1 of 51 rows are all zeros" in remark(features, **options)


def test_rows_without_edges_are_counted() -> None:
    def not_with_the_first(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        return np.asarray((source[:, 0] < 50) & (target[:, 0] < 50), float)

    features = normal(60)
    features[:3] += 100
    text = remark(features, similarity=not_with_the_first)
    assert "3 of 60 searched rows have no edge" in text
    assert "components" not in text  # rows without edges are not named twice


def test_a_far_row_keeps_a_finite_weight() -> None:
    features = np.concatenate([1e-3 * normal(50), np.full((1, 3), 1e15, np.float32)])
    assert "1 of 51 searched rows have no edge" in remark(features, similarity="self_tuning")


def returning(value: object) -> Callable[[np.ndarray, np.ndarray], object]:
    return lambda source, target: value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": "rbf"}, "similarity='rbf' must be one of binary, mean, self_tuning, cosin"),
        (
            {"similarity": "self_tuning", "metric": "inner_product"},
            "similarity='self_tuning' needs a distance, which metric='inner_product' does not give",
        ),
        ({"similarity": "cosine", "temperature": 0}, "temperature=0 must be > 0 and finite"),
        ({"anchors": 0}, r"fraction=0 of the rows must lie in \(0, 1\]"),
        ({"n_neighbors": 60}, "n_neighbors=60 must be < n_samples=20"),
        (
            {"similarity": returning(np.ones((100, 1)))},
            r"returned shape \(100, 1\) and dtype float64 for 100 pairs, expected real numbers of "
            r"shape \(n_pairs,\)=\(100,\)",
        ),
        ({"similarity": returning(1.0)}, r"callable returned shape \(\) and"),
        ({"similarity": returning(["a"] * 100)}, "dtype <U1 for 100 pairs, expected real numbers"),
        ({"similarity": returning(np.arange(100) - 5.0)}, "contain -5, expected values >= 0"),
        ({"similarity": returning(np.full(100, np.nan))}, "similarities contain NaN or infinity"),
        ({"similarity": returning(np.full(100, 1e300))}, "similarities contain NaN or infinity"),
    ],
)
def test_wrong_input_is_refused(options: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=message):
        build_graph(normal(20), **{"n_neighbors": 5, **options})


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
