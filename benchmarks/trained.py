"""The paper's method, trained: `PRCut(solver="train")` on one thread, labels only to score.

    python benchmarks/trained.py                      # seeds 0 to 4 of every data set, 20 minutes
    python benchmarks/trained.py mnist banking77      # some of them
    python benchmarks/trained.py --seeds 1            # fewer seeds
    python benchmarks/trained.py --quick              # a sixth of Fashion-MNIST, about a minute

J is (n/‖W‖₁) Σ cut/|C| + γ KL(sizes ‖ 1/k) on the graph of either-or neighbours; CPU-seconds are
those of a fit whose graph is given. "Refined" are the same labels after single rows were moved.
Texts are compared with the search on its own graph and at its own balance, by J. Last, the
processor time of a training step with 16 heads is held against that of a step with one.
"""

import argparse
import sys
import time
import warnings
from contextlib import suppress
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.harness.scores import hungarian_accuracy

from _verdict import verdict
from prcut import Assigner, PRCut, SimilarityGraph, build_graph, train
from prcut.numerics.matching import max_nmi
from prcut.numerics.objective import balance_factor, hard_objective
from prcut.search.partition import find_partition, refine_labels
from prcut.training import GatheredPairs, Record, TrainConfig, WalkPairs
from speed import Rows, load

# largest step with 16 heads, in steps with one; largest refined J, in those of the search
MAX_STEP, MAX_OF_SEARCH, MAX_OF_SEARCH_QUICK = 1.6, 1.05, 1.03
TEXTS = "banking77", "clinc150"


class Bounds(NamedTuple):
    """The graph and γ of a data set, and what the medians must reach."""

    n_neighbors: int
    gamma: float
    objective: float
    accuracy: float
    nmi: float
    refined: float
    seconds: float = float("inf")


IMAGES = {
    "fashion_mnist": Bounds(150, 10.0, 1.04, 0.69, 0.625, 0.98, 40.0),
    "mnist": Bounds(10, 1.0, 0.66, 0.84, 0.80, 0.49),
}


class Run(NamedTuple):
    """Figures of one seed."""

    objective: float
    refined: float
    accuracy: float
    nmi: float
    refined_accuracy: float
    smallest: int
    seconds: float


def run(rows: Rows, graph: SimilarityGraph, balance_weight: float, seed: int) -> Run:
    """Train, refine and score."""
    start = time.process_time()
    model = PRCut(
        rows.n_clusters,
        solver="train",
        balance_weight=balance_weight,
        refine=False,
        random_state=seed,
    ).fit(rows.features, graph=graph)
    seconds = time.process_time() - start
    labels, k = model.labels_, rows.n_clusters
    refined = refine_labels(graph, labels, k, balance_weight=balance_weight)
    objective = hard_objective(
        graph.weight, torch.from_numpy(refined), k, balance_weight=balance_weight
    )
    found = Run(
        model.objective_,
        objective,
        hungarian_accuracy(rows.classes, labels),
        max_nmi(rows.classes, labels),
        hungarian_accuracy(rows.classes, refined),
        int(np.bincount(labels, minlength=k).min()),
        seconds,
    )
    print(
        f"  seed {seed}: {seconds:5.1f} CPU-s  J {found.objective:.4f}  ACC {found.accuracy:.3f}  "
        f"NMI {found.nmi:.3f}  smallest {found.smallest}  refined J {found.refined:.4f}  "
        f"ACC {found.refined_accuracy:.3f}",
        flush=True,
    )
    return found


def check_images(rows: Rows, bounds: Bounds, n_seeds: int) -> list[str]:
    """Hold the medians against their bounds."""
    print(f"{rows.name}: {bounds.n_neighbors} neighbours, γ = {bounds.gamma:g}", flush=True)
    graph = build_graph(rows.features, bounds.n_neighbors, similarity="binary")
    balance_weight = bounds.gamma / balance_factor(1.0, rows.n_clusters)
    runs = [run(rows, graph, balance_weight, seed) for seed in range(n_seeds)]
    middle = {name: median(getattr(one, name) for one in runs) for name in Run._fields}
    print("  median: " + "  ".join(f"{name} {value:.4g}" for name, value in middle.items()))
    short = [
        f"{rows.name}: median {name} {middle[name]:.4f} > {getattr(bounds, name)}"
        for name in ("objective", "refined", "seconds")
        if middle[name] > getattr(bounds, name)
    ]
    return short + [
        f"{rows.name}: median {name} {middle[name]:.4f} < {getattr(bounds, name)}"
        for name in ("accuracy", "nmi")
        if middle[name] < getattr(bounds, name)
    ]


def check_texts(rows: Rows, n_seeds: int) -> list[str]:
    """Hold the refined labels against those of the search, and look for dead clusters."""
    print(f"{rows.name}: graph and balance of the search", flush=True)
    search = PRCut(rows.n_clusters, random_state=0).fit(rows.features)
    graph = build_graph(rows.features, search.n_neighbors_, similarity="mean")
    weight = search.balance_weight_
    print(
        f"  search: J {search.objective_:.4f}, ACC "
        f"{hungarian_accuracy(rows.classes, search.labels_):.3f}"
    )
    runs = [run(rows, graph, weight, seed) for seed in range(n_seeds)]
    return _compare(rows.name, runs, search.objective_, MAX_OF_SEARCH)


def _compare(name: str, runs: list[Run], searched: float, most: float) -> list[str]:
    ratio = median(one.refined for one in runs) / searched
    print(f"  refined: {ratio:.3f} of the search's J")
    short = [f"{name}: refined J is {ratio:.3f} of the search's > {most}"] * (ratio > most)
    return short + [f"{name}: a cluster is empty"] * (min(one.smallest for one in runs) == 0)


def check_quick() -> list[str]:
    """Hold a sixth of Fashion-MNIST against the search."""
    rows = load("fashion_mnist")
    if rows is None:
        return []
    rows = Rows(rows.name, rows.features[::6], rows.classes[::6])
    print("fashion_mnist: a sixth of the rows, 25 neighbours, γ = 10", flush=True)
    graph = build_graph(rows.features, 25, similarity="binary")
    weight = 10.0 / balance_factor(1.0, rows.n_clusters)
    searched = find_partition(graph, rows.n_clusters, balance_weight=weight).objective
    print(f"  search: J {searched:.4f}")
    runs = [run(rows, graph, weight, seed=0)]
    return _compare(rows.name, runs, searched, MAX_OF_SEARCH_QUICK)


class _Enough(Exception):  # noqa: N818
    """Some steps were made."""


def time_steps(n_heads: int, pairs: GatheredPairs, n_steps: int) -> float:
    """Return the processor time of some steps of 784 → 256 → 10."""
    assigner = Assigner(784, 10, (256,), n_heads=n_heads, weight_norm=False)
    config = TrainConfig(max_steps=10_000, n_heads=n_heads, patience=None)

    def stop(record: Record) -> None:
        if record.step == n_steps:
            raise _Enough

    start = time.process_time()
    with suppress(_Enough):
        train(pairs, assigner, config, on_record=stop)
    return time.process_time() - start


def check_step(n_turns: int) -> list[str]:
    """Compare steps with 16 heads and with one, in turns."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20_000, 784), np.float32)
    graph = SimilarityGraph.from_neighbors(
        rng.permuted(np.arange(20_000)[:, None] // 100 * 100 + np.arange(100), axis=1)[:, :30]
    )
    pairs = GatheredPairs(WalkPairs(graph, n_steps=8), rows)
    ratios = [time_steps(16, pairs, 20) / time_steps(1, pairs, 20) for _ in range(n_turns)]
    ratio = median(ratios)
    print(f"a step with 16 heads takes {ratio:.2f} of one with 1: {np.round(ratios, 2)}")
    return [f"a step with 16 heads takes {ratio:.2f} > {MAX_STEP} of one with 1"] * (
        ratio > MAX_STEP
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[[], *IMAGES, *TEXTS], metavar="SET")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of every data set")
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # constant pixels
    torch.set_num_threads(1)
    short = check_step(3 if args.quick else 9)
    if args.quick:
        short += check_quick()
    else:
        for name in args.names or [*IMAGES, *TEXTS]:
            rows = load(name)
            if rows is not None and name in IMAGES:
                short += check_images(rows, IMAGES[name], args.seeds)
            elif rows is not None:
                short += check_texts(rows, args.seeds)
    return verdict(short, "the trained method is as good as promised")


if __name__ == "__main__":
    sys.exit(main())
