"""Training: the paper's Algorithm 1, in one loop.

A run that was killed resumes from its checkpoint with the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from itertools import islice

import torch
from torch import Tensor, nn

from prcut.errors import PRCutError
from prcut.numerics.objective import (
    balance_factor,
    cluster_imbalance,
    divide_by_mass,
    softmax,
)
from prcut.runtime.device import widest_float
from prcut.runtime.folder import Folder
from prcut.training.assigner.network import Assigner
from prcut.training.batches import Batch, BatchStream, FeatureBatch, LabelledBatch, pair_sums
from prcut.training.checkpoint import load_checkpoint, save_checkpoint
from prcut.training.settings import RECORD_EVERY, TrainConfig
from prcut.training.state import Record, TrainState

# a run has stalled below this relative fall of the objective: about the noise of 200 batches
_STALLED_OBJECTIVE = 1e-3
# the same for the cross-entropy, which keeps falling while only the confidence rises
_STALLED_CROSS_ENTROPY = 0.05
# the same relative to the loss of random labels, for data that is hardly cut at all
_STALLED_OF_NOTHING = 1e-4
# held-out batches on which heads are compared
_N_HELD = 16
# bytes of a block, just below the 32 MiB from which glibc always returns memory to the system
_LARGEST_KEPT = 33_500_000


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

    Training uses one process; for several, use :class:`prcut.RatioCutLoss` in your own loop.

    Parameters
    ----------
    batches : GatheredPairs, LabelledRows, or another BatchStream
        Labelled rows are distilled: each step descends their cross-entropy instead of a cut.
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
    >>> from prcut.training.pairs import WalkPairs
    >>> graph = SimilarityGraph.from_neighbors([[1], [0], [3], [2]])  # two pairs of rows
    >>> rows = torch.tensor([[0.0], [0.1], [1.0], [1.1]])
    >>> assigner = Assigner(1, 2, generator=torch.Generator().manual_seed(0))
    >>> pairs = GatheredPairs(WalkPairs(graph, n_steps=1), rows)
    >>> state = train(pairs, assigner, TrainConfig(batch_size=64))
    >>> first, second = assigner(rows).argmax(1)[[0, 2]].tolist()
    >>> assigner(rows).argmax(1).tolist() == [first, first, second, second] and first != second
    True
    """
    config = config or TrainConfig()
    state = state or TrainState.start(assigner, config)
    if checkpoint is not None:
        load_checkpoint(checkpoint, assigner, state, config)
    device = next(assigner.parameters()).device
    low_precision = config.precision == "bfloat16"
    measured: list[Tensor] = []
    # after such a block is freed, glibc keeps up to 64 MiB of freed memory for the next step; new
    # pages from the system take a tenth of a step with a thousand clusters
    torch.empty(_LARGEST_KEPT, dtype=torch.uint8)
    drawn = batches.stream(config.batch_size, seed=config.seed, start_step=state.step)
    with closing(drawn) as stream:
        while state.step < config.max_steps and not _has_stalled(state, config.patience):
            if config.n_heads_at(state.step) < len(state.heads):
                drop_heads(batches, assigner, config, state, config.n_heads_at(state.step))
            factor = balance_factor(config.balance_weight_at(state.step), state.n_clusters)
            batch = _on_device(next(stream), device)  # Alg. 1, lines 3–5
            with torch.autocast(device.type, torch.bfloat16, enabled=low_precision):
                logits = assigner(batch.features)
            logits = logits.float()
            if isinstance(batch, LabelledBatch):
                votes = batch.labels.reshape(len(logits), -1)
                loss = -logits.log_softmax(1).gather(1, votes).mean()
                terms = loss[None]
            else:
                probs = softmax(logits)  # line 6
                cuts, sums = pair_sums(probs, batch)
                mass = state.cluster_mass.average(sums, batch.node_weight.sum())  # line 7
                cut, imbalance = divide_by_mass(cuts, mass), cluster_imbalance(mass)
                loss = (cut + factor * imbalance).sum()  # over the heads
                terms = torch.stack([cut, imbalance])
            measured.append(terms.detach().to(widest_float(device)))
            loss.backward()  # lines 8–10 (errata 3)
            state.optimizer.step(config.learning_rate_at(state.step))  # line 11
            state.step += 1

            if state.step % RECORD_EVERY == 0:
                # ten, or fewer where an earlier call ended
                means = torch.stack(measured).mean(0)
                last = softmax(logits) if isinstance(batch, LabelledBatch) else probs
                record = _record(state, means, factor, last, batch)
                state.add(record)
                measured.clear()
                if on_record is not None:
                    on_record(record)
            if checkpoint is not None and state.step % config.checkpoint_every == 0:
                save_checkpoint(checkpoint, assigner, state, config)
    if len(state.heads) > 1:  # stopped early
        drop_heads(batches, assigner, config, state, 1)
    if checkpoint is not None:
        save_checkpoint(checkpoint, assigner, state, config)
    return state


def drop_heads(
    batches: BatchStream, assigner: nn.Module, config: TrainConfig, state: TrainState, n_left: int
) -> None:
    """Keep the heads with the lowest objective on held-out batches."""
    objectives = held_objectives(batches, assigner, config)
    best = objectives.argsort(stable=True)[:n_left].sort().values
    state.keep_heads(assigner, state.heads[best])


@torch.no_grad()
def held_objectives(batches: BatchStream, assigner: nn.Module, config: TrainConfig) -> Tensor:
    """Estimate J of every head's hard labels, at the balance that training ends with."""
    assert isinstance(assigner, Assigner)  # noqa: S101  # no other module has heads
    device = next(assigner.parameters()).device
    dtype, shape = widest_float(device), (assigner.n_clusters, assigner.n_heads)
    cuts, masses = torch.zeros(2, *shape, dtype=dtype, device=device)
    held = batches.stream(config.batch_size, seed=config.seed, start_step=config.max_steps)
    with closing(held) as stream:
        for batch in islice(stream, _N_HELD):
            assert isinstance(batch, FeatureBatch)  # noqa: S101  # labels have one head
            labels = assigner(batch.features.to(device)).view(-1, *shape).argmax(1)
            source, target = (labels[end.to(device)] for end in (batch.source, batch.target))
            cut = batch.weight.to(device, dtype)[:, None] * (source != target)
            cuts.scatter_add_(0, source, cut).scatter_add_(0, target, cut)
            weight = batch.node_weight.to(device, dtype)[:, None]
            masses.scatter_add_(0, labels, weight.expand_as(labels))
    masses /= masses.sum(0)
    cuts /= _N_HELD
    # an empty cluster has no cut to divide by its mass
    cut = 0.5 * torch.where(masses > 0, cuts / masses, 0.0).sum(0)
    factor = balance_factor(config.balance_weight, assigner.n_clusters)
    return (cut + factor * cluster_imbalance(masses)).cpu()


def _on_device(batch: Batch, device: torch.device) -> Batch:
    """Move a batch, except the positions of the pairs: :func:`pair_sums` reads them on the CPU."""
    moved = (name for name in batch._fields if name not in ("source", "target"))
    return batch._replace(**{name: getattr(batch, name).to(device) for name in moved})


def _record(state: TrainState, means: Tensor, factor: float, probs: Tensor, batch: Batch) -> Record:
    """Return the record of the last steps.

    ``means`` are the cut and the imbalance of every head, or the cross-entropy of a distillation;
    confidence and sizes come from the last batch.
    """
    n_heads, n_means = len(state.heads), len(means) + 1
    confidence, labels = probs.detach().view(len(probs), -1, n_heads).max(1)
    ones = torch.ones_like(probs[:, 0])
    weight = ones if isinstance(batch, LabelledBatch) else batch.node_weight
    weight = weight.to(means.dtype)[:, None].expand_as(labels)
    sizes = means.new_zeros(state.n_clusters, n_heads).scatter_add_(0, labels, weight)
    certainty = confidence.to(means.dtype).mean(0)[None]
    figures = torch.cat([means.view(-1, n_heads), certainty, sizes]).cpu()
    distils = isinstance(batch, LabelledBatch)
    objectives = figures[0] if distils else figures[0] + factor * figures[1]
    if not objectives.isfinite().all():
        raise PRCutError(
            f"training diverged before step {state.step}: the objective is not finite; "
            "lower learning_rate or raise balance_weight."
        )
    lowest = int(objectives.argmin())
    *terms, certainty = figures[:n_means, lowest].tolist()
    # a copy: the array of a tensor would keep a kilobyte alive
    fractions = figures[n_means:, lowest] / figures[n_means:, lowest].sum()
    cut, imbalance = (None, None) if distils else terms
    objective, shown = objectives[lowest].item(), fractions.float().numpy().copy()
    by_head = state.join_heads(objectives.numpy())
    return Record(state.step, objective, cut, imbalance, certainty, shown, by_head)


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
    has_begun = last <= 0.95 * nothing  # a run near random labels may be about to learn
    return has_begun and before - last < max(fall * before, _STALLED_OF_NOTHING * nothing)
