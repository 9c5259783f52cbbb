"""Under load: many processes at once, many fits in one process, a stream that drifts for an hour.

    python benchmarks/load.py            # 8 processes, 100 fits, 3600 parts of a stream
    python benchmarks/load.py --quick    # 3 processes, 15 fits, 150 parts

1. Commands that assign with the same model, from and to the same disk, all at once: the labels are
   those of one that runs alone, byte for byte.
2. Fit after fit in one process, of several sizes: memory does not grow.
3. A part of a stream a second: six groups go round in a circle, twice in an hour, so that each
   comes where others were. The model follows, and its clusters keep their numbers: rows are scored
   with the one match of numbers that was made at the beginning.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil
import torch
from scipy.optimize import linear_sum_assignment

from _parquet import write_planted
from _verdict import verdict
from prcut import PRCut

MOST_GROWTH = 1.02
LEAST_ACCURACY = 0.95
N_GROUPS, N_FEATURES, ROWS_OF_PART = 6, 8, 300
PARTS_OF_A_ROUND = 1800


def processes(n_processes: int, n_rows: int) -> list[str]:
    """Labels by one command, and by several at once."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_planted(place / "data", n_rows, 32, 20, n_files=4)
        prcut = [sys.executable, "-m", "prcut"]
        options = ["--column", "embedding", "--id-column", "id", "-q", "--device", "cpu"]
        fit = [*prcut, "fit", f"{folder}/data", "-k", "20", "--out", f"{folder}/run", *options]
        subprocess.run([*fit, "--steps", "100"], check=True, capture_output=True)
        assign = [*prcut, "assign", f"{folder}/run", f"{folder}/data", *options, "--out"]
        started = [
            subprocess.Popen([*assign, f"{folder}/out-{number}"], stdout=subprocess.DEVNULL)
            for number in range(n_processes)
        ]
        codes = [process.wait() for process in started]
        expected = files(place / "run/labels")
        differ = [n for n in range(n_processes) if files(place / f"out-{n}") != expected]
    print(f"{n_processes} processes at once: {len(differ)} wrote other labels than one alone")
    return [f"processes {differ} wrote other labels"] * bool(differ) + [
        f"exit codes {codes}"
    ] * any(codes)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def fits(n_fits: int) -> list[str]:
    """Memory after the first third of the fits, and after all."""
    rng = np.random.default_rng(0)
    memory = []
    for number in range(n_fits):
        rows = rng.normal(size=(400 + 100 * (number % 5), 16)).astype(np.float32)
        rows[::2] += 3
        model = PRCut(2 + number % 5, n_neighbors=8, max_steps=30, random_state=number).fit(rows)
        model.predict(rows)
        memory.append(psutil.Process().memory_info().rss)
    third = n_fits // 3
    growth = max(memory[-5:]) / max(memory[third - 5 : third])
    print(f"{n_fits} fits: {memory[third - 1] / 1e6:.1f} MB after {third}, ", end="")
    print(f"{memory[-1] / 1e6:.1f} MB after all ({growth:.4f})")
    return [f"memory grows by {growth:.4f} > {MOST_GROWTH}"] if growth > MOST_GROWTH else []


def stream(n_parts: int) -> list[str]:
    """Accuracy from part to part, with numbers matched once."""
    rng = np.random.default_rng(0)
    angles = 2 * np.pi * np.arange(N_GROUPS) / N_GROUPS

    def arrive(part: int) -> tuple[np.ndarray, np.ndarray]:
        now = angles + 2 * np.pi * part / PARTS_OF_A_ROUND
        middle = np.zeros((N_GROUPS, N_FEATURES))
        middle[:, 0], middle[:, 1] = 12 * np.cos(now), 12 * np.sin(now)
        groups = rng.integers(N_GROUPS, size=ROWS_OF_PART)
        return (middle[groups] + rng.normal(size=(ROWS_OF_PART, N_FEATURES))), groups

    rows, groups = map(np.concatenate, zip(*(arrive(0) for _ in range(5)), strict=True))
    model = PRCut(N_GROUPS, n_neighbors=10, learning_rate=0.01, random_state=0).fit(rows)
    counts = np.zeros((N_GROUPS, N_GROUPS))
    np.add.at(counts, (model.labels_, groups), 1)
    group_of = linear_sum_assignment(-counts)[1]
    left_alone = PRCut(N_GROUPS, n_neighbors=10, random_state=0).fit(rows)
    memory, accuracy, alone = [], [], []
    for part in range(1, n_parts + 1):
        rows, groups = arrive(part)
        accuracy.append(float(np.mean(group_of[model.predict(rows)] == groups)))
        alone.append(float(np.mean(group_of[left_alone.predict(rows)] == groups)))
        model.partial_fit(rows)
        memory.append(psutil.Process().memory_info().rss)
    growth = max(memory[-5:]) / max(memory[: n_parts // 3])
    print(
        f"a stream of {n_parts:,} parts: accuracy of rows not yet learned {np.mean(accuracy):.4f} "
        f"in the mean, {min(accuracy):.4f} at worst, {accuracy[-1]:.4f} at last; a model that was "
        f"left alone {np.mean(alone):.4f} in the mean; memory grows by {growth:.4f}"
    )
    short = []
    if np.mean(accuracy) < LEAST_ACCURACY or np.mean(accuracy[-50:]) < LEAST_ACCURACY:
        short.append(f"accuracy on a stream {np.mean(accuracy):.3f}, {accuracy[-1]:.3f} at last")
    if growth > MOST_GROWTH:
        short.append(f"memory grows by {growth:.4f} > {MOST_GROWTH} on a stream")
    return short


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sizes = (3, 20_000, 15, 150) if args.quick else (8, 200_000, 100, 3600)
    n_processes, n_rows, n_fits, n_parts = sizes
    # the fits first, in a heap that no stream has torn
    short = fits(n_fits) + stream(n_parts) + processes(n_processes, n_rows)
    return verdict(short, "processes, fits and streams bear each other")


if __name__ == "__main__":
    sys.exit(main())
