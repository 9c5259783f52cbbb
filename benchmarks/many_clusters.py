"""A thousand clusters at once: none dead, none swollen, the planted ones found.

    python benchmarks/many_clusters.py            # 1,000,000 rows, k = 1000: some half an hour
    python benchmarks/many_clusters.py --quick    # 20,000 rows, k = 100

Rows are Gaussian around random centres in 16 dimensions, near enough to touch; planted clusters
differ in size (log-normal). Run with plain defaults; the planted labels only score.
"""

import argparse
import resource
import sys
import time

import numpy as np
from sklearn.metrics import normalized_mutual_info_score

from _verdict import verdict
from prcut import PRCut

N_FEATURES, SPREAD_OF_SIZES, NOISE = 16, 0.3, 0.5
# least agreement with what was planted; sizes of the smallest and the largest cluster, in units of
# the planted ones, that are still sensible
LEAST_NMI, SMALLEST, LARGEST = 0.985, 0.3, 2.5
# of 20,000 rows of 100 clusters
QUICK_NMI = 0.95
# CPU-seconds of a million rows, a third of what they took before the search was compiled; memory
MOST_SECONDS, MOST_BYTES = 177, 2.5e9


def planted(n_rows: int, n_clusters: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Rows and the cluster of each."""
    fraction = rng.lognormal(0.0, SPREAD_OF_SIZES, n_clusters)
    labels = rng.choice(n_clusters, n_rows, p=fraction / fraction.sum())
    centres = rng.normal(0.0, 1.0, (n_clusters, N_FEATURES)).astype(np.float32)
    rows = rng.normal(0.0, NOISE, (n_rows, N_FEATURES)).astype(np.float32)
    rows += centres[labels]
    return rows, labels


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    args = parser.parse_args()
    n_rows, n_clusters = (20_000, 100) if args.quick else (1_000_000, 1000)
    rows, classes = planted(n_rows, n_clusters, np.random.default_rng(0))
    start = time.process_time()
    model = PRCut(n_clusters=n_clusters, random_state=0).fit(rows)
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for step in model.history_.steps:
        print(f"  {step.name:<40} {step.seconds:7.1f} s")
    sizes = np.bincount(model.labels_, minlength=n_clusters)
    wanted = np.bincount(classes, minlength=n_clusters)
    n_dead = int((sizes == 0).sum())
    nmi = normalized_mutual_info_score(classes, model.labels_)
    predicted = normalized_mutual_info_score(classes, model.predict(rows))
    smallest, largest = sizes.min() / wanted.min(), sizes.max() / wanted.max()
    print(f"{n_rows:,} rows, k = {n_clusters}: {took:.0f} CPU-s, {model.n_neighbors_} neighbours")
    print(f"memory of the process: {peak / 1e9:.2f} GB")
    print(f"empty clusters: {n_dead}")
    print(f"sizes {sizes.min()} to {sizes.max()}, planted {wanted.min()} to {wanted.max()}")
    print(f"NMI {nmi:.4f}, by predict {predicted:.4f}")
    short = []
    if n_dead:
        short.append(f"{n_dead} clusters are empty")
    least = QUICK_NMI if args.quick else LEAST_NMI
    if nmi < least or predicted < QUICK_NMI:
        short.append(f"NMI {nmi:.4f} < {least}, or by predict {predicted:.4f} < {QUICK_NMI}")
    if not args.quick and took > MOST_SECONDS:
        short.append(f"{took:.0f} CPU-seconds > {MOST_SECONDS}")
    if not args.quick and peak > MOST_BYTES:
        short.append(f"{peak / 1e9:.2f} GB > {MOST_BYTES / 1e9} GB")
    if smallest < SMALLEST or largest > LARGEST:
        short.append(f"smallest {smallest:.2f}, largest {largest:.2f} of the planted")
    return verdict(short, "many clusters, none dead, of sensible sizes")


if __name__ == "__main__":
    sys.exit(main())
