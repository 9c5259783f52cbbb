"""PRCut on Gagolewski's suite: 76 small data sets, most with several reference labellings.

A set counts with the labelling that its fit meets best, as its authors score; k is that of the
labelling and nothing else is set. Points that a labelling calls noise (0) are not scored. The
suite is of the test half of the contest: no rule was chosen by it.

Exits with 1 where the mean adjusted Rand index is below that published for Genie.

    python benchmarks/small_sets.py           # all sets
    python benchmarks/small_sets.py --quick   # those of at most 500 rows
"""

import os
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from _shared import options_of, verdict
from prcut import PRCut

# mean adjusted Rand index over 77 sets, best labelling; Genie with a threshold of 0.3
PUBLISHED = {
    "Genie": 0.780,
    "Gaussian mixtures": 0.649,
    "spectral clustering": 0.628,
    "k-means": 0.558,
    "Ward": 0.548,
}
QUICK_ROWS = 500


def best_score(rows: np.ndarray, labellings: list[np.ndarray]) -> float:
    """Return the highest adjusted Rand index over the labellings."""
    fits: dict[int, np.ndarray] = {}
    scores = []
    for labels in labellings:
        known = labels > 0
        n_clusters = len(np.unique(labels[known]))
        if n_clusters not in fits:
            fits[n_clusters] = PRCut(n_clusters, random_state=0, n_jobs=1).fit(rows).labels_
        scores.append(adjusted_rand_score(labels[known], fits[n_clusters][known]))
    return max(scores)


def main() -> int:
    parser = options_of(__doc__, "sets of at most 500 rows")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    path = Path(os.environ.get("PRCUT_DATA", ".")) / "gagolewski_suite.npz"
    if not path.exists():
        print(f"{path.name} is not in the folder named by PRCUT_DATA: nothing is measured")
        return 0
    scores = {}
    with np.load(path) as suite:
        for name in sorted(key.removesuffix(".data") for key in suite if key.endswith(".data")):
            rows = suite[f"{name}.data"]
            if given.quick and len(rows) > QUICK_ROWS:
                continue
            labellings = [suite[key] for key in suite if key.startswith(f"{name}.labels")]
            scores[name] = best_score(rows, labellings)
            print(f"{name:28} {len(rows):6} rows  ARI {scores[name]:.3f}", flush=True)
    mean = float(np.mean(list(scores.values())))
    print(f"\nmean of {len(scores)} sets: {mean:.3f}")
    print("published:", ", ".join(f"{name} {value:.3f}" for name, value in PUBLISHED.items()))
    short = [] if mean >= PUBLISHED["Genie"] else [f"mean ARI {mean:.3f}, Genie's is 0.780"]
    return verdict([] if given.quick else short, "small sets")


if __name__ == "__main__":
    sys.exit(main())
