"""The methods that PRCut is compared with: the adapters."""

import numpy as np
import pytest
import torch
from benchmarks.harness.contest.peers import CONTEST_PEERS
from benchmarks.harness.peers import PEERS
from benchmarks.harness.task import Task
from sklearn.metrics import adjusted_rand_score, homogeneity_score
from sklearn.neighbors import NearestNeighbors

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
    "kmeans_constrained": "k_means_constrained",
    "finch": "finch",
}
ALL_PEERS = {**PEERS, **CONTEST_PEERS}
TRUTH = np.repeat(np.arange(3), 100)


@pytest.fixture(scope="module")
def task() -> Task:
    rows = np.random.default_rng(0).normal(size=(300, 64)) + 10 * np.eye(3, 64)[TRUTH]
    neighbors = NearestNeighbors(n_neighbors=10).fit(rows).kneighbors(return_distance=False)
    return Task(rows.astype(np.float32), SimilarityGraph.from_neighbors(neighbors), 3, seed=0)


def require(key: str) -> None:
    if key in MODULES:
        pytest.importorskip(MODULES[key], exc_type=ImportError)


@pytest.mark.parametrize("key", ALL_PEERS)
def test_peers_find_separate_blobs_again_with_the_same_seed(key, task):
    require(key)
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
