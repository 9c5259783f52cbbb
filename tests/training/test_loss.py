import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, multiprocessing

import reference
from prcut import Assigner, RatioCutLoss, cluster_imbalance, soft_ratio_cut
from prcut.numerics.objective import balance_factor
from prcut.training import RunningClusterMass

# -- the running mass ------------------------------------------------------------------------


def test_value_is_the_running_average() -> None:
    mass = RunningClusterMass(3, update_rate=0.25).double()
    expected = torch.full((3,), 1 / 3, dtype=torch.float64)
    for seed in range(4):
        probs = reference.random_probs(10, 3, seed)
        expected = 0.75 * expected + 0.25 * probs.mean(0)
        torch.testing.assert_close(mass(probs), expected)
    torch.testing.assert_close(mass.state_dict()["running"], expected)


def test_gradient_is_the_batch_means() -> None:
    mass = RunningClusterMass(3, update_rate=0.25).double()
    probs = reference.random_probs(10, 3).requires_grad_()
    direction = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(mass(probs) @ direction, probs)
    torch.testing.assert_close(gradient, (direction / 10).expand(10, 3))


def test_node_weights_make_a_weighted_mean() -> None:
    mass = RunningClusterMass(3, update_rate=1.0).double()
    probs = reference.random_probs(4, 3)
    weight = torch.tensor([1.0, 2.0, 0.0, 5.0])  # float32 as samplers give it
    torch.testing.assert_close(mass(probs, weight), (weight.double() @ probs) / 8)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_wrong_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"update_rate=.* must be in \(0, 1\]"):
        RunningClusterMass(3, rate)


def two_batches() -> tuple[Tensor, Tensor, Tensor]:
    """Source and target features and weights of 2 × 12 pairs, two steps."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 2, 24, 6, generator=generator, dtype=torch.float64)
    weight = torch.rand(2, 24, generator=generator, dtype=torch.float64)
    return features[:, 0], features[:, 1], weight


def train_two_steps(pairs: slice) -> list[Tensor]:
    """Loss of each step, last gradients (averaged over ranks as DDP does), and running mass."""
    source, target, weight = (part[:, pairs] for part in two_batches())
    assigner = Assigner(6, 4, (8,), generator=torch.Generator().manual_seed(1)).double()
    mass = RunningClusterMass(4, update_rate=0.3).double()
    world = distributed.get_world_size() if distributed.is_initialized() else 1
    found: list[Tensor] = []
    for step in range(2):
        source_probs, target_probs = assigner.probs(source[step]), assigner.probs(target[step])
        node_weight = torch.cat([weight[step], weight[step] ** 2])  # unequal sums on the two ranks
        cluster_mass = mass(torch.cat([source_probs, target_probs]), node_weight)
        loss = soft_ratio_cut(
            weight[step] / len(weight[step]), source_probs, target_probs, cluster_mass
        ) + cluster_imbalance(cluster_mass)
        assigner.zero_grad()
        loss.backward()
        total = loss.detach().clone()
        gradients = [p.grad for p in assigner.parameters() if p.grad is not None]
        if world > 1:
            for tensor in [total, *gradients]:
                distributed.all_reduce(tensor)
                tensor.div_(world)
        found.append(total)
    return [*found, *gradients, mass.running]


def one_rank(rank: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    torch.save(train_two_steps(slice(rank * 12, rank * 12 + 12)), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.costly("two real processes, the promise of RatioCutLoss: 10 CPU-seconds")
def test_two_processes_equal_one_on_the_joined_batch(tmp_path: Path) -> None:
    """Value and gradient of the pair surrogate, with running mass and balance, to 1e-10."""
    multiprocessing.spawn(one_rank, args=(str(tmp_path),), nprocs=2)
    joined = train_two_steps(slice(0, 24))
    for rank in range(2):
        for ours, whole in zip(torch.load(tmp_path / f"{rank}.pt"), joined, strict=True):
            torch.testing.assert_close(ours, whole, atol=1e-10, rtol=1e-10)


# -- the whole loss --------------------------------------------------------------------------

PAIRS = torch.tensor([[0, 1, 2, 0], [3, 4, 5, 5]])


def test_it_is_the_functions_put_together() -> None:
    probs = reference.random_probs(6, 3).requires_grad_()
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    node_weight = torch.rand(6, dtype=torch.float64)
    loss = RatioCutLoss(3, balance_weight=0.5, mass_update_rate=1.0).double()
    value = loss(probs, PAIRS, weight, node_weight)
    mass = node_weight @ probs / node_weight.sum()
    expected = soft_ratio_cut(weight / 10, probs[PAIRS[0]], probs[PAIRS[1]], mass)
    expected = expected + balance_factor(0.5, 3) * cluster_imbalance(mass)
    torch.testing.assert_close(value, expected)
    for ours, theirs in zip(
        torch.autograd.grad(value, probs), torch.autograd.grad(expected, probs), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.weekly("trains the example of the documents: 25 CPU-seconds")
def test_the_example_of_pseudo_labels_learns(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples/pseudo_labels.py"
    run = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    before, after = [float(word) for word in run.stdout.split() if word.startswith("0.")][-2:]
    assert after > before + 0.02


def test_heads_add_up_their_losses_and_balance_may_change() -> None:
    probs = torch.rand(6, 3, 2).softmax(1)
    pairs = torch.tensor([[0, 1, 2], [3, 4, 5]])
    both, *single = RatioCutLoss(3, n_heads=2), RatioCutLoss(3), RatioCutLoss(3)
    for weight in (2.0, 0.5):
        alone = []
        for head, loss in enumerate(single):
            loss.balance_weight = weight
            alone.append(loss(probs[:, :, head], pairs))
        both.balance_weight = weight
        torch.testing.assert_close(both(probs, pairs), torch.stack(alone).sum())
        torch.testing.assert_close(both.by_head, torch.stack(alone))
