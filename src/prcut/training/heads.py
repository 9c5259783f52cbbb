"""Choose between heads by the objective of their hard labels on pairs that are held back."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

import torch
from torch import Tensor, nn

from prcut.numerics.objective import balance_factor, cluster_imbalance
from prcut.runtime.device import widest_float
from prcut.training.assigner.network import Assigner
from prcut.training.batches import BatchStream, FeatureBatch, open_stream
from prcut.training.state import TrainConfig, TrainState

# batches that are held back
_N_HELD = 16


def drop_heads(
    batches: BatchStream, assigner: nn.Module, config: TrainConfig, state: TrainState, n_left: int
) -> None:
    """Keep the heads with the lowest objective on batches that no step of training draws."""
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
    with closing(open_stream(batches, config, config.max_steps)) as stream:
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
