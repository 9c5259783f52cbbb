import subprocess
import sys
from pathlib import Path

import pytest
import torch

import reference
from prcut import RatioCutLoss, cluster_imbalance, soft_ratio_cut
from prcut.objective import balance_factor

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


@pytest.mark.parametrize("n_clusters", [2, 10, 100])
def test_knowing_nothing_costs_k_minus_1(n_clusters: int) -> None:
    loss = RatioCutLoss(n_clusters)
    value = loss(torch.full((6, n_clusters), 1 / n_clusters), PAIRS)
    assert value.item() == pytest.approx(n_clusters - 1, rel=1e-5)


def test_the_running_mass_is_saved_with_the_model() -> None:
    loss = RatioCutLoss(3)
    loss(reference.random_probs(6, 3).float(), PAIRS)
    assert list(loss.state_dict()) == ["cluster_mass.running"]
    assert list(loss.parameters()) == []


def test_the_example_of_pseudo_labels_learns() -> None:
    example = Path(__file__).parent.parent / "examples/pseudo_labels.py"
    run = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    before, after = [float(word) for word in run.stdout.split() if word.startswith("0.")][-2:]
    assert after > before + 0.02
