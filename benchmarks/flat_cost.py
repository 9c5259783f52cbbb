"""Does a training step cost the same at any number of rows, in time and in memory.

10⁵, 10⁶ and 10⁷ rows × 64 in a memory-mapped file, a graph of 12 neighbours per row in mapped
arrays, pairs by walks of 8 steps, a linear assigner to 100 clusters, the default configuration. A
row's neighbours lie all over the file. Every size is measured in a process of its own, in turns.
What else runs on the machine only ever adds time, and what the allocator keeps only ever adds
memory: counted is each size's least over the turns, the largest size's over the smallest's.

Before the steps that count, the degrees are summed (the one thing that grows with the rows: 8 bytes
each) and the files read once, so that steps are timed and not the disk. Memory is the anonymous
part of the resident set, from before the first step to its peak: pages of mapped files, which the
system takes back when it likes, are not in it.

Exits with 1 when time per step or growth of memory is more than 1.2 times that of the smallest.

    python benchmarks/flat_cost.py           # to 10⁷ rows, 4 GB in a temporary folder, 4 minutes
    python benchmarks/flat_cost.py --quick   # to 10⁶ rows, about a minute
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from _verdict import verdict
from prcut import Assigner, SimilarityGraph
from prcut.numerics.sparse import csr_tensor
from prcut.runtime.memory import release_memory
from prcut.training.batches import GatheredPairs
from prcut.training.loop import train
from prcut.training.pairs import WalkPairs
from prcut.training.state import TrainConfig, TrainState

N_FEATURES, N_CLUSTERS, WALK_LENGTH = 64, 100, 8
GROUP, OFFSETS = 1_000, (1, 3, 9, 27, 81, 243)  # rows per planted group, and who is linked to whom
CHUNK = 100_000
MAX_RATIO = 1.2


def write_problem(folder: Path, n_samples: int) -> None:
    """Features and graph in chunks, so that this process stays small too."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    n_groups, n_neighbors = n_samples // GROUP, 2 * len(OFFSETS)

    def create(name: str, dtype: type, *shape: int) -> np.ndarray:
        return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)

    features = create("features", np.float32, n_samples, N_FEATURES)
    indptr = create("indptr", np.int64, n_samples + 1)
    indices = create("indices", np.int64, n_samples, n_neighbors)
    values = create("values", np.float32, n_samples * n_neighbors)
    indptr[-1] = n_samples * n_neighbors
    for first in range(0, n_samples, CHUNK):
        rows = np.arange(first, first + CHUNK)
        place, group = np.divmod(rows, n_groups)  # a group is spread over the file
        places = (place[:, None] + np.array([*OFFSETS, *(-o for o in OFFSETS)])) % GROUP
        indices[rows] = np.sort(places, axis=1) * n_groups + group[:, None]
        indptr[rows] = rows * n_neighbors
        values[first * n_neighbors : (first + CHUNK) * n_neighbors] = 1
        features[rows] = rng.standard_normal((CHUNK, N_FEATURES), np.float32)
        features[rows, group % N_FEATURES] += 3


def resident(kind: str) -> float:
    """Megabytes of this process: ``RssAnon``, or ``VmRSS`` for all."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{kind}:")[1].split()[0]) / 1e3


class Cost(NamedTuple):
    """Figures of training at one size."""

    milliseconds: float  # per step, in the fastest block: other jobs only add to it
    growth: float  # of anonymous memory, in megabytes
    before: float  # anonymous memory before the first step
    total: float  # resident set at the end


def measure(folder: Path, n_blocks: int) -> Cost:
    """Train on what ``folder`` holds."""
    torch.set_num_threads(1)
    found = {path.stem: np.load(path, mmap_mode="c") for path in folder.glob("*.npy")}
    indptr, indices, values = (
        torch.from_numpy(found[name].reshape(-1)) for name in ("indptr", "indices", "values")
    )
    sampler = WalkPairs(SimilarityGraph(csr_tensor(indptr, indices, values)), n_steps=WALK_LENGTH)
    for first in range(0, len(found["features"]), CHUNK):
        found["features"][first : first + CHUNK].sum()
    pairs = GatheredPairs(sampler, found["features"])
    assigner = Assigner(N_FEATURES, N_CLUSTERS, generator=torch.Generator().manual_seed(0))
    state = TrainState.start(assigner, TrainConfig())
    release_memory()  # what the set-up has freed is not ours to grow into
    before, peak, times = resident("RssAnon"), 0.0, []
    for block in range(n_blocks + 1):
        config = TrainConfig(max_steps=50 * (block + 1), patience=None)
        start = time.perf_counter()
        train(pairs, assigner, config, state=state)
        times.append((time.perf_counter() - start) / 50)
        peak = max(peak, resident("RssAnon"))
    growth = peak - before
    return Cost(1e3 * min(times[1:]), growth, before, resident("VmRSS"))


def in_own_process(folder: Path, n_blocks: int) -> Cost:
    command = [sys.executable, __file__, "--measure", str(folder), str(n_blocks)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return Cost(*json.loads(answer.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="10⁵ and 10⁶ rows only")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        folder, n_blocks = options.measure
        print(json.dumps(measure(Path(folder), int(n_blocks))))
        return 0
    sizes = [10**5, 10**6] if options.quick else [10**5, 10**6, 10**7]
    turns, n_blocks = (4, 6) if options.quick else (5, 10)
    with tempfile.TemporaryDirectory(prefix="prcut-") as name:
        folders = {size: Path(name) / str(size) for size in sizes}
        for size, folder in folders.items():
            write_problem(folder, size)
        found = [
            {size: in_own_process(folder, n_blocks) for size, folder in folders.items()}
            for _ in range(turns)
        ]
    print(
        f"linear {N_FEATURES}→{N_CLUSTERS}, walks of {WALK_LENGTH} steps, "
        f"{TrainConfig().batch_size:,} pairs per step, torch {torch.__version__}, 1 thread, "
        f"least of {turns} turns\n\n"
        "| rows | ms per step (range) | growth of anonymous memory, MB | before, MB "
        "| resident in all, MB |\n" + 5 * "|---" + "|"
    )
    least = {}
    for size in sizes:
        least[size] = Cost(*(min(part) for part in zip(*(t[size] for t in found), strict=True)))
        slowest = max(turn[size].milliseconds for turn in found)
        time_range = f"{least[size].milliseconds:.1f} (to {slowest:.1f})"
        print(
            f"| {size:,} | {time_range} | "
            + " | ".join(f"{x:,.1f}" for x in least[size][1:])
            + " |"
        )
    print()
    short = []
    for field in ("milliseconds", "growth"):
        ratio = getattr(least[sizes[-1]], field) / getattr(least[sizes[0]], field)
        print(f"{field}, {sizes[-1]:,} rows over {sizes[0]:,}: {ratio:.2f}")
        if ratio > MAX_RATIO:
            short.append(f"{field}: {ratio:.2f} > {MAX_RATIO}")
    return verdict(short, f"time per step and growth of memory within {MAX_RATIO}")


if __name__ == "__main__":
    sys.exit(main())
