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

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import faiss
import numpy as np
import torch
from benchmarks.harness.scores import hungarian_accuracy

from _disk_run import RunGraph
from _shared import options_of, rows_of, timed, verdict
from prcut.fit.config import FitConfig
from prcut.fit.fit import fit_rows
from prcut.graph.blocks.build import choose_block_rows
from prcut.runs.labels import RowLabels
from prcut.runs.run import fit_run
from prcut.runtime.folder import Folder
from prcut.search.partition import find_partition
from prcut.training.assigner.predict import assign_labels

N_CLUSTERS, N_BLOCKS = 10, 20
# of 60,000 rows
SAMPLE_ROWS = 2**14
MOST_OBJECTIVE, MOST_BELOW = 1.005, 0.01


class Task(NamedTuple):
    """Rows, their classes, and the graph that suits them."""

    name: str
    rows: np.ndarray
    classes: np.ndarray
    n_neighbors: int
    balance_weight: float

    def memory(self) -> int:
        """Return the limit that makes so many blocks."""
        sizes = *self.rows.shape, self.rows.dtype.itemsize, self.n_neighbors
        memory = 2**20
        while choose_block_rows(memory, *sizes, halo=4) < len(self.rows) // N_BLOCKS:
            memory += 2**20
        return memory


def compare(task: Task, seed: int, place: Path) -> dict[str, tuple[float, float, float]]:
    """Search on disk, in memory, and a sample; return objective, accuracy and CPU-seconds."""
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
    result, seconds = timed(
        partial(fit_run, str(data), run, config, memory=task.memory(), device="cpu")
    )
    if result.mode != "disk":
        raise RuntimeError("the limit holds all rows")
    joined = RunGraph.open(run)
    partition = RowLabels(Folder(run / "partition")).read(0, len(task.rows))
    found = {"on disk": (result.objective, hungarian_accuracy(task.classes, partition), seconds)}

    def note(name: str, labels: np.ndarray, seconds: float) -> None:
        objective = joined.objective(labels, N_CLUSTERS, task.balance_weight)
        found[name] = objective, hungarian_accuracy(task.classes, labels), seconds

    note("its assigner", assign_labels(result.assigner, task.rows), 0.0)
    search = partial(find_partition, balance_weight=task.balance_weight, seed=seed)
    whole, seconds = timed(partial(search, joined.graph, N_CLUSTERS))
    labels = np.empty(len(task.rows), np.int64)
    labels[joined.rows] = whole.labels
    note("in memory", labels, seconds)
    n_sampled = SAMPLE_ROWS * len(task.rows) // 60_000
    sample = np.random.default_rng(seed).choice(len(task.rows), n_sampled, replace=False)
    fit, seconds = timed(partial(fit_rows, task.rows[np.sort(sample)], config))
    note("a sample", assign_labels(fit.assigner, task.rows), seconds)
    return found


def judge(task: Task, runs: list[dict[str, tuple[float, float, float]]]) -> list[str]:
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
    args = options_of(__doc__).parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    most = 20_000 if args.quick else None
    rows, classes = rows_of("mnist", "train")
    tasks = [Task("MNIST", rows[:most], classes[:most], 10, 0.5)]
    if not args.quick:
        tasks.append(Task("Fashion-MNIST", *rows_of("fashion_mnist", "train"), 30, 1.0))
    short = []
    for task in tasks:
        print(f"{task.name}, {len(task.rows):,} rows")
        runs = []
        for seed in range(1 if args.quick else 3):
            with tempfile.TemporaryDirectory() as place:
                runs.append(compare(task, seed, Path(place)))
            figures = (f"{kind} {one[0]:.4f}/{one[1]:.4f}" for kind, one in runs[-1].items())
            print(f"  seed {seed}: {', '.join(figures)}", flush=True)
        short += judge(task, runs)
    return verdict(short, "a graph of blocks on disk is searched as well as one in memory")


if __name__ == "__main__":
    sys.exit(main())
