import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import SimilarityGraph
from prcut.graph.build import build_graph
from prcut.search import count
from prcut.search.count import count_clusters
from prcut.search.fragments import as_coarse

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


def graph_of_blobs(n_clusters: int, n_samples: int = 600) -> SimilarityGraph:
    rows, _ = make_blobs(n_samples, 8, centers=n_clusters, cluster_std=0.7, random_state=n_clusters)
    return build_graph(rows, 10)


@pytest.mark.parametrize("n_clusters", [2, 3, 7, 16])
def test_separate_blobs_are_counted(n_clusters: int) -> None:
    found = count_clusters(graph_of_blobs(n_clusters))
    assert found.n_clusters == n_clusters
    assert (np.diff(found.tried) > 0).all()
    assert found.tried.shape == found.agreement.shape == found.entropy.shape
    assert found.agreement[found.tried == n_clusters] > 0.95


def test_unequal_blobs_are_counted() -> None:
    rows, _ = make_blobs([400, 200, 100, 60, 40], 8, cluster_std=0.7, random_state=1)
    assert count_clusters(build_graph(rows, 10)).n_clusters == 5


@pytest.mark.parametrize("shape", [(300, 4), (800, 8), (800, 16)])
def test_one_cloud_is_one_cluster(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).normal(size=shape)
    found = count_clusters(build_graph(rows, 10))
    assert found.n_clusters == 1
    assert found.agreement.max() < 0.6


def test_limits_are_kept_and_more_are_tried_where_agreement_rises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = graph_of_blobs(24, 1200)
    monkeypatch.setattr(count, "_FIRST", 12)
    assert abs(count_clusters(graph).n_clusters - 24) <= 1
    within = count_clusters(graph, 5, 9)
    assert 5 <= within.n_clusters <= 9
    assert (within.tried[0], within.tried[-1]) == (5, 9)
    assert count_clusters(graph, 4, 4).tried.tolist() == [4]


def test_the_numbers_tried_at_once_do_not_matter() -> None:
    (tree,) = count._grow_trees(as_coarse(graph_of_blobs(4)), 20, np.random.default_rng(0), 1)[:1]
    compared = np.arange(600)
    (_, alone), (found,) = (
        count._search(np.array(numbers), compared, tree) for numbers in ([3, 7], [7])
    )
    np.testing.assert_array_equal(alone, found)


def test_threads_find_the_same() -> None:
    graph = graph_of_blobs(5)
    one, two = count_clusters(graph, seed=3), count_clusters(graph, seed=3, n_jobs=2)
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)
