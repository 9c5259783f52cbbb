from dataclasses import replace

import numpy as np
import torch

from prcut import build_graph
from prcut.fit.config import FitConfig
from prcut.fit.fit import fit_rows
from prcut.fit.partial import train_further


def test_steps_count_on_after_a_distillation() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    config = FitConfig.of("default", 2, solver="train", n_heads=1, max_steps=50)
    graph = build_graph(rows, 5)
    first = fit_rows(rows, replace(config, solver="search"), graph).start()
    again = train_further(rows, graph, config, first)
    assert again.state.step == first.state.step + 10
    assert len(again.state.history["cut"]) == 1  # nothing is left of the other records
    assert all(torch.isfinite(p).all() for p in again.assigner.parameters())
