"""Follow a stream: train an assigner further with every part of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from prcut.fit.config import FitConfig
from prcut.fit.starts import Start, Trainer
from prcut.graph.rows import divide_columns
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.training.batches import GatheredPairs
from prcut.training.loop import train
from prcut.training.pairs import WalkPairs
from prcut.training.state import TrainState

# pairs drawn per row of a call, and the fewest steps of a call
_PAIRS_PER_ROW, _MIN_STEPS = 10, 10


def train_further(
    rows: Any,
    graph: SimilarityGraph,
    config: FitConfig,
    before: Start | None = None,
    device: torch.device | str = "cpu",
    scales: np.ndarray | None = None,
) -> Start:
    """Train an assigner in place, or a new one, on the graph of some more rows.

    ``before`` is where training stopped. A distillation, whose records are of another kind, leaves
    nothing but its assigner and the number of its steps. ``scales`` are the units that a new
    assigner reads columns in.
    """
    if before is None:
        # linear: a call makes too few steps for more. Heads compete during the first
        config = replace(config, n_components=None)
        trainer = Trainer.of(divide_columns(rows, scales), config, device)
        assigner = trainer.new_assigner(config.seed, config.train.n_heads)
        assigner.divide_columns(scales)
        state = TrainState.start(assigner, config.train)
    else:
        assigner, state, _ = before
        if state.distils:
            state = TrainState.start(assigner, config.train, state.step)
    more = max(_MIN_STEPS, _PAIRS_PER_ROW * rows.shape[0] // config.train.batch_size)
    further = replace(
        config.train,
        balance_weight=config.training_balance,
        max_steps=state.step + more,
        schedule="constant",
        patience=None,
        first_balance=config.train.first_balance if before is None else 0.0,
    )
    pairs = GatheredPairs(WalkPairs(graph, n_steps=config.walk_length), rows)
    return Start(assigner, train(pairs, assigner, further, state=state))
