"""The paper's method, trained: `PRCut(solver="train")` on one thread, labels only to score.

    python benchmarks/trained.py                      # seeds 0 to 4 of every data set, 20 minutes
    python benchmarks/trained.py mnist banking77      # some of them
    python benchmarks/trained.py --seeds 1            # fewer seeds
    python benchmarks/trained.py --quick              # a sixth of Fashion-MNIST, about a minute

J is (n/‖W‖₁) Σ cut/|C| + γ KL(sizes ‖ 1/k) on the graph of either-or neighbours; CPU-seconds are
those of a fit whose graph is given. "Refined" are the same labels after single rows were moved.
Texts are compared with the search on its own graph and at its own balance, by J.
"""

import sys
import time
import warnings
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.harness.scores import hungarian_accuracy

from _shared import Rows, options_of, verdict
from prcut import PRCut, SimilarityGraph, build_graph
from prcut.numerics.matching import max_nmi
from prcut.numerics.objective import balance_factor, hard_objective
from prcut.search.partition import find_partition, refine_labels
from speed import load

# largest refined J, in those of the search
MAX_OF_SEARCH, MAX_OF_SEARCH_QUICK = 1.05, 1.03
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
    smallest: int
    seconds: float


def run(data: Rows, graph: SimilarityGraph, balance_weight: float, seed: int) -> Run:
    """Train, refine and score."""
    rows, classes = data
    k = len(np.unique(classes))
    options = {"solver": "train", "balance_weight": balance_weight, "refine": False}
    start = time.process_time()
    model = PRCut(k, random_state=seed, **options).fit(rows, graph=graph)
    seconds = time.process_time() - start
    labels = model.labels_
    refined = refine_labels(graph, labels, k, balance_weight=balance_weight)
    found = Run(
        model.objective_,
        hard_objective(graph.weight, torch.from_numpy(refined), k, balance_weight=balance_weight),
        hungarian_accuracy(classes, labels),
        max_nmi(classes, labels),
        int(np.bincount(labels, minlength=k).min()),
        seconds,
    )
    figures = (f"{name} {value:.4g}" for name, value in found._asdict().items())
    print(f"  seed {seed}: {', '.join(figures)}", flush=True)
    return found


def check_images(name: str, data: Rows, bounds: Bounds, n_seeds: int) -> list[str]:
    """Compare the medians with their bounds."""
    print(f"{name}: {bounds.n_neighbors} neighbours, γ = {bounds.gamma:g}", flush=True)
    graph = build_graph(data[0], bounds.n_neighbors, similarity="binary")
    balance_weight = bounds.gamma / balance_factor(1.0, len(np.unique(data[1])))
    runs = [run(data, graph, balance_weight, seed) for seed in range(n_seeds)]
    short = []
    for field in ("objective", "refined", "seconds", "accuracy", "nmi"):
        value, bound = median(getattr(one, field) for one in runs), getattr(bounds, field)
        is_score = field in ("accuracy", "nmi")
        print(f"  median {field} {value:.4g}, bound {bound:g}")
        if value < bound if is_score else value > bound:
            short.append(f"{name}: median {field} {value:.4f}, bound {bound}")
    return short


def check_texts(name: str, data: Rows, n_seeds: int) -> list[str]:
    """Compare the refined labels with those of the search, and look for empty clusters."""
    print(f"{name}: graph and balance of the search", flush=True)
    search = PRCut(len(np.unique(data[1])), random_state=0).fit(data[0])
    graph = build_graph(data[0], search.n_neighbors_, similarity="mean")
    runs = [run(data, graph, search.balance_weight_, seed) for seed in range(n_seeds)]
    return compare(name, runs, search.objective_, MAX_OF_SEARCH)


def compare(name: str, runs: list[Run], searched: float, most: float) -> list[str]:
    ratio = median(one.refined for one in runs) / searched
    print(f"  the search: J {searched:.4f}; refined: {ratio:.3f} of it")
    short = [f"{name}: refined J is {ratio:.3f} of the search's > {most}"] * (ratio > most)
    return short + [f"{name}: a cluster is empty"] * (min(one.smallest for one in runs) == 0)


def check_quick() -> list[str]:
    """Compare the refined labels of a sixth of Fashion-MNIST with those of the search."""
    data = load("fashion_mnist")
    if data is None:
        return []
    rows, classes = (values[::6] for values in data)
    graph = build_graph(rows, 25, similarity="binary")
    weight = 10.0 / balance_factor(1.0, 10)
    searched = find_partition(graph, 10, balance_weight=weight).objective
    runs = [run((rows, classes), graph, weight, seed=0)]
    return compare("a sixth of fashion_mnist", runs, searched, MAX_OF_SEARCH_QUICK)


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *IMAGES, *TEXTS], metavar="SET")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of every data set")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # constant pixels
    torch.set_num_threads(1)
    short = []
    if args.quick:
        short = check_quick()
    else:
        for name in args.names or [*IMAGES, *TEXTS]:
            data = load(name)
            if data is not None and name in IMAGES:
                short += check_images(name, data, IMAGES[name], args.seeds)
            elif data is not None:
                short += check_texts(name, data, args.seeds)
    return verdict(short, "the trained method is as good as promised")


if __name__ == "__main__":
    sys.exit(main())
