"""A thousand clusters at once: none dead, none swollen, the planted ones found.

    python benchmarks/many_clusters.py            # 1,000,000 rows, k = 1000: some half an hour
    python benchmarks/many_clusters.py --disk     # 2,000,000 rows on disk, k = 10,000
    python benchmarks/many_clusters.py --quick    # 20,000 rows, k = 100; 12,000 on disk, k = 600

Rows are Gaussian around random centres in 16 dimensions, near enough to touch; planted clusters
differ in size (log-normal). On disk they have 32 dimensions and sizes that differ by chance; no
task may take more than 15 CPU-minutes or 4 GB. Run with plain defaults; the planted labels only
score.
"""

import resource
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from sklearn.metrics import normalized_mutual_info_score

from _disk_run import fit_on_disk, labels_of
from _shared import options_of, timed, verdict, write_planted
from prcut import PRCut
from prcut.fit.config import FitConfig

N_FEATURES, SPREAD_OF_SIZES, NOISE = 16, 0.3, 0.5
# least agreement with what was planted; sizes of the smallest and the largest cluster, in units of
# the planted ones, that are still sensible
LEAST_NMI, SMALLEST, LARGEST = 0.985, 0.3, 2.5
# of 20,000 rows of 100 clusters
QUICK_NMI = 0.95
# CPU-seconds of a million rows, a third of what they took before the search was compiled; memory
MOST_SECONDS, MOST_BYTES = 177, 2.5e9
# on disk: rows, clusters, bytes of memory; least NMI, CPU-seconds and bytes of a task
ON_DISK, QUICK_ON_DISK = (2_000_000, 10_000, 10**9), (12_000, 600, 10**6)
DISK_NMI, DISK_SECONDS, DISK_BYTES = 0.985, 900, 4e9


def planted(n_rows: int, n_clusters: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Rows and the cluster of each."""
    fraction = rng.lognormal(0.0, SPREAD_OF_SIZES, n_clusters)
    labels = rng.choice(n_clusters, n_rows, p=fraction / fraction.sum())
    centres = rng.normal(0.0, 1.0, (n_clusters, N_FEATURES)).astype(np.float32)
    rows = rng.normal(0.0, NOISE, (n_rows, N_FEATURES)).astype(np.float32)
    rows += centres[labels]
    return rows, labels


def search_on_disk(n_rows: int, n_clusters: int, memory: int) -> list[str]:
    """Cluster planted rows on disk; return what falls short."""
    with tempfile.TemporaryDirectory() as place:
        data, run = Path(place) / "data", Path(place) / "run"
        write_planted(data, n_rows, 2 * N_FEATURES, n_clusters, max(1, n_rows // 40_000))
        config = FitConfig.of("default", n_clusters, n_jobs=1)
        found = fit_on_disk(data, run, config, column="embedding", memory=memory)
        labels = labels_of(run, n_rows)
        classes = pq.read_table(data, columns=["planted"])["planted"].to_numpy()
    print(f"{n_rows:,} rows on disk, k = {n_clusters:,}")
    found.show(n_rows)
    sizes = np.bincount(labels, minlength=n_clusters)
    nmi = normalized_mutual_info_score(classes, labels)
    print(f"sizes {sizes.min()} to {sizes.max()}, NMI {nmi:.4f}")
    short = []
    if not sizes.all():
        short.append(f"{(sizes == 0).sum()} clusters on disk are empty")
    if nmi < DISK_NMI:
        short.append(f"on disk NMI {nmi:.4f} < {DISK_NMI}")
    if found.longest_seconds > DISK_SECONDS or found.peak_bytes > DISK_BYTES:
        used = f"{found.longest_seconds:.0f} CPU-seconds, {found.peak_bytes / 1e9:.1f} GB"
        short.append(f"on disk a task took {used} > {DISK_SECONDS}, {DISK_BYTES / 1e9:.0f} GB")
    return short


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--disk", action="store_true", help="ten thousand clusters, on disk")
    args = parser.parse_args()
    done = "many clusters, none dead, of sensible sizes"
    if args.disk:
        return verdict(search_on_disk(*ON_DISK), done)
    n_rows, n_clusters = (20_000, 100) if args.quick else (1_000_000, 1000)
    rows, classes = planted(n_rows, n_clusters, np.random.default_rng(0))
    model, took = timed(partial(PRCut(n_clusters, random_state=0).fit, rows))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sizes = np.bincount(model.labels_, minlength=n_clusters)
    wanted = np.bincount(classes, minlength=n_clusters)
    n_dead = int((sizes == 0).sum())
    nmi = normalized_mutual_info_score(classes, model.labels_)
    predicted = normalized_mutual_info_score(classes, model.predict(rows))
    smallest, largest = sizes.min() / wanted.min(), sizes.max() / wanted.max()
    print(f"{n_rows:,} rows, k = {n_clusters}: {took:.0f} CPU-s, {model.n_neighbors_} neighbours")
    print(f"sizes {sizes.min()} to {sizes.max()}, planted {wanted.min()} to {wanted.max()}")
    print(f"NMI {nmi:.4f}, by predict {predicted:.4f}, {peak / 1e9:.2f} GB")
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
    if args.quick:
        short += search_on_disk(*QUICK_ON_DISK)
    return verdict(short, done)


if __name__ == "__main__":
    sys.exit(main())
