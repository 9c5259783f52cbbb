import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from prcut import PRCut, SimilarityGraph, build_graph, ratio_cut
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.fit.clusters import ClusterIds, score_labels
from prcut.numerics.objective import hard_objective
from prcut.search.count import ClusterCount
from prcut.search.partition import merge_clusters

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


def nested_blobs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four groups of three blobs: rows, groups, blobs."""
    rng, turns = np.random.default_rng(0), np.arange(3) * 2 * np.pi / 3
    groups = np.array([[0, 0], [20, 0], [0, 20], [20, 20]])
    corners = 2.2 * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    centers = (groups[:, None] + corners).reshape(12, 2)
    blobs = np.repeat(np.arange(12), 80)
    return centers[blobs] + rng.normal(size=(960, 2)), blobs // 3, blobs


ROWS, GROUPS, BLOBS = nested_blobs()


@pytest.fixture(scope="module")
def model() -> PRCut:
    return PRCut("auto", random_state=0).fit(ROWS)


def test_layers_are_the_numbers_on_which_searches_agree(model: PRCut) -> None:
    assert model.layer_sizes_ == [12, 4]
    fine, coarse = model.cluster_layers_
    assert adjusted_rand_score(BLOBS, fine) > 0.8
    assert adjusted_rand_score(GROUPS, coarse) > 0.9
    assert coarse.dtype == np.int64


def test_layers_nest(model: PRCut) -> None:
    fine, coarse = model.cluster_layers_
    tree = model.cluster_tree_
    for (layer, above), below in tree.items():
        if layer == 1:
            rows = np.isin(fine, [cluster for _, cluster in below])
            np.testing.assert_array_equal(rows, coarse == above)
    below = [leaf for cluster in range(4) for leaf in tree[1, cluster]]
    assert sorted(below) == [(0, cluster) for cluster in range(12)]
    assert tree[2, 0] == [(1, c) for c in range(4)]


def test_coarse_probabilities_are_sums(model: PRCut) -> None:
    fine, coarse = (model.predict_proba(ROWS, level) for level in (0, 1))
    assert coarse.shape == (960, 4)
    names = {
        below: above
        for (layer, above), b in model.cluster_tree_.items()
        if layer == 1
        for _, below in b
    }
    for cluster in range(4):
        leaves = [leaf for leaf, above in names.items() if above == cluster]
        np.testing.assert_allclose(coarse[:, cluster], fine[:, leaves].sum(1), rtol=1e-5)
    assert (model.predict(ROWS, level=1) == model.cluster_layers_[1]).mean() >= 0.99


@pytest.mark.costly("what starts find again shows on many clusters")
def test_clusters_that_starts_find_again_are_stable(tmp_path: Path) -> None:
    # six blobs that every start finds, and a cloud, of which four clusters are made somehow
    rng = np.random.default_rng(0)
    blobs = np.repeat(30 * rng.normal(size=(6, 8)), 100, axis=0) + rng.normal(size=(600, 8))
    rows = np.vstack([blobs, rng.normal(200, 1, (400, 8))])
    model = PRCut(10, n_neighbors=10, balance_weight=0.3, random_state=0).fit(rows)
    of_cloud = np.unique(model.labels_[600:])
    is_blob = ~np.isin(np.arange(10), of_cloud)
    assert model.cluster_stability_ is not None
    assert (model.cluster_stability_[is_blob] == 1).all()
    assert is_blob.sum() == 6
    assert (model.cluster_stability_[of_cloud] < 0.95).all()
    model.save(tmp_path)
    loaded = PRCut.load(tmp_path)
    np.testing.assert_array_equal(loaded.cluster_stability_, model.cluster_stability_)
    assert PRCut(3).partial_fit(ROWS[:200]).cluster_stability_ is None
    model.cluster_stability_ = model.cluster_stability_[:4]  # as a stranger might write it
    model.save(tmp_path / "forged")
    with pytest.raises(CorruptFileError, match="stability of shape"):
        PRCut.load(tmp_path / "forged")


@pytest.mark.parametrize("level", [-1, 2, "coarse"])
def test_a_layer_that_is_not_there_is_refused(model: PRCut, level: Any) -> None:
    with pytest.raises(InvalidInputError, match="level="):
        model.predict(ROWS, level=level)


def test_outliers_stay_outliers_in_every_layer() -> None:
    rows = np.vstack([ROWS, np.random.default_rng(1).uniform(-40, 40, (20, 2))])
    model = PRCut("auto", outliers=0.05, random_state=0).fit(rows)
    fine, *coarser = model.cluster_layers_
    assert (fine[960:] == -1).any()
    for layer in coarser:
        np.testing.assert_array_equal(layer == -1, fine == -1)


def test_a_layer_has_half_as_many_clusters_at_most() -> None:
    agreement = np.array([0.9, 0.7, 0.95, 0.8, 0.9, 0.5])
    count = ClusterCount(8, np.array([2, 3, 4, 5, 8, 9]), agreement, agreement)
    assert count.layers() == [8, 4, 2]
    assert count._replace(n_clusters=1).layers() == [1]
    low = np.array([0.5, 0.4, 0.55, 0.4, 0.9, 0.5])
    assert count._replace(agreement=low).layers() == [8]


@pytest.fixture(scope="module")
def graph() -> SimilarityGraph:
    rows = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    return build_graph(rows, 10)


def test_a_score_is_the_objective_the_cut_the_sizes_and_the_tree(graph: SimilarityGraph) -> None:
    labels = np.random.default_rng(1).integers(0, 4, 200)
    score = score_labels(graph, labels, 4, 0.5)
    found = torch.from_numpy(labels)
    expected = hard_objective(graph.weight, found, 4, balance_weight=0.5)
    assert score.objective == pytest.approx(float(expected), rel=1e-12)
    assert score.ratio_cut == pytest.approx(ratio_cut(graph.weight, found, 4).item())
    np.testing.assert_array_equal(score.cluster_sizes, np.bincount(labels))
    tree = merge_clusters(graph, labels, balance_weight=0.5)
    assert score.merge_tree is not None
    np.testing.assert_array_equal(score.merge_tree.children, tree.children)
    np.testing.assert_allclose(score.merge_tree.costs, tree.costs)


def test_a_description_is_read_back() -> None:
    names = ClusterIds(np.array([7, 2, 9]), 12)
    again = ClusterIds.parse(json.loads(json.dumps(names.describe())), 3)
    np.testing.assert_array_equal(again.ids, names.ids)
    assert again.n_given == 12
    assert not names.are_first
    assert ClusterIds.parse({}, 3).are_first
