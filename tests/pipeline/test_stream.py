from dataclasses import replace

import numpy as np
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from prcut import build_graph
from prcut.pipeline.config import FitConfig
from prcut.pipeline.fit import fit_rows
from prcut.pipeline.stream import train_further
from prcut.training.assigner.predict import assign_labels


def test_a_stream_is_followed() -> None:
    rows, labels = make_blobs(4000, 4, centers=3, random_state=0)
    rows = rows.astype(np.float32)
    config = FitConfig.of("default", 3, solver="train", learning_rate=0.01)
    start = None
    for part in np.split(rows, 4):
        graph = build_graph(part, 20, max_components=3)
        before, steps = start, 0 if start is None else start.state.step
        start = train_further(part, graph, config, start)
        assert before is None or start.assigner is before.assigner
        assert start.state.step - steps == 10  # ten at least, since 1,000 rows give five batches
    assert start is not None
    assert adjusted_rand_score(labels, assign_labels(start.assigner, rows)) > 0.95


def test_steps_count_on_after_a_distillation() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    config = FitConfig.of("default", 2, solver="train")
    graph = build_graph(rows, 5)
    first = fit_rows(rows, replace(config, solver="search"), graph).start()
    again = train_further(rows, graph, config, first)
    assert again.state.step == first.state.step + 10
    assert len(again.state.history["cut"]) == 1  # nothing is left of the other records
    assert all(torch.isfinite(p).all() for p in again.assigner.parameters())
