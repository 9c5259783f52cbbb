"""Fit an assigner to pairs on disk; memory holds one block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import torch

from prcut.errors import InvalidInputError
from prcut.pipeline.config import FitConfig
from prcut.pipeline.fit import Fit
from prcut.pipeline.outofcore.blocks import Block, Blocks
from prcut.pipeline.outofcore.pair_shards import PairShards
from prcut.pipeline.score import LabelledGraph, Score, score_blocks
from prcut.pipeline.starts import LazyStart, OnRecord, Trainer
from prcut.runtime.distributed import this_process
from prcut.runtime.folder import Folder
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels
from prcut.training.batches import BatchStream
from prcut.training.projection import ProjectedBatches

# rows that origin and scale of the features are measured on
_MEASURED_ROWS = 4096


def fit_shards(
    shards: PairShards,
    blocks: Blocks,
    config: FitConfig,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Folder | None = None,
    on_record: OnRecord | None = None,
) -> Fit:
    """Train an assigner on pairs on disk; the objective is summed over the blocks.

    Parameters are those of :func:`prcut.pipeline.fit.fit_rows`.
    """
    config = replace(config, solver="train")
    similarity = config.similarity
    if callable(similarity):
        raise InvalidInputError("similarity must be a name where rows are on disk, not a callable.")
    balance_weight = config.training_balance

    def labelled(assigner: Assigner) -> Iterator[LabelledGraph]:
        rank, world_size = this_process()
        for number in range(rank, len(blocks), world_size):
            block = blocks[number]
            labels = torch.from_numpy(label_edges(assigner, block))
            yield LabelledGraph(block.graph(similarity), labels, block.n_core)

    def score(assigner: Assigner) -> Score:
        cost = config.n_clusters, balance_weight, config.layer_sizes
        return score_blocks(labelled(assigner), *cost, is_shared=True)

    with closing(shards.stream(_MEASURED_ROWS, seed=config.seed)) as stream:
        sample = next(stream).features
    trainer = Trainer.of(sample, config, device, checkpoint, on_record)
    descent = replace(config.train, balance_weight=balance_weight)
    batches: BatchStream = shards
    if trainer.projection is not None:
        batches = ProjectedBatches(shards, trainer.projection)
    kept = trainer.train_starts(batches, descent, score)
    assert kept.score is not None  # noqa: S101
    return Fit(LazyStart.of(kept), None, *kept.score, balance_weight, "train")


def label_edges(assigner: Assigner, block: Block) -> np.ndarray:
    """Label the core rows and all rows that an edge leads to; most of a halo is neither."""
    is_seen = np.arange(len(block.features)) < block.n_core
    is_seen[block.neighbors[block.neighbors >= 0]] = True
    labels = np.zeros(len(is_seen), np.int64)
    labels[is_seen] = assign_labels(assigner, block.features[is_seen])
    return labels
