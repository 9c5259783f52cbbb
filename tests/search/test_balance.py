import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from prcut import SimilarityGraph
from prcut.graph.build import build_graph
from prcut.search import balance
from prcut.search.balance import BALANCE_WEIGHTS, Resampled, choose_balance, resample_edges
from prcut.search.fragments import CoarseGraph, as_coarse, contract

STRONG, WEAK = BALANCE_WEIGHTS


def graph_of(sizes: list[int], spread: float = 0.7) -> tuple[SimilarityGraph, np.ndarray]:
    rows, planted = make_blobs(sizes, 8, cluster_std=spread, random_state=1)
    return build_graph(rows, 10, max_components=len(sizes)), planted


def test_edges_are_resampled_with_mean_and_variance_of_one() -> None:
    graph = as_coarse(graph_of([200] * 3)[0])
    one, other = (resample_edges(graph, np.random.default_rng(seed)).links for seed in (0, 1))
    for links in (one, other):
        assert abs(links - links.T).max() == 0
        np.testing.assert_array_equal((links != 0).toarray(), (graph.links != 0).toarray())
    factors = one.toarray()[graph.links.toarray() > 0] / graph.links.data
    assert factors.mean() == pytest.approx(1, abs=0.05)
    assert factors.var() == pytest.approx(1, abs=0.15)
    assert abs(one - other).max() > 0


def test_resampling_does_not_depend_on_how_coarse_the_graph_is() -> None:
    """The weight between two groups has the same mean and variance either way."""
    rows = as_coarse(SimilarityGraph.from_labels(np.zeros(40, np.int64)))
    groups = np.repeat([0, 1], 20)
    coarse = contract(rows.links, groups)._replace(edge_weight=rows.edge_weight)

    def weights(draw: object) -> np.ndarray:
        return np.array([draw(np.random.default_rng(seed)) for seed in range(400)])  # type: ignore[operator]

    def contracted(rng: np.random.Generator) -> float:
        return float(contract(resample_edges(rows, rng).links, groups).links[0, 1])

    first = weights(contracted)
    second = weights(lambda rng: resample_edges(coarse, rng).links[0, 1])
    assert first.mean() == pytest.approx(400 * rows.edge_weight, rel=0.01)
    assert second.mean() == pytest.approx(first.mean(), rel=0.01)
    assert second.std() == pytest.approx(first.std(), rel=0.15)


def test_weights_far_below_the_mean_leave_no_zeros() -> None:
    links = as_coarse(SimilarityGraph.from_labels(np.zeros(9, np.int64))).links
    links.data[links.data.argmax()] = 1.0
    links = links + links.T
    tiny = links.copy()
    tiny.data[:] = 1e-12
    graph = CoarseGraph(tiny, np.ones(9), edge_weight=1.0)
    drawn = resample_edges(graph, np.random.default_rng(0)).links
    assert drawn.nnz == tiny.nnz
    assert drawn.data.min() > 0


def test_scores_are_means_over_all_pairs() -> None:
    labels = tuple(np.random.default_rng(0).integers(3, size=(3, 30)))
    drawn = Resampled(0.3, labels)
    pairs = [(labels[i], labels[j]) for i in range(3) for j in range(i)]
    assert drawn.agreement == pytest.approx(np.mean([adjusted_rand_score(*p) for p in pairs]))
    shared = [adjusted_mutual_info_score(*p, average_method="max") for p in pairs]
    assert drawn.shared_information == pytest.approx(np.mean(shared), abs=0.1)
    assert Resampled(0.3, (np.repeat([0, 1], 5),) * 2).evenness(2) == pytest.approx(1)
    assert Resampled(0.3, (np.zeros(5, np.int64),)).evenness(4) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("gain", "evenness", "agreement", "expected"),
    [
        (0.03, 0.7, 0.5, WEAK),
        (0.02, 0.7, 0.5, STRONG),
        (-0.1, 0.7, 0.5, STRONG),
        (0.03, 0.95, 0.99, STRONG),  # sizes are equal without balance
        (0.3, 0.4, 0.9, STRONG),  # one cluster has swallowed others
        (0.3, 0.4, 0.99, WEAK),  # clusters far apart
    ],
)
def test_weak_balance_needs_a_gain_and_unequal_sizes(
    monkeypatch: pytest.MonkeyPatch,
    gain: float,
    evenness: float,
    agreement: float,
    expected: float,
) -> None:
    information = {STRONG: 0.6, WEAK: 0.6 + gain}
    monkeypatch.setattr(
        Resampled,
        "shared_information",
        property(lambda one: information[one.balance_weight]),
    )
    monkeypatch.setattr(Resampled, "evenness", lambda *_: evenness)
    monkeypatch.setattr(Resampled, "agreement", agreement)
    monkeypatch.setattr(balance, "search_resampled", lambda *_: [np.zeros(4, np.int64)] * 2)
    graph = SimilarityGraph.from_labels([0, 0, 1, 1])
    assert choose_balance(graph, 2).balance_weight == expected


def test_long_tails_need_weak_balance_and_equal_classes_keep_the_strong() -> None:
    even, _ = graph_of([150] * 6, spread=3.0)
    assert choose_balance(even, 6).balance_weight == STRONG
    tail, planted = graph_of([900, 450, 80, 60, 40, 30], spread=1.5)
    chosen = choose_balance(tail, 6)
    assert chosen.balance_weight == WEAK
    assert adjusted_rand_score(planted, chosen.partitions[0]) > 0.95


def test_partitions_agree_where_the_graph_decides() -> None:
    blobs, _ = graph_of([100] * 3)
    assert choose_balance(blobs, 3).agreement > 0.95
    cloud = build_graph(np.random.default_rng(0).normal(size=(600, 8)), 10)
    assert choose_balance(cloud, 3).agreement < 0.5


def test_threads_and_a_given_weight_change_no_draw() -> None:
    graph, _ = graph_of([60, 50, 40], spread=4.0)
    one, two = (choose_balance(graph, 3, balance_weight=0.1, n_jobs=jobs) for jobs in (1, 2))
    assert one.balance_weight == 0.1
    for left, right in zip(one.partitions, two.partitions, strict=True):
        np.testing.assert_array_equal(left, right)
    other = choose_balance(graph, 3, balance_weight=0.1, seed=1)
    assert any(
        not np.array_equal(left, right)
        for left, right in zip(one.partitions, other.partitions, strict=True)
    )
