"""Partitions as good as was asked for: the committed results, and plain defaults run here.

    python benchmarks/quality.py            # MNIST as a whole, a few minutes
    python benchmarks/quality.py --quick    # its first 10,000 rows with 10 neighbours

Run here: `PRCut(n_clusters=10).fit(X)` on raw pixels; the accuracy of its labels and, by the same
match of clusters and classes, of `predict` on the test split; and the time of a fit on the graph it
chose, whose neighbours are known, against that of scikit-learn's SpectralClustering (AMG) on it.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.harness.commands import BenchOptions, bench_table
from benchmarks.harness.datasets import load_dataset
from benchmarks.harness.methods import METHODS
from benchmarks.harness.quality import compare_with_goals
from benchmarks.harness.records import read_records
from benchmarks.harness.scores import hungarian_accuracy, match_clusters
from benchmarks.harness.task import Task

from _verdict import verdict
from prcut import PRCut, build_graph
from prcut.errors import DataWarning

RESULTS = Path(__file__).parent / "results"
# accuracy of plain defaults, what `predict` may lose on new rows, time in units of SC's
LEAST_ACC, MOST_LOST, MOST_TIME = 0.95, 0.01, 3.0
# of few rows neighbours are given, since so few do not decide how many; no time is promised there,
# as fixed costs outweigh the rest
QUICK_ROWS, QUICK_NEIGHBORS, QUICK_ACC, QUICK_LOST = 10_000, 10, 0.8, 0.03


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    args = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    short = [] if args.quick else committed()
    return verdict([*short, *defaults(args.quick)], "the partitions that were asked for")


def committed() -> list[str]:
    """Return the goals that the results of `python -m benchmarks.harness quality` do not reach."""
    print(bench_table("quality", BenchOptions(results=str(RESULTS), summary_only=True, mixed=True)))
    names = ("quality", "table2", "table3", "table4")
    records = [record for name in names for record in read_records(RESULTS / f"{name}.jsonl")]
    return [
        f"{one.subject}: {one.score} {median(one.values) if one.values else '(not run)'}, "
        f"asked for {one.goal_text}"
        for one in compare_with_goals(records)
        if not one.is_reached
    ]


def defaults(is_quick: bool) -> list[str]:
    """Return the goals that a plain fit of MNIST does not reach."""
    n_rows = QUICK_ROWS if is_quick else None
    train, test = (load_dataset("mnist", split=split) for split in ("train", "test"))
    rows, classes = train.pixels()[:n_rows], train.labels[:n_rows]
    n_neighbors = QUICK_NEIGHBORS if is_quick else None
    model = PRCut(n_clusters=10, n_neighbors=n_neighbors, random_state=0).fit(rows)
    acc = hungarian_accuracy(classes, model.labels_)
    # one match of clusters and classes for both splits: that of all rows together
    both = np.concatenate([model.labels_, model.predict(test.pixels())])
    all_classes = np.concatenate([classes, test.labels])
    match = match_clusters(all_classes, both)
    test_acc = float(np.mean(np.vectorize(match.get)(both[len(rows) :]) == test.labels))
    print(f"defaults: {model.n_neighbors_} neighbours, balance {model.balance_weight_:.2f}")
    print(f"ACC {acc:.4f} on {len(rows):,} rows, {test_acc:.4f} by predict on {len(test.labels):,}")

    graph = build_graph(rows, model.n_neighbors_, similarity="mean")
    ours = seconds(lambda: PRCut(n_clusters=10, random_state=0).fit(rows, graph=graph))
    task = Task(rows, graph, 10, 0)
    theirs = seconds(lambda: METHODS["spectral_clustering"].run(task))
    print(f"after the neighbours: {ours / theirs:.2f} times the CPU time of spectral clustering")

    least, lost = (QUICK_ACC, QUICK_LOST) if is_quick else (LEAST_ACC, MOST_LOST)
    short = []
    if acc < least:
        short.append(f"defaults on MNIST: ACC {acc:.4f} < {least}")
    if acc - test_acc > lost:
        short.append(f"defaults on MNIST: predict loses {acc - test_acc:.4f} > {lost}")
    if not is_quick and ours > MOST_TIME * theirs:
        short.append(f"time: {ours / theirs:.2f} times that of spectral clustering > {MOST_TIME}")
    return short


def seconds(work: Callable[[], object]) -> float:
    """CPU time, which other programs on the machine do not change."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
