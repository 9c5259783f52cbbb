"""Training: the paper's Algorithm 1, in one loop for one process or many.

The batches of a step do not depend on the number of processes, so a run started with
``torchrun`` follows the same curve, and a run that was killed goes on from its checkpoint with the
same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing

import torch
from torch import Tensor, distributed, nn

from prcut.batches import PairStream, pair_ends
from prcut.checkpoint import load_checkpoint, save_checkpoint
from prcut.errors import PRCutError
from prcut.objective import (
    balance_factor,
    cluster_imbalance,
    proximal_softmax,
    soft_ratio_cut,
    softmax,
)
from prcut.processes import this_place
from prcut.storage import Folder
from prcut.train_state import RECORD_EVERY, Record, TrainConfig, TrainState

__all__ = ["train"]

# fall of the objective below which a run has stalled: relative, about the noise of 200 batches,
# and in units of k − 1, the objective of knowing nothing, for data that is hardly cut at all
_STALL, _NEXT_TO_NOTHING = 1e-3, 1e-4


def train(
    pairs: PairStream,
    assigner: nn.Module,
    config: TrainConfig | None = None,
    *,
    state: TrainState | None = None,
    checkpoint: Folder | None = None,
    on_record: Callable[[Record], None] | None = None,
) -> TrainState:
    """Train an assigner in place.

    Under ``torchrun`` (any initialised torch.distributed) each process takes its part of every
    batch; assigner and running mass stay the same in all of them.

    Parameters
    ----------
    pairs : GatheredPairs, PairShards, or another PairStream
        With labels, the assigner is taught these instead; the records are the same.
    assigner : Assigner, LogitTable, or a module with ``n_clusters`` that returns logits
        Trained on the device it is on.
    config : TrainConfig, optional
    state : TrainState, optional
        Where an earlier call ended, to go on from there to ``config.max_steps``.
    checkpoint : Folder, optional
        Where the run is saved as it goes; what is there already is gone on from.
    on_record : callable, optional
        Called with every new :class:`Record`.

    Examples
    --------
    >>> from prcut import Assigner, SimilarityGraph
    >>> from prcut.batches import GatheredPairs
    >>> from prcut.pairs import EdgePairs
    >>> graph = SimilarityGraph.from_neighbors([[1], [0], [3], [2]])  # two pairs of rows
    >>> rows = torch.tensor([[0.0], [0.1], [1.0], [1.1]])
    >>> assigner = Assigner(1, 2, generator=torch.Generator().manual_seed(0))
    >>> state = train(GatheredPairs(EdgePairs(graph), rows), assigner, TrainConfig(batch_size=64))
    >>> first, second = assigner(rows).argmax(1)[[0, 2]].tolist()
    >>> assigner(rows).argmax(1).tolist() == [first, first, second, second] and first != second
    True
    """
    config = config or TrainConfig()
    state = state or TrainState.start(assigner, config)
    if checkpoint is not None:
        load_checkpoint(checkpoint, assigner, state, config)
    rank, world_size = this_place()
    device = next(assigner.parameters()).device
    parallel = nn.parallel.DistributedDataParallel(assigner) if world_size > 1 else assigner
    factor = balance_factor(config.balance_weight, state.n_clusters)
    to_probs = proximal_softmax if config.descent == "proximal" else softmax
    low_precision = config.precision == "bfloat16"
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    stream = pairs.stream(
        config.batch_size,
        seed=config.seed,
        start_step=state.step,
        n_streams=config.n_streams,
        rank=rank,
        world_size=world_size,
    )
    recorded = state.step
    with closing(stream):
        while state.step < config.max_steps and not _has_stalled(state.records, config.patience):
            batch = next(stream)  # Alg. 1, lines 3–5
            features, weight, node_weight = (
                part.to(device) for part in (batch.features, batch.weight, batch.node_weight)
            )
            with torch.autocast(device.type, torch.bfloat16, enabled=low_precision):
                logits = parallel(features)
            probs = to_probs(logits.float())  # line 6
            mass = state.cluster_mass(probs, node_weight)  # line 7
            cut = soft_ratio_cut(weight, *pair_ends(probs, batch), mass)
            imbalance = cluster_imbalance(mass)
            loss = cut + factor * imbalance
            if batch.labels is not None:  # a partition is known already: learn to tell it
                loss = nn.functional.cross_entropy(logits.float(), batch.labels.to(device))
            state.optimizer.zero_grad()
            loss.backward()  # lines 8–10 (errata 3)
            for group in state.optimizer.param_groups:
                group["lr"] = config.learning_rate_at(state.step)
            state.optimizer.step()  # line 11
            state.step += 1

            sums += torch.stack([cut.detach(), imbalance.detach()])
            if state.step % RECORD_EVERY == 0:
                sums /= state.step - recorded  # ten, or fewer where an earlier call ended
                record = _record(state.step, sums, factor, probs.detach(), node_weight)
                state.add(record)
                recorded = state.step
                sums.zero_()
                if on_record is not None:
                    on_record(record)
            if checkpoint is not None and rank == 0 and state.step % config.checkpoint_every == 0:
                save_checkpoint(checkpoint, assigner, state, config)
    if checkpoint is not None and rank == 0:
        save_checkpoint(checkpoint, assigner, state, config)
    return state


def _record(step: int, means: Tensor, factor: float, probs: Tensor, node_weight: Tensor) -> Record:
    """Mean over the steps since the last record; confidence and sizes of the last batch."""
    confidence, labels = probs.max(1)
    sizes = means.new_zeros(probs.shape[1]).index_add_(0, labels, node_weight.double())
    figures = torch.cat([means, confidence.double().mean()[None], sizes])
    world_size = this_place().world_size
    if world_size > 1:
        distributed.all_reduce(figures)
        figures[:3] /= world_size
    cut, imbalance, certainty, *_ = figures.tolist()
    if not math.isfinite(cut + imbalance):
        raise PRCutError(
            f"training diverged before step {step}: the objective is not finite; "
            "lower learning_rate or raise balance_weight."
        )
    # a copy: the array of a tensor would keep a kilobyte alive
    shares = (figures[3:] / figures[3:].sum()).float().cpu().numpy().copy()
    return Record(step, cut + factor * imbalance, cut, imbalance, certainty, shares)


def _has_stalled(records: list[Record], patience: int | None) -> bool:
    """Whether the mean objective of the last ``patience`` steps is not below that before."""
    window = -(-(patience or 0) // RECORD_EVERY)
    if patience is None or len(records) < 2 * window:
        return False
    objective = [record.objective for record in records[-2 * window :]]
    before, last = sum(objective[:window]) / window, sum(objective[window:]) / window
    nothing = len(records[-1].cluster_sizes) - 1
    has_begun = last <= 0.95 * nothing  # a run that still knows nothing may be about to learn
    return has_begun and before - last < max(_STALL * before, _NEXT_TO_NOTHING * nothing)
