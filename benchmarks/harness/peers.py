"""The methods prcut is measured against, each with the defaults its own documentation gives.

No peer is tuned: what differs from its defaults is the seed, the number of clusters where it takes
one, and what a comment beside it says. Packages are imported where they are used.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from benchmarks.harness.task import Method, Task

from prcut.errors import InvalidInputError
from prcut.graph.similarity_graph import SimilarityGraph

__all__ = ["PEERS", "quiet_peers", "require_package", "search_resolution"]

# how often Leiden may be run until it finds as many communities as there should be clusters
_LEIDEN_TRIES = 24
# the largest weight and the largest total that integers stand for: METIS adds in 32 bits
_MAX_WEIGHT, _MAX_TOTAL = 1000, 2**30


def require_package(module: str, package: str, remedy: str = "pip install 'prcut[bench]'") -> Any:
    """Import an optional package, or raise an error that says how to install it."""
    try:
        with quiet_peers(), _same_threads():
            return importlib.import_module(module)
    except ImportError as error:
        raise InvalidInputError(
            f"this method needs the package {package}, which cannot be imported ({error}); "
            f"{remedy}."
        ) from error


@contextlib.contextmanager
def quiet_peers() -> Iterator[None]:
    """Ignore what peers warn of (threads, disconnected graphs, deprecations)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _same_threads() -> Iterator[None]:
    """Numba sets the number of threads for torch too: without this, later methods would differ.

    With two threads where one was asked for, training ran 10 to 80 times slower on a busy machine.
    """
    n_threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _labels(labels: Any) -> np.ndarray:
    return np.asarray(labels).astype(np.int64)


# -- on the rows ---------------------------------------------------------------------------------


def _faiss_kmeans(task: Task) -> np.ndarray:
    import faiss

    rows = np.ascontiguousarray(task.rows)
    # trains on 256 rows of every cluster at most, as it does by default
    kmeans = faiss.Kmeans(rows.shape[1], task.n_clusters, niter=25, seed=task.seed)
    kmeans.train(rows)
    return _labels(kmeans.index.search(rows, 1)[1][:, 0])


def _hdbscan(task: Task) -> np.ndarray:
    return _hdbscan_labels(task.rows)


def _hdbscan_labels(rows: np.ndarray) -> np.ndarray:
    from sklearn.cluster import HDBSCAN

    # said aloud because its default is about to change; the labels do not depend on it
    return _labels(HDBSCAN(copy=True).fit_predict(rows))


def _umap_hdbscan(task: Task) -> np.ndarray:
    umap = require_package("umap", "umap-learn")
    with quiet_peers(), _same_threads():  # it warns that a seed means one thread
        embedding = umap.UMAP(random_state=task.seed).fit_transform(task.rows)
    return _hdbscan_labels(embedding)


def _evoc(task: Task) -> np.ndarray:
    evoc = require_package("evoc", "evoc")
    with quiet_peers(), _same_threads():
        return _labels(evoc.EVoC(random_state=task.seed).fit_predict(task.rows))


# -- on the graph --------------------------------------------------------------------------------


def _spectral_clustering(task: Task) -> np.ndarray:
    from sklearn.cluster import SpectralClustering

    # AMG, not the default ARPACK: that factorises the matrix, and at 60,000 rows of 15 neighbours
    # had not finished after 10 minutes, with 3 GB, where AMG took 5 seconds (150: 23 seconds)
    require_package("pyamg", "pyamg")
    matrix = task.graph.to_scipy()
    matrix = type(matrix)(  # its solvers read 32-bit indices only
        (matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)),
        shape=matrix.shape,
    )
    clustering = SpectralClustering(
        task.n_clusters, affinity="precomputed", eigen_solver="amg", random_state=task.seed
    )
    with quiet_peers():  # the warning that the graph is disconnected
        return _labels(clustering.fit_predict(matrix))


def _leiden(task: Task) -> np.ndarray:
    leidenalg = require_package("leidenalg", "leidenalg")
    graph, weight = _igraph(task.graph)
    partition = leidenalg.find_partition(
        graph, leidenalg.ModularityVertexPartition, weights=weight, seed=task.seed
    )
    return _labels(partition.membership)


def _leiden_k(task: Task) -> np.ndarray:
    leidenalg = require_package("leidenalg", "leidenalg")
    graph, weight = _igraph(task.graph)

    def find(resolution: float) -> np.ndarray:
        partition = leidenalg.find_partition(
            graph,
            leidenalg.RBConfigurationVertexPartition,  # modularity where the resolution is 1
            weights=weight,
            seed=task.seed,
            resolution_parameter=resolution,
        )
        return _labels(partition.membership)

    return search_resolution(find, task.n_clusters)


def _igraph_leiden_k(task: Task) -> np.ndarray:
    """Run igraph's own Leiden, which takes a fraction of leidenalg's time."""
    igraph = require_package("igraph", "igraph")
    graph, weight = _igraph(task.graph)
    igraph.set_random_number_generator(random.Random(task.seed))  # noqa: S311

    def find(resolution: float) -> np.ndarray:
        partition = graph.community_leiden(
            "modularity", weights=weight.tolist(), resolution=resolution, n_iterations=-1
        )
        return _labels(np.array(partition.membership))

    return search_resolution(find, task.n_clusters)


def search_resolution(find: Callable[[float], np.ndarray], n_clusters: int) -> np.ndarray:
    """Search the resolution, on a log scale, for the wanted number of communities."""
    nearest = np.empty(0, np.int64)
    distance = math.inf
    resolution, too_low, too_high = 1.0, 0.0, math.inf
    for _ in range(_LEIDEN_TRIES):
        labels = find(resolution)
        excess = len(np.unique(labels)) - n_clusters
        if abs(excess) < distance:
            nearest, distance = labels, abs(excess)
        if excess == 0:
            break
        if excess < 0:
            too_low = resolution
        else:
            too_high = resolution
        if too_low == 0 or too_high == math.inf:
            resolution *= 4 if excess < 0 else 1 / 4
        else:
            resolution = math.sqrt(too_low * too_high)
    return nearest


def _igraph(graph: SimilarityGraph) -> tuple[Any, np.ndarray]:
    igraph = require_package("igraph", "igraph")
    source, target, weight = (values.numpy() for values in graph.edges)
    once = source < target
    edges = np.stack([source[once], target[once]], 1)
    return igraph.Graph(n=graph.n_samples, edges=edges), weight[once]


def _metis(task: Task) -> np.ndarray:
    pymetis = require_package("pymetis", "pymetis")
    matrix = task.graph.to_scipy()
    _, part = pymetis.part_graph(
        task.n_clusters,
        adjacency=pymetis.CSRAdjacency(matrix.indptr, matrix.indices),
        eweights=_integers(matrix.data),
        recursive=False,  # k-way, as METIS's own program does by default
        options=pymetis.Options(seed=task.seed),
    )
    return _labels(part)


def _integers(weight: np.ndarray) -> np.ndarray:
    """Weights as integers >= 1, in proportion: 1 where all are equal."""
    if not weight.size or weight.min() == weight.max():
        return np.ones(weight.shape, np.int64)
    scale = min(_MAX_WEIGHT / weight.max(), _MAX_TOTAL / weight.sum(dtype=np.float64))
    integers: np.ndarray = np.maximum(np.rint(weight * scale), 1).astype(np.int64)
    return integers


PEERS: dict[str, Method] = {
    "faiss_kmeans": Method("k-means (FAISS)", _faiss_kmeans, ("faiss-cpu",)),
    "spectral_clustering": Method(
        "SpectralClustering (scikit-learn)",
        _spectral_clustering,
        ("scikit-learn", "pyamg"),
        on_graph=True,
    ),
    "hdbscan": Method(
        "HDBSCAN (scikit-learn)", _hdbscan, ("scikit-learn",), given_k=False, seeded=False
    ),
    "umap_hdbscan": Method(
        "UMAP + HDBSCAN",
        _umap_hdbscan,
        ("umap-learn", "scikit-learn"),
        given_k=False,
        modules=("umap",),
    ),
    "evoc": Method("EVoC", _evoc, ("evoc",), given_k=False, modules=("evoc",)),
    "leiden": Method("Leiden", _leiden, ("leidenalg", "igraph"), on_graph=True, given_k=False),
    "leiden_k": Method("Leiden at equal k", _leiden_k, ("leidenalg", "igraph"), on_graph=True),
    "igraph_leiden_k": Method(
        "Leiden at equal k (igraph)", _igraph_leiden_k, ("igraph",), on_graph=True
    ),
    "metis": Method("METIS", _metis, ("pymetis",), on_graph=True),
}
