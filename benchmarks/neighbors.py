"""Neighbours against the exact ones: recall, time over bare FAISS, and blocks.

Two tables on Fashion-MNIST and MNIST (60,000 × 784): recall@15 and @50 of `find_neighbors`, and its
whole time (checks, training, tuning, search) over FAISS alone with the same index, training and
n_probe, in turns, median ratio. Blocks: recall and work of 20 cells with the default halo. Exits
with 1 when the time exceeds 1.10, a recall its target (.98; blocks .97), or the blocks' work .25 of
the exact search's.

    PRCUT_DATA=... python benchmarks/neighbors.py           # about 10 minutes on 2 cores
    PRCUT_DATA=... python benchmarks/neighbors.py --quick   # Fashion-MNIST@15, once
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import faiss
import numpy as np

from _shared import Table, options_of, rows_of, verdict
from prcut.graph import neighbors as library
from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.graph.neighbors import Neighbors, find_neighbors

RECALL, MAX_TIME = 0.98, 1.10
BLOCK_RECALL, MAX_BLOCK_WORK, N_CELLS = 0.97, 0.25, 20
COUNTS = (15, 50)


class Truth(NamedTuple):
    """Exact neighbours of a sample of rows, nearest first, by FAISS's flat search."""

    rows: np.ndarray
    indices: np.ndarray


def exact(features: np.ndarray, rows: np.ndarray, n_neighbors: int) -> Truth:
    _, found = faiss.knn(features[rows], features, n_neighbors + 1)
    return Truth(rows, others(rows, found))


def others(rows: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Remove one column: the row itself, or the last where duplicates took its position."""
    own = found == rows[:, None]
    own[:, -1] |= ~own.any(1)
    return found[~own].reshape(len(rows), -1)


def recall_of(found: np.ndarray, truth: Truth, n_neighbors: int) -> float:
    """Return the fraction of the true neighbours in ``found``, which has the rows of ``truth``."""
    true = truth.indices[:, :n_neighbors]
    return float((true[:, :, None] == found[:, None, :n_neighbors]).any(2).mean())


def bare_faiss(features: np.ndarray, n_neighbors: int, like: Neighbors) -> np.ndarray:
    """Find neighbours as one would with FAISS alone, knowing the best settings beforehand."""
    n_features = features.shape[1]
    if like.n_lists == 0:
        index = faiss.IndexFlatL2(n_features)
    else:
        coarse = faiss.IndexFlatL2(n_features)
        index = faiss.IndexIVFFlat(coarse, n_features, like.n_lists)
        index.cp.niter = library._TRAINING_ITERATIONS
        index.cp.max_points_per_centroid = library._TRAINING_ROWS_PER_LIST
        index.nprobe = like.n_probe
        index.train(features)
    index.add(features)
    _, found = index.search(features, n_neighbors + 1)
    return found


def images(
    table: Table, name: str, features: np.ndarray, truth: Truth, counts: Sequence[int], rounds: int
) -> Iterator[str]:
    """Alternate the runs, since a shared machine is noisy: each ratio is of neighbours in time."""
    for n_neighbors in counts:
        ours, bare = [], []
        for _ in range(rounds):
            start = time.perf_counter()
            found = find_neighbors(features, n_neighbors)
            middle = time.perf_counter()
            other = bare_faiss(features, n_neighbors, found)
            ours.append(middle - start)
            bare.append(time.perf_counter() - middle)
        recall = recall_of(found.indices[truth.rows], truth, n_neighbors)
        bare_recall = recall_of(others(truth.rows, other[truth.rows]), truth, n_neighbors)
        ratio = statistics.median(mine / its for mine, its in zip(ours, bare, strict=True))
        index = f"{n_neighbors}", f"{found.n_lists}", f"{found.n_probe}"
        recalls = f"{found.recall:.4f}", f"{recall:.4f}", f"{bare_recall:.4f}"
        times = f"{statistics.median(ours):.1f} s", f"{statistics.median(bare):.1f} s"
        table.add(name, *index, *recalls, *times, f"{ratio:.2f}")
        if recall < RECALL:
            yield f"{name}: recall@{n_neighbors} {recall:.4f} < {RECALL}"
        if ratio > MAX_TIME:
            yield f"{name}: {ratio:.2f} × bare FAISS > {MAX_TIME}"


def in_blocks(table: Table, name: str, features: np.ndarray, anchors: float) -> Iterator[str]:
    """Blocks search for a sample of anchors; the work counted is that of every core row."""
    n_samples = len(features)
    found = np.full((n_samples, max(COUNTS)), -1)
    config = BlockConfig(n_neighbors=max(COUNTS), block_rows=n_samples // N_CELLS, anchors=anchors)
    work, searched = 0, []
    with tempfile.TemporaryDirectory() as folder:
        blocks = build_blocks(features, folder, config)
        for block in blocks:
            work += block.n_core * len(block.rows)
            searched.append(block.rows[block.anchors])
            found[searched[-1]] = np.where(block.neighbors < 0, -1, block.rows[block.neighbors])
        rows, n_blocks = np.concatenate(searched), len(blocks)
    truth = exact(features, rows, max(COUNTS))
    recalls = [recall_of(found[rows], truth, count) for count in COUNTS]
    share = work / n_samples**2
    figures = (f"{recall:.4f}" for recall in recalls)
    table.add(name, f"{n_blocks}", f"{config.halo}", *figures, f"{share:.3f}")
    if recalls[0] < BLOCK_RECALL:
        yield f"{name}: recall@15 in blocks {recalls[0]:.4f} < {BLOCK_RECALL}"
    if share > MAX_BLOCK_WORK:
        yield f"{name}: work in blocks {share:.3f} > {MAX_BLOCK_WORK}"


def main() -> int:
    quick = options_of(__doc__, "one image set, once").parse_args().quick
    n_sampled, n_checked, rounds = (1_000, 1_000, 1) if quick else (5_000, 2_000, 3)
    sets = {"Fashion-MNIST": rows_of("fashion_mnist", "train")[0]}
    if not quick:
        sets["MNIST"] = rows_of("mnist", "train")[0]
    print(f"FAISS {faiss.__version__}, {faiss.omp_get_max_threads()} threads")
    sample = np.random.default_rng(7).choice(60_000, n_sampled, replace=False)
    short = []

    print(f"\nRecall on {n_sampled:,} rows (seed 7), times for all, medians of {rounds}\n")
    columns = "data", "neighbours", "lists", "probed", "recall promised", "recall"
    table = Table(*columns, "bare FAISS's", "our time", "bare FAISS", "ratio")
    for name, features in sets.items():
        truth = exact(features, sample, max(COUNTS))
        short += images(table, name, features, truth, COUNTS[:1] if quick else COUNTS, rounds)

    print(f"\n{N_CELLS} cells, recall on {n_checked:,} rows; work: distances over the exact's\n")
    table = Table("data", "blocks", "halo", "recall@15", "recall@50", "work")
    for name, features in sets.items():
        short += in_blocks(table, name, features, n_checked / len(features))

    return verdict(
        short,
        f"recall >= {RECALL}, time <= {MAX_TIME} × bare FAISS, blocks' recall@15 >= "
        f"{BLOCK_RECALL} with work <= {MAX_BLOCK_WORK}",
    )


if __name__ == "__main__":
    sys.exit(main())
