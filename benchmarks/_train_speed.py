"""Seconds that steps of training take, in every process that trains together.

torchrun --nproc-per-node 2 _train_speed.py PAIRS CLUSTERS STEPS OUT
"""

import sys
import time
from pathlib import Path

import torch

from prcut import Assigner
from prcut.pipeline.outofcore.pair_shards import open_pair_shards
from prcut.runtime.distributed import join_processes, leave_processes, this_process
from prcut.training.loop import train
from prcut.training.state import TrainConfig


def measure(pairs: str, n_clusters: int, n_steps: int, out: str) -> None:
    """Write the seconds of all steps but the first tenth."""
    shards = open_pair_shards(pairs)
    n_features = shards.folder.read_array("shard-00000.features.npy", 0, 1).shape[-1]
    assigner = Assigner(n_features, n_clusters, generator=torch.Generator().manual_seed(0))
    times = []
    config = TrainConfig(max_steps=n_steps, patience=None)
    train(shards, assigner, config, on_record=lambda _: times.append(time.perf_counter()))
    if this_process().rank == 0:
        skipped = len(times) // 10
        Path(out).write_text(str((times[-1] - times[skipped]) / (len(times) - 1 - skipped)))


if __name__ == "__main__":
    join_processes("cpu")
    measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    leave_processes()
