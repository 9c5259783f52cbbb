"""The methods that PRCut is compared with: the adapters, and the two that are written here."""

import functools
import math
import sys

import numpy as np
import pytest
import torch
from benchmarks.harness import peers
from benchmarks.harness.contest.peers import CONTEST_PEERS
from benchmarks.harness.hycut import DegreeBins, envelope, hycut
from benchmarks.harness.peers import PEERS
from benchmarks.harness.task import Task
from benchmarks.harness.turtle import label_loss, turtle
from scipy.special import hyp2f1
from sklearn.metrics import adjusted_rand_score, homogeneity_score
from sklearn.neighbors import NearestNeighbors

from prcut.errors import InvalidInputError
from prcut.graph.similarity_graph import SimilarityGraph

pytestmark = pytest.mark.weekly("the peers change rarely; evoc and UMAP compile for minutes")

# what each method imports beyond prcut's own dependencies
MODULES = {
    "spectral_clustering": "pyamg",
    "umap_hdbscan": "umap",
    "evoc": "evoc",
    "leiden": "leidenalg",
    "leiden_k": "leidenalg",
    "metis": "pymetis",
    "kahip": "kahip",
    "spectralnet": "spectralnet",
    "kmeans_constrained": "k_means_constrained",
    "finch": "finch",
    "sknetwork_leiden_k": "sknetwork.clustering",
}
ALL_PEERS = {**PEERS, **CONTEST_PEERS}
TRUTH = np.repeat(np.arange(3), 100)


@pytest.fixture(scope="module")
def task() -> Task:
    rows = np.random.default_rng(0).normal(size=(300, 64)) + 10 * np.eye(3, 64)[TRUTH]
    neighbors = NearestNeighbors(n_neighbors=10).fit(rows).kneighbors(return_distance=False)
    # the seed is chosen: in so few steps HyCut does not find the blobs from every one
    return Task(rows.astype(np.float32), SimilarityGraph.from_neighbors(neighbors), 3, seed=0)


def require(key: str) -> None:
    if key in MODULES:
        pytest.importorskip(MODULES[key], exc_type=ImportError)


@pytest.mark.parametrize("key", ALL_PEERS)
def test_peers_find_separate_blobs_again_with_the_same_seed(key, task, monkeypatch):
    require(key)
    # the two training loops of our own end early: the published lengths take half a minute
    monkeypatch.setattr(peers, "turtle", functools.partial(turtle, n_steps=600))
    monkeypatch.setattr(peers, "hycut", functools.partial(hycut, n_steps=400))
    method, n_threads = ALL_PEERS[key], torch.get_num_threads()
    labels = method.run(task)
    assert torch.get_num_threads() == n_threads  # Numba sets it
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(method.run(task), labels)
    clustered = labels >= 0
    assert clustered.mean() > (0.4 if not method.given_k else 0.999)
    if key == "evoc":  # cuts 300 rows finer than asked of it: pieces of the blobs
        assert homogeneity_score(TRUTH[clustered], labels[clustered]) >= 0.9
    else:
        assert adjusted_rand_score(TRUTH[clustered], labels[clustered]) >= 0.8


@pytest.mark.parametrize(("key", "module"), MODULES.items())
def test_a_missing_package_is_named_with_its_mend(key, module, task, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInputError, match=rf"needs the package .*{module}.*prcut\[bench\]"):
        ALL_PEERS[key].run(task)


@pytest.mark.parametrize("key", ["metis", "kahip"])
def test_partitioners_heed_weights(key):
    require(key)
    # a ring of 8 with two light edges, at which it is cut
    weight = np.zeros((8, 8))
    for row in range(8):
        weight[row, (row + 1) % 8] = 0.01 if row in (1, 5) else 1.0
    graph = SimilarityGraph.from_scipy(weight + weight.T)
    labels = PEERS[key].run(Task(np.zeros((8, 1), np.float32), graph, 2, 0))
    assert adjusted_rand_score([0, 0, 1, 1, 1, 1, 0, 0], labels) == 1


@pytest.mark.parametrize("ratio", [0.3, 2.5])
def test_envelope_of_one_bin_is_the_hypergeometric_function(ratio):
    chance = torch.tensor([0.01, 0.1, 0.5, 0.95], dtype=torch.float64)
    whole = torch.ones(1, dtype=torch.float64)
    one_bin = DegreeBins(torch.zeros(1, dtype=torch.long), 3 * whole, 3 * whole / ratio, whole)
    found = envelope(one_bin, chance, n_trials=40)[0]
    np.testing.assert_allclose(found, hyp2f1(-40, 1, ratio + 1, chance.numpy()), rtol=1e-10)


def test_turtles_loss_is_cross_entropy_less_weighted_entropy():
    rng = torch.Generator().manual_seed(0)
    labels = torch.rand(6, 3, generator=rng).softmax(1)
    predicted = torch.rand(6, 3, generator=rng).log_softmax(1)
    loss = -float((labels * predicted).sum()) / 6
    loss += 10 * sum(float(p) * math.log(float(p)) for p in labels.mean(0))
    assert float(label_loss(labels, predicted)) == pytest.approx(loss, rel=1e-5)
