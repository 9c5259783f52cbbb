"""Training: the paper's Algorithm 1, in one loop for one process or many.

The batches of a step do not depend on the number of processes, so a run started with ``torchrun``
follows the same curve, and a run that was killed resumes from its checkpoint with the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing

import torch
from torch import Tensor, distributed, nn

from prcut.errors import PRCutError
from prcut.numerics.objective import (
    balance_factor,
    cluster_imbalance,
    soft_ratio_cut,
)
from prcut.numerics.proximal import proximal_softmax, softmax
from prcut.runtime.distributed import this_process, widest_float
from prcut.runtime.folder import Folder
from prcut.training.batches import Batch, BatchStream, LabelledBatch, pair_ends
from prcut.training.checkpoint import load_checkpoint, save_checkpoint
from prcut.training.state import RECORD_EVERY, Record, TrainConfig, TrainState

# relative fall below which a run has stalled: of the objective, about the noise of 200 batches; of
# the cross-entropy, which keeps falling while rows only become surer of the cluster they are in
_STALLED_OBJECTIVE, _STALLED_CROSS_ENTROPY = 1e-3, 0.05
# the same in units of what knowing nothing costs, for data that is hardly cut at all
_STALLED_OF_NOTHING = 1e-4


def train(
    batches: BatchStream,
    assigner: nn.Module,
    config: TrainConfig | None = None,
    *,
    state: TrainState | None = None,
    checkpoint: Folder | None = None,
    on_record: Callable[[Record], None] | None = None,
) -> TrainState:
    """Train an assigner in place: descend the ratio cut of pairs, or distil their labels.

    Under ``torchrun`` (any initialised torch.distributed) each process takes its part of every
    batch; assigner and running mass stay the same in all of them.

    Parameters
    ----------
    batches : GatheredPairs, PairShards, LabelledRows, or another BatchStream
        The labels of labelled rows are distilled: each step descends their cross-entropy instead
        of a cut.
    assigner : Assigner, or a module with ``n_clusters`` that returns logits
        Trained on the device it is on.
    config : TrainConfig, optional
    state : TrainState, optional
        The state that an earlier call returned, to be resumed up to ``config.max_steps``.
    checkpoint : Folder, optional
        Where checkpoints are saved during the run; an existing one is resumed.
    on_record : callable, optional
        Called with every new :class:`Record`.

    Examples
    --------
    >>> from prcut import Assigner, SimilarityGraph
    >>> from prcut.training.batches import GatheredPairs
    >>> from prcut.training.pairs import EdgePairs
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
    rank, world_size = this_process()
    device = next(assigner.parameters()).device
    parallel = nn.parallel.DistributedDataParallel(assigner) if world_size > 1 else assigner
    factor = balance_factor(config.balance_weight, state.n_clusters)
    to_probs = proximal_softmax if config.descent == "proximal" else softmax
    low_precision = config.precision == "bfloat16"
    measured: list[Tensor] = []
    stream = batches.stream(
        config.batch_size,
        seed=config.seed,
        start_step=state.step,
        n_streams=config.n_streams,
        rank=rank,
        world_size=world_size,
    )
    with closing(stream):
        while state.step < config.max_steps and not _has_stalled(state, config.patience):
            batch = _on_device(next(stream), device)  # Alg. 1, lines 3–5
            with torch.autocast(device.type, torch.bfloat16, enabled=low_precision):
                logits = parallel(batch.features)
            logits = logits.float()
            if isinstance(batch, LabelledBatch):
                loss = nn.functional.cross_entropy(logits, batch.labels)
                terms = loss[None]
            else:
                probs = to_probs(logits)  # line 6
                mass = state.cluster_mass(probs, batch.node_weight)  # line 7
                cut = soft_ratio_cut(batch.weight, *pair_ends(probs, batch), mass)
                imbalance = cluster_imbalance(mass)
                loss = cut + factor * imbalance
                terms = torch.stack([cut, imbalance])
            measured.append(terms.detach().to(widest_float(device)))
            loss.backward()  # lines 8–10 (errata 3)
            state.optimizer.step(config.learning_rate_at(state.step))  # line 11
            state.step += 1

            if state.step % RECORD_EVERY == 0:
                # ten, or fewer where an earlier call ended
                means = torch.stack(measured).mean(0)
                record = _record(state.step, means, factor, logits.detach(), batch)
                state.add(record)
                measured.clear()
                if on_record is not None:
                    on_record(record)
            if checkpoint is not None and rank == 0 and state.step % config.checkpoint_every == 0:
                save_checkpoint(checkpoint, assigner, state, config)
    if checkpoint is not None and rank == 0:
        save_checkpoint(checkpoint, assigner, state, config)
    return state


def _on_device(batch: Batch, device: torch.device) -> Batch:
    """Move all but the positions of the pairs, which :func:`pair_ends` compares on the CPU."""
    moved = (name for name in batch._fields if name not in ("source", "target"))
    return batch._replace(**{name: getattr(batch, name).to(device) for name in moved})


def _record(step: int, means: Tensor, factor: float, logits: Tensor, batch: Batch) -> Record:
    """Return the record of the last steps.

    ``means`` are cut and imbalance or, while distilling, the cross-entropy; confidence and sizes
    are those of the last batch.
    """
    confidence, labels = softmax(logits).max(1)
    weight = torch.ones_like(confidence) if isinstance(batch, LabelledBatch) else batch.node_weight
    sizes = means.new_zeros(logits.shape[1]).index_add_(0, labels, weight.to(means.dtype))
    n_means = len(means) + 1
    figures = torch.cat([means, confidence.to(means.dtype).mean()[None], sizes])
    world_size = this_process().world_size
    if world_size > 1:
        distributed.all_reduce(figures)
        figures[:n_means] /= world_size
    *terms, certainty = figures[:n_means].tolist()
    if not math.isfinite(sum(terms)):
        raise PRCutError(
            f"training diverged before step {step}: the objective is not finite; "
            "lower learning_rate or raise balance_weight."
        )
    # a copy: the array of a tensor would keep a kilobyte alive
    fractions = (figures[n_means:] / figures[n_means:].sum()).float().cpu().numpy().copy()
    if isinstance(batch, LabelledBatch):
        return Record(step, terms[0], None, None, certainty, fractions)
    cut, imbalance = terms
    return Record(step, cut + factor * imbalance, cut, imbalance, certainty, fractions)


def _has_stalled(state: TrainState, patience: int | None) -> bool:
    """Return whether the loss of the last ``patience`` steps is hardly below that before them."""
    window = -(-(patience or 0) // RECORD_EVERY)
    if patience is None or len(state.records) < 2 * window:
        return False
    losses = [record.objective for record in state.records[-2 * window :]]
    nothing, fall = state.n_clusters - 1.0, _STALLED_OBJECTIVE
    if state.distils:
        nothing, fall = math.log(state.n_clusters), _STALLED_CROSS_ENTROPY
    before, last = sum(losses[:window]) / window, sum(losses[window:]) / window
    has_begun = last <= 0.95 * nothing  # a run that still knows nothing may be about to learn
    return has_begun and before - last < max(fall * before, _STALLED_OF_NOTHING * nothing)
