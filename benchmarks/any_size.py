"""A run whose features are on disk against the same graph searched in memory.

    python benchmarks/any_size.py            # MNIST and Fashion-MNIST, 60,000 rows in 20 blocks
    python benchmarks/any_size.py --quick    # 20,000 rows of MNIST in 20 blocks, one seed

The memory limit makes blocks of 3,000 rows, whose edges the run joins. For every seed the joined
graph is searched in memory as well, with the same balance, and a sample that the same limit holds
is searched, distilled and predicted. Required: a mean objective of at most 1.005 times that of
memory, and a mean accuracy at most 0.01 below that of memory. Seeds differ: on Fashion-MNIST
accuracies in memory range over some 0.05 at objectives within 0.4 %, so accuracies of single runs
are printed, not judged. Classes are used for scores only.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch
from benchmarks.harness.scores import hungarian_accuracy

from _data import fashion_mnist, fashion_mnist_labels, mnist, mnist_labels
from _verdict import verdict
from prcut.fit.config import FitConfig
from prcut.fit.fit import fit_rows
from prcut.graph.blocks.build import choose_block_rows
from prcut.graph.blocks.join import open_joined
from prcut.numerics.objective import ClusterCost
from prcut.runs.row_labels import RowLabels
from prcut.runs.run import fit_run
from prcut.runtime.device import readable_bytes
from prcut.runtime.folder import Folder
from prcut.search.fragments import CoarseGraph
from prcut.search.partition import find_partition
from prcut.search.sweep import cluster_sums
from prcut.training.assigner.predict import assign_labels

N_CLUSTERS, N_BLOCKS, SAMPLE_ROWS = 10, 20, 2**14
MOST_OBJECTIVE, MOST_BELOW = 1.005, 0.01


class Task(NamedTuple):
    """Rows, their classes, and the graph that suits them."""

    name: str
    rows: np.ndarray
    classes: np.ndarray
    n_neighbors: int
    balance_weight: float


class Found(NamedTuple):
    """A partition: its objective, its accuracy, and the CPU-seconds that it took."""

    objective: float
    accuracy: float
    seconds: float


def choose_memory(task: Task) -> int:
    """Return the limit that makes so many blocks."""
    sizes = *task.rows.shape, task.rows.dtype.itemsize, task.n_neighbors
    wanted, memory = len(task.rows) // N_BLOCKS, 2**20
    while choose_block_rows(memory, *sizes, halo=4) < wanted:
        memory += 2**20
    return memory


def compare(task: Task, seed: int, place: Path) -> dict[str, Found]:
    """Search on disk, in memory, and a sample."""
    config = FitConfig.of(
        "default",
        N_CLUSTERS,
        seed=seed,
        n_neighbors=task.n_neighbors,
        balance_weight=task.balance_weight,
        n_jobs=1,
    )
    data, run = place / "rows.npy", place / "run"
    np.save(data, task.rows)
    memory, start = choose_memory(task), time.process_time()
    result = fit_run(str(data), run, config, memory=memory, device="cpu")
    seconds = time.process_time() - start
    if result.mode != "disk":
        raise RuntimeError(f"{readable_bytes(memory)} hold all rows")
    partition = RowLabels(Folder(run / "partition")).read(0, len(task.rows))
    found = {"on disk": Found(result.objective, score(task, partition), seconds)}
    predicted = assign_labels(result.assigner, task.rows)
    graph, rows = open_graph(run)
    found["its assigner"] = Found(measure(graph, predicted[rows], task), score(task, predicted), 0)
    return found | search_here(task, config, graph, rows)


def open_graph(run: Path) -> tuple[CoarseGraph, np.ndarray]:
    """Return the graph of a run on disk, and the rows of its nodes."""
    joined = open_joined(Folder(run / "graph"))
    graph = CoarseGraph.of_arrays(*joined[1:])
    return graph._replace(links=graph.links.astype(np.float64)), np.asarray(joined.rows)


def search_here(
    task: Task, config: FitConfig, graph: CoarseGraph, rows: np.ndarray
) -> dict[str, Found]:
    """Search the joined graph in memory, and a sample of the rows."""
    start = time.process_time()
    options: dict[str, Any] = {"balance_weight": task.balance_weight, "seed": config.seed}
    whole = find_partition(graph, N_CLUSTERS, **options)
    seconds = time.process_time() - start
    labels = np.empty(len(task.rows), np.int64)
    labels[rows] = whole.labels
    found = {"in memory": Found(whole.objective, score(task, labels), seconds)}
    start = time.process_time()
    rng = np.random.default_rng(config.seed)
    n_rows = SAMPLE_ROWS * len(task.rows) // 60_000
    sample = np.sort(rng.choice(len(task.rows), n_rows, replace=False))
    fit = fit_rows(task.rows[sample], config)
    labels = assign_labels(fit.assigner, task.rows)
    seconds = time.process_time() - start
    objective = measure(graph, labels[rows], task)
    return found | {"a sample": Found(objective, score(task, labels), seconds)}


def measure(graph: CoarseGraph, labels: np.ndarray, task: Task) -> float:
    total = float(graph.links.data.sum())
    cost = ClusterCost.of(len(labels), total, N_CLUSTERS, balance_weight=task.balance_weight)
    return cost.objective(*cluster_sums(graph, labels, N_CLUSTERS))


def score(task: Task, labels: np.ndarray) -> float:
    return float(hungarian_accuracy(task.classes, labels))


def judge(task: Task, runs: list[dict[str, Found]]) -> list[str]:
    """Print the means and return what falls short."""
    means = {kind: np.mean([run[kind] for run in runs], axis=0) for kind in runs[0]}
    for kind, (objective, accuracy, seconds) in means.items():
        print(f"  {kind:<14} J {objective:.4f}  ACC {accuracy:.4f}  {seconds:.1f} CPU-s")
    ratio = means["on disk"][0] / means["in memory"][0]
    below = means["in memory"][1] - means["on disk"][1]
    print(f"  on disk / in memory: J {ratio:.4f}, ACC {-below:+.4f}", flush=True)
    short = []
    if ratio > MOST_OBJECTIVE:
        short.append(f"{task.name}: J {ratio:.4f} times that of memory > {MOST_OBJECTIVE}")
    if below > MOST_BELOW and len(runs) > 1:
        short.append(f"{task.name}: ACC {below:.4f} below that of memory > {MOST_BELOW}")
    return short


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    most = 20_000 if args.quick else None
    tasks = [Task("MNIST", mnist()[:most], mnist_labels()[:most], 10, 0.5)]
    if not args.quick:
        tasks.append(Task("Fashion-MNIST", fashion_mnist(), fashion_mnist_labels(), 30, 1.0))
    short = []
    for task in tasks:
        print(f"{task.name}, {len(task.rows):,} rows, limit {readable_bytes(choose_memory(task))}")
        runs = []
        for seed in range(1 if args.quick else args.seeds):
            with tempfile.TemporaryDirectory() as place:
                runs.append(compare(task, seed, Path(place)))
            figures = (
                f"{kind} {one.objective:.4f}/{one.accuracy:.4f}" for kind, one in runs[-1].items()
            )
            print(f"  seed {seed}: {', '.join(figures)}", flush=True)
        short += judge(task, runs)
    return verdict(short, "a graph of blocks on disk is searched as well as one in memory")


if __name__ == "__main__":
    sys.exit(main())
