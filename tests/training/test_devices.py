"""Training, distillation, prediction and losses on devices that are not here: see devices.py.

Numbers are compared with those of the CPU bit by bit; a tensor left on the wrong device raises.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from devices import stand_in
from prcut import (
    Assigner,
    RatioCutLoss,
    SimilarityGraph,
    cluster_imbalance,
    soft_ratio_cut,
)
from prcut.runtime.folder import Folder
from prcut.training.assigner.predict import (
    assign_labels,
    assign_probs,
    hidden_rows,
    rank_clusters,
    represent_rows,
)
from prcut.training.batches import BatchStream, GatheredPairs, LabelledRows
from prcut.training.loop import train
from prcut.training.pairs import UniformPairs, WalkPairs
from prcut.training.settings import TrainConfig
from prcut.training.state import TrainState

devices = pytest.mark.parametrize("device", ["cuda", "mps"])
LABELS = torch.arange(3).repeat_interleave(30)
ROWS = 4 * torch.eye(3, 5)[LABELS] + torch.randn(90, 5, generator=torch.Generator().manual_seed(0))
GRAPH = SimilarityGraph.from_labels(LABELS)
QUICK = TrainConfig(max_steps=20, batch_size=64, learning_rate=0.03, patience=None)

BATCHES: dict[str, Callable[[], BatchStream]] = {
    "walks": lambda: GatheredPairs(WalkPairs(GRAPH, n_steps=2), ROWS),
    "uniform pairs": lambda: GatheredPairs(UniformPairs(GRAPH), ROWS),
    "sparse rows": lambda: GatheredPairs(WalkPairs(GRAPH), csr_array(ROWS.numpy())),
    "distillation": lambda: LabelledRows(ROWS, LABELS),
}


def new_assigner(
    hidden: tuple[int, ...] = (8,), bottleneck: int | None = None, n_heads: int = 1
) -> Assigner:
    generator = torch.Generator().manual_seed(1)
    assigner = Assigner(5, 3, hidden, bottleneck, n_heads=n_heads, generator=generator)
    assigner.standardize(ROWS.mean(0), 2.0)
    return assigner


def trained(device: str, make: Callable[[], BatchStream], config: TrainConfig) -> TrainState:
    return train(make(), new_assigner(n_heads=config.n_heads).to(device), config)


@devices
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "rmsprop"},
        {"n_heads": 4, "first_balance": 4.0},
    ],
    ids=["adam", "rmsprop", "heads"],
)
def test_training_gives_the_numbers_of_the_cpu(
    device: str, make: Callable[[], BatchStream], options: dict[str, Any]
) -> None:
    if "n_heads" in options and make is BATCHES["distillation"]:
        pytest.skip("only cuts have heads")
    # RMSProp divides the rounding of more pairs by gradients that may be small
    config = replace(QUICK, batch_size=32, **options)
    expected = trained("cpu", make, config)
    with stand_in(device):
        found = trained(device, make, config)
        for one, two in zip(found.optimizer.parameters, expected.optimizer.parameters, strict=True):
            assert one.device.type == device
            # many pairs are a sparse product on the CPU, which adds in another order
            rounding = 2e-5 if make is BATCHES["uniform pairs"] else 0
            torch.testing.assert_close(one.detach().cpu(), two.detach(), rtol=0, atol=rounding)


@devices
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_a_step_does_not_wait_for_the_device(device: str, make: Callable[[], BatchStream]) -> None:
    """Nineteen steps have one record, as ten have: the other nine wait for nothing."""
    waits = []
    for n_steps in (10, 19):
        with stand_in(device) as standin:
            trained(device, make, replace(QUICK, max_steps=n_steps))
        waits.append(standin.waits)
    assert waits[0] == waits[1]
    assert sum(waits[0].values()) == 1  # all figures of a record


@devices
def test_a_checkpoint_is_resumed_on_the_device(device: str, tmp_path: Path) -> None:
    folder, make = Folder(tmp_path), BATCHES["walks"]
    train(make(), new_assigner(), QUICK, checkpoint=folder)
    with stand_in(device):
        assigner = new_assigner().to(device)
        state = train(make(), assigner, QUICK, checkpoint=folder)
        assert state.step == 20
        for slot in state.optimizer.state.values():
            assert {value.device.type for value in slot.values()} == {device}
        train(make(), assigner, replace(QUICK, max_steps=30), state=state)
    assert state.step == 30


def predictions(assigner: Assigner, rows: Any) -> list[np.ndarray]:
    functions = [assign_labels, assign_probs, represent_rows, hidden_rows]
    return [*(function(assigner, rows) for function in functions), *rank_clusters(assigner, rows)]


@devices
@pytest.mark.parametrize("rows", [ROWS, csr_array(ROWS.numpy())], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", ["linear", "hidden", "bottleneck"])
def test_prediction_gives_the_numbers_of_the_cpu(device: str, rows: Any, kind: str) -> None:
    shape: Any = {"linear": ((),), "hidden": ((8,),), "bottleneck": ((8,), 2)}[kind]
    assigner = new_assigner(*shape)
    expected = predictions(assigner, rows)
    with stand_in(device):
        assigner = assigner.to(device)
        found = predictions(assigner, rows)
        assert assigner.is_finite
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)


def losses(device: str) -> list[Tensor]:
    """Return the losses and their gradients on a device."""
    logits = ROWS[:, :3].to(device).requires_grad_()
    pairs = torch.tensor([[0, 1, 2], [3, 40, 80]], device=device)
    loss, probs = RatioCutLoss(3).to(device), logits.softmax(1)
    weights = None, torch.ones(90, device=device)
    values = [loss(probs, pairs, node_weight=node_weight) for node_weight in weights]
    ends = probs.index_select(0, pairs[0]), probs.index_select(0, pairs[1])
    values.append(soft_ratio_cut(torch.ones(3, device=device), *ends, probs.mean(0)))
    values.append(cluster_imbalance(probs.mean(0)))
    gradients = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in values]
    return [*values, *gradients]


@devices
def test_losses_and_gradients_are_those_of_the_cpu(device: str) -> None:
    expected = losses("cpu")
    with stand_in(device) as standin:
        found = losses(device)
        assert all(one.device.type == device for one in found)
        assert not standin.waits
        for one, two in zip(found, expected, strict=True):
            assert torch.equal(one.detach().cpu(), two.detach())


# -- the stand-in itself ---------------------------------------------------------------------------


@devices
def test_the_stand_in_refuses_what_a_gpu_refuses(device: str) -> None:
    cpu = torch.ones(3)
    with stand_in(device) as standin:
        there = cpu.to(device)
        for mix in (lambda: there + cpu, lambda: torch.stack([there, cpu])):
            with pytest.raises(RuntimeError, match="mixes tensors"):
                mix()
        with pytest.raises(TypeError, match="without a copy"):
            there.numpy()
        assert not standin.waits
        assert (there + torch.tensor(1.0)).device.type == device
        assert there.cpu().device.type == "cpu"
        assert there.sum().item() == 3
        assert there[there > 0].tolist() == [1, 1, 1]
        assert bool(there.any())
    assert standin.waits == {"cpu": 1, "_local_scalar_dense": 2, "index": 1, "tolist": 1}
