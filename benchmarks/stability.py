"""Numbers that can be relied on: the same again, and for a very long time.

    python benchmarks/stability.py            # 1,000,000 optimizer steps: some half an hour
    python benchmarks/stability.py --quick    # 4,000 steps, fewer rows

1. The same seed gives the same labels again, in another process, and with one thread and two: the
   estimator on the digits and on blobs, and a run on disk. With the same number of threads the
   model is the same bit by bit; another number adds up in another order.
2. Steps without end on a small problem: no NaN, no drift of the objective, memory flat.
"""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil
import torch
from sklearn.datasets import load_digits, make_blobs

from _shared import options_of, verdict
from prcut import Assigner, PRCut, build_graph
from prcut.fit.config import FitConfig
from prcut.runs.run import fit_run
from prcut.training.assigner.predict import assign_labels
from prcut.training.batches import GatheredPairs
from prcut.training.loop import train
from prcut.training.pairs import WalkPairs
from prcut.training.settings import TrainConfig
from prcut.training.state import Record

# growth of memory, and of the objective, over the last nine tenths of a long run
MOST_GROWTH, MOST_DRIFT = 1.02, 1.02


def blobs(n_rows: int, n_features: int, n_clusters: int) -> np.ndarray:
    options = {"center_box": (-2, 2), "cluster_std": 0.6, "random_state": 0}
    return make_blobs(n_rows, n_features, centers=n_clusters, **options)[0].astype(np.float32)


# -- 1: again --------------------------------------------------------------------------------


def labels_of_everything(n_blobs: int, n_on_disk: int) -> dict[str, str]:
    """Checksums of labels and of models, in this process."""
    digest = {}
    pixels = load_digits().data
    for name, rows, n_clusters in (
        ("digits", pixels[:, pixels.std(0) > 0], 10),
        ("blobs", blobs(200 * n_blobs, 16, n_blobs), n_blobs),
    ):
        model = PRCut(n_clusters, random_state=0).fit(rows)
        digest[f"{name}: labels"] = sha(model.labels_)
        digest[f"{name}: predicted"] = sha(model.predict(rows))
        digest[f"{name}: model"] = sha(model.predict_proba(rows))
    rows = blobs(n_on_disk, 16, 8)
    with tempfile.TemporaryDirectory() as folder:
        config = FitConfig.of("default", 8, max_steps=200)
        found = fit_run(rows, Path(folder) / "run", config, memory=10**6, device="cpu")
        digest["on disk: labels"] = sha(assign_labels(found.assigner, rows))
        digest["on disk: model"] = sha((Path(folder) / "run/model/model.safetensors").read_bytes())
    return digest


def sha(content: bytes | np.ndarray) -> str:
    whole = content.tobytes() if isinstance(content, np.ndarray) else content
    return hashlib.sha256(whole).hexdigest()


def again() -> list[str]:
    """Return what differs between two runs with one thread and one with two."""
    command = [sys.executable, __file__, "--labels", *sys.argv[1:]]
    found = []
    for n_threads in ("1", "1", "2"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, n_threads)
        out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found.append(json.loads(out.stdout.splitlines()[-1]))
    first, second, threads = found
    short = [f"{name} differs between two runs" for name in first if first[name] != second[name]]
    for name in first:
        is_same = first[name] == threads[name]
        print(f"  {name:<18} again the same, {'the same' if is_same else 'another'} by two threads")
        if not is_same and not name.endswith("model"):
            short.append(f"{name} differs between one thread and two")
    return short


# -- 2: for long -----------------------------------------------------------------------------


def for_long(n_steps: int) -> list[str]:
    rows = blobs(500, 4, 3)
    pairs = GatheredPairs(WalkPairs(build_graph(rows, 10, max_components=3), n_steps=2), rows)
    assigner = Assigner(4, 3, generator=torch.Generator().manual_seed(0))
    config = TrainConfig(
        n_steps, batch_size=64, schedule="constant", patience=None, learning_rate=1e-3
    )
    seen: list[tuple[int, float, int]] = []
    sums = [0.0, 0]

    def note(record: Record) -> None:
        sums[0] += record.objective
        sums[1] += 1
        if record.step % (n_steps // 10) == 0:
            seen.append((record.step, sums[0] / sums[1], psutil.Process().memory_info().rss))
            sums[:] = [0.0, 0]

    train(pairs, assigner, config, on_record=note)
    for step, objective, memory in seen:
        print(f"  {step:>9,} steps: objective {objective:.4f}, {memory / 1e6:.1f} MB", flush=True)
    weights = torch.cat([part.detach().flatten() for part in assigner.parameters()])
    growth, drift = (max(x[i] for x in seen) / seen[0][i] for i in (2, 1))
    short = []
    if not (torch.isfinite(weights).all() and all(math.isfinite(x[1]) for x in seen)):
        short.append("a long run ends in numbers that are not finite")
    if growth > MOST_GROWTH:
        short.append(f"memory grows by {growth:.4f} > {MOST_GROWTH}")
    if drift > MOST_DRIFT:
        short.append(f"the objective grows by {drift:.4f} > {MOST_DRIFT}")
    return short


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--labels", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.labels:
        print(json.dumps(labels_of_everything(*((10, 5_000) if args.quick else (30, 20_000)))))
        return 0
    torch.set_num_threads(1)
    short = []
    print("again:")
    short += again()
    print("for long:")
    short += for_long(4_000 if args.quick else 1_000_000)
    return verdict(short, "the same again, and for long")


if __name__ == "__main__":
    sys.exit(main())
