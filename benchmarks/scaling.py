"""What the search costs as clusters, hubs, rows and threads grow, in CPU-seconds of one thread.

    python benchmarks/scaling.py              # all parts, about an hour
    python benchmarks/scaling.py clusters     # 64 to 1,024 clusters of the same 20,000 rows
    python benchmarks/scaling.py hubs         # graphs with hubs, beside blobs of the same size
    python benchmarks/scaling.py million      # a million rows in 1,000 clusters, beside FAISS
    python benchmarks/scaling.py threads      # wall seconds with one thread and with two
    python benchmarks/scaling.py --quick      # clusters and hubs with fewer rows

Every search runs in a process of its own, so that its peak memory can be read.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from functools import partial

import faiss
import numpy as np
import torch
from sklearn.datasets import make_blobs

from _shared import options_of, rows_of, timed, verdict
from prcut.graph.build import build_graph
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.objective import hard_objective
from prcut.search import find_partition

CLUSTERS = 64, 128, 256, 512, 513, 1024
# between two of these numbers of clusters the cost may grow by this factor
MOST_STEP = 1.5
MOST_BYTES = 1e9
# CPU-seconds and bytes on a graph with hubs over those on blobs
MOST_OF_BLOBS = 3.0
LEAST_SPEEDUP = 1.5


def gaussian(n_rows: int) -> SimilarityGraph:
    """Return the neighbours of rows without clusters."""
    return build_graph(np.random.default_rng(0).normal(size=(n_rows, 16)).astype(np.float32), 15)


def blobs(n_rows: int) -> SimilarityGraph:
    """Return the neighbours of rows in 256 clusters."""
    rows, _ = make_blobs(n_rows, 16, centers=256, center_box=(-4, 4), random_state=0)
    return build_graph(rows.astype(np.float32), 15)


def star(n_rows: int) -> SimilarityGraph:
    """Link all rows to the first."""
    neighbors = np.zeros((n_rows, 1), np.int64)
    neighbors[0] = -1
    return SimilarityGraph.from_neighbors(neighbors)


def copies(n_rows: int) -> SimilarityGraph:
    """Return the neighbours of rows of which four fifths are the same."""
    rows = np.random.default_rng(0).normal(size=(n_rows, 16)).astype(np.float32)
    rows[: 4 * n_rows // 5] = rows[0]
    return build_graph(rows, 15)


def power_law(n_rows: int) -> SimilarityGraph:
    """Link every row to 15 others, most of which are a few popular ones."""
    drawn = (n_rows * np.random.default_rng(0).random((n_rows, 15)) ** 3).astype(np.int64)
    drawn.sort(axis=1)
    drawn[:, 1:][drawn[:, 1:] == drawn[:, :-1]] = -1
    return SimilarityGraph.from_neighbors(drawn)


def search(make: Callable[[int], SimilarityGraph], n_rows: int, n_clusters: int) -> list[float]:
    """Return J, CPU-seconds and peak bytes beyond those of the graph."""
    torch.set_num_threads(1)
    graph = make(n_rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, seconds = timed(partial(find_partition, graph, n_clusters))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return [found.objective, seconds, 1024.0 * (peak - before)]


def apart(make: Callable[[int], SimilarityGraph], n_rows: int, n_clusters: int) -> list[float]:
    """Search in a process of its own, and print what it took."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        figures = pool.apply(search, (make, n_rows, n_clusters))
    text = "J {:.4f}, {:.1f} CPU-s, {:.2e} bytes".format(*figures)
    print(f"{make.__name__}, {n_rows:,} rows, {n_clusters:,} clusters: {text}", flush=True)
    return figures


def check_clusters(n_rows: int) -> list[str]:
    """Cluster the same rows into ever more clusters."""
    short = []
    for make in (blobs, gaussian):
        figures = np.array([apart(make, n_rows, number) for number in CLUSTERS])
        steps = figures[1:, 1] / figures[:-1, 1]
        if steps.max() > MOST_STEP:
            short.append(f"{make.__name__}: a step costs {steps.max():.2f} times > {MOST_STEP}")
        if steps.min() < 1:
            short.append(f"{make.__name__}: more clusters cost {steps.min():.2f} times < 1")
        if figures[:, 2].max() > MOST_BYTES:
            short.append(f"{make.__name__}: {figures[:, 2].max():.1e} bytes > {MOST_BYTES:.0e}")
    return short


def check_hubs(n_rows: int) -> list[str]:
    """Compare graphs with hubs with blobs."""
    short = []
    for n_clusters in (20, 1000):
        usual = apart(blobs, n_rows, n_clusters)
        for make in (star, copies, power_law):
            figures = apart(make, n_rows, n_clusters)
            for what, value, most in zip(("CPU", "memory"), figures[1:], usual[1:], strict=True):
                if value > MOST_OF_BLOBS * most:
                    ratio = f"{value / most:.1f} times that of blobs > {MOST_OF_BLOBS}"
                    short.append(f"{make.__name__}, {n_clusters} clusters: {what} is {ratio}")
    return short


def check_million() -> list[str]:
    """Cluster a million rows beside k-means; print J of both on one graph."""
    torch.set_num_threads(1)
    rows, _ = make_blobs(10**6, 64, centers=1000, center_box=(-1.5, 1.5), random_state=0)
    rows = rows.astype(np.float32)
    graph, took = timed(partial(build_graph, rows, 15))
    print(f"neighbours of a million rows: {took:.0f} CPU-s", flush=True)
    found, seconds = timed(partial(find_partition, graph, 1000))
    kmeans = faiss.Kmeans(64, 1000, niter=20, seed=0)
    _, kmeans_seconds = timed(partial(kmeans.train, rows))
    labels = torch.from_numpy(kmeans.index.search(rows, 1)[1][:, 0])
    weight = found.balance_weight
    other = hard_objective(graph.weight, labels, 1000, balance_weight=weight)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"search: J {found.objective:.4f}, {seconds:.0f} CPU-s, peak {peak:.2e} bytes in all")
    print(f"FAISS k-means, 20 iterations: J {other:.4f}, {kmeans_seconds:.0f} CPU-s")
    return ["J is above that of k-means"] * (found.objective > other)


def check_threads() -> list[str]:
    """Compare wall seconds of the search with one thread and with two, three times each."""
    short = []
    for name in ("banking77", "mnist"):
        rows, classes = rows_of(name, "train" if name == "mnist" else "all")
        graph, n_clusters = build_graph(rows, 15), len(np.unique(classes))
        took: dict[int, list[float]] = {1: [], 2: []}
        labels = {}
        for n_jobs in (1, 2) * 3:
            start = time.perf_counter()
            labels[n_jobs] = find_partition(graph, n_clusters, n_jobs=n_jobs).labels
            took[n_jobs].append(time.perf_counter() - start)
        speedup = min(took[1]) / min(took[2])
        print(f"{name}: {min(took[1]):.2f} s, two threads {min(took[2]):.2f} s: × {speedup:.2f}")
        short += [f"{name}: two threads are × {speedup:.2f}"] * (speedup < LEAST_SPEEDUP)
        short += [f"{name}: labels differ"] * (not np.array_equal(labels[1], labels[2]))
    return short


def main() -> int:
    parts = {
        "clusters": partial(check_clusters, 20_000),
        "hubs": partial(check_hubs, 100_000),
        "million": check_million,
        "threads": check_threads,
    }
    parser = options_of(__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], metavar="PART")
    given = parser.parse_args()
    if given.quick:
        short = check_clusters(4_000) + check_hubs(10_000)
    else:
        short = [text for name in given.parts or parts for text in parts[name]()]
    return verdict(short, "the search costs what its work costs")


if __name__ == "__main__":
    sys.exit(main())
