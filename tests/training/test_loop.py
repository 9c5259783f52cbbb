import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from prcut import Assigner, SimilarityGraph, cluster_imbalance, soft_ratio_cut
from prcut.errors import PRCutError
from prcut.numerics.objective import balance_factor
from prcut.runtime.folder import Folder
from prcut.training.batches import FeatureBatch, GatheredPairs, LabelledRows, draw_steps
from prcut.training.checkpoint import load_checkpoint
from prcut.training.loop import _has_stalled, train
from prcut.training.pairs import WalkPairs
from prcut.training.settings import RECORD_EVERY, TrainConfig
from prcut.training.state import Record, TrainState

QUICK = TrainConfig(
    max_steps=40, batch_size=64, learning_rate=0.03, patience=None, checkpoint_every=10
)


def blobs(n_per_cluster: int = 30, n_clusters: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n_clusters).repeat_interleave(n_per_cluster)
    centers = 5 * torch.randn(n_clusters, 4, generator=generator)
    return centers[labels] + 0.5 * torch.randn(len(labels), 4, generator=generator), labels


def problem(seed: int = 0) -> tuple[GatheredPairs, Assigner]:
    rows, labels = blobs()
    pairs = GatheredPairs(WalkPairs(SimilarityGraph.from_labels(labels), n_steps=2), rows)
    return pairs, Assigner(4, 3, generator=torch.Generator().manual_seed(seed))


def test_one_step_is_algorithm_1_written_out() -> None:
    """Lines 3 to 11 with a hand-written gradient of the running mass, and plain SGD-free Adam."""
    rows, labels = blobs()
    sampler = WalkPairs(SimilarityGraph.from_labels(labels), n_steps=1)
    config = TrainConfig(
        max_steps=2, batch_size=64, schedule="constant", patience=None, balance_weight=0.7
    )
    assigner = Assigner(4, 3, generator=torch.Generator().manual_seed(0))
    twin = Assigner(4, 3, generator=torch.Generator().manual_seed(0))
    train(GatheredPairs(sampler, rows), assigner, config)

    optimizer = torch.optim.Adam(twin.parameters(), lr=config.learning_rate)
    running = torch.full((3,), 1 / 3)
    for step in range(2):
        (batch,) = draw_steps(sampler, 64, config.seed, [step])
        probs = twin(rows[batch.rows]).softmax(1)
        batch_mass = (batch.node_weight[:, None] * probs).sum(0) / batch.node_weight.sum()
        running = 0.2 * running + 0.8 * batch_mass.detach()
        mass = running + batch_mass - batch_mass.detach()
        cut = soft_ratio_cut(batch.weight, probs[batch.source], probs[batch.target], mass)
        loss = cut + 0.7 / math.log(3 / 2) * cluster_imbalance(mass)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for ours, theirs in zip(assigner.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_clusters_are_found() -> None:
    pairs, assigner = problem()
    seen: list[Record] = []
    state = train(pairs, assigner, QUICK, on_record=seen.append)
    rows, labels = blobs()
    found = assigner(rows).argmax(1)
    assert len(torch.unique(torch.stack([found, labels], 1), dim=0)) == 3
    assert seen == state.records
    history = state.history
    assert history["step"].tolist() == [10, 20, 30, 40]
    assert history["objective"][-1] < 0.5 * history["objective"][0]
    assert history["cluster_sizes"].shape == (4, 3)
    np.testing.assert_allclose(history["cluster_sizes"].sum(1), 1, rtol=1e-6)
    assert 1 / 3 < history["confidence"][0] < history["confidence"][-1] <= 1
    factor = balance_factor(QUICK.balance_weight, 3)
    np.testing.assert_allclose(
        history["objective"], history["cut"] + factor * history["imbalance"], rtol=1e-12
    )
    assert seen[-1].used_clusters == 3


def test_low_precision_stays_close_and_keeps_weights_in_float32() -> None:
    figures = []
    for precision in ("float32", "bfloat16"):
        pairs, assigner = problem()
        config = TrainConfig(max_steps=40, batch_size=64, patience=None, precision=precision)
        figures.append(train(pairs, assigner, config).history["objective"])
        assert {parameter.dtype for parameter in assigner.parameters()} == {torch.float32}
    assert (figures[0] != figures[1]).any()
    np.testing.assert_allclose(figures[0], figures[1], rtol=0.1)


# -- early stop ------------------------------------------------------------------------------


def state_after(objective: list[float], distils: bool, k: int = 11) -> TrainState:
    state = TrainState.start(Assigner(2, k), TrainConfig())
    sizes = np.full(k, 1 / k, np.float32)
    state.records = [
        Record((i + 1) * RECORD_EVERY, value, None if distils else value, None, 0.5, sizes)
        for i, value in enumerate(objective)
    ]
    return state


@pytest.mark.parametrize(
    ("values", "distils", "stalled"),
    [
        ([3.0] * 3, False, False),  # not long enough to say
        ([3.0] * 4, False, True),
        ([4.0, 4.0, 3.0, 3.0], False, False),
        ([3.0, 3.0, 2.9995, 2.9995], False, True),  # a fall by less than its noise
        ([3.0, 3.0, 2.9, 2.9], False, False),
        ([3.0, 3.0, 3.2, 3.2], False, True),
        ([10.0] * 6, False, False),  # k - 1: nothing learned yet
        ([2e-3, 2e-3, 1.5e-3, 1.5e-3], False, True),  # hardly cut at all: a fall changes nothing
        ([0.5, 0.5, 0.49, 0.49], True, True),  # a cross-entropy that falls by less than 5 %
        ([0.5, 0.5, 0.4, 0.4], True, False),
        ([2.39] * 6, True, False),  # about log 11: nothing learned yet
        ([1e-3, 1e-3, 8e-4, 8e-4], True, True),  # all but certain of every row
    ],
)
def test_stalled_runs_are_recognised(values: list[float], distils: bool, stalled: bool) -> None:
    state = state_after(values, distils)
    assert _has_stalled(state, 2 * RECORD_EVERY) is stalled
    assert not _has_stalled(state, None)


def test_a_stalled_run_stops_early() -> None:
    pairs, assigner = problem()
    state = train(pairs, assigner, TrainConfig(max_steps=2000, batch_size=64, patience=50))
    assert state.step < 1000
    assert state.step % RECORD_EVERY == 0


class _Broken(nn.Module):
    n_clusters = 3

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3))

    def forward(self, features: Tensor) -> Tensor:
        return features @ self.weight * torch.nan


def test_divergence_is_one_worded_error() -> None:
    pairs, _ = problem()
    message = r"training diverged before step 10: .* lower learning_rate or raise balance_weight"
    with pytest.raises(PRCutError, match=message):
        train(pairs, _Broken(), QUICK)


# -- distilling ------------------------------------------------------------------------------


def distillation(seed: int = 0) -> tuple[LabelledRows, Assigner]:
    return LabelledRows(*blobs()), problem(seed)[1]


def test_one_step_of_distillation_is_cross_entropy_written_out() -> None:
    lesson, assigner = distillation()
    _, twin = distillation()
    config = TrainConfig(max_steps=2, batch_size=64, schedule="constant", patience=None)
    train(lesson, assigner, config)
    optimizer = torch.optim.Adam(twin.parameters(), lr=config.learning_rate)
    for batch, _ in zip(lesson.stream(64, seed=config.seed), range(2), strict=False):
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(batch.features), batch.labels).backward()
        optimizer.step()
    for ours, theirs in zip(assigner.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


# -- resuming --------------------------------------------------------------------------------


def test_a_state_is_resumed_where_it_ended() -> None:
    pairs, assigner = problem()
    config = TrainConfig(max_steps=20, batch_size=64, schedule="constant", patience=None)
    longer = TrainConfig(max_steps=40, batch_size=64, schedule="constant", patience=None)
    state = train(pairs, assigner, config)
    train(pairs, assigner, longer, state=state)
    other_pairs, other = problem()
    at_once = train(other_pairs, other, longer)
    assert state.step == 40
    same_history(state, at_once)
    same_weights(assigner, other)


def test_a_record_is_a_mean_over_the_steps_that_were_made() -> None:
    """A call that ends between two records takes its sums with it."""
    pairs, assigner = problem()
    settings = {"batch_size": 4096, "learning_rate": 1e-9, "schedule": "constant", "patience": None}
    state = train(pairs, assigner, TrainConfig(max_steps=17, **settings))
    train(pairs, assigner, TrainConfig(max_steps=30, **settings), state=state)
    assert [record.step for record in state.records] == [10, 20, 30]
    ten, three, ten_more = (record.objective for record in state.records)
    assert three == pytest.approx(ten, rel=0.05)
    assert ten_more == pytest.approx(ten, rel=0.05)


def same_history(one: TrainState, other: TrainState) -> None:
    for name, values in one.history.items():
        np.testing.assert_array_equal(values, other.history[name])


def same_weights(one: nn.Module, other: nn.Module) -> None:
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_loop import QUICK, problem
from prcut.runtime.folder import Folder
from prcut.training.loop import train

def maybe_die(record):
    if record.step == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

pairs, assigner = problem()
train(pairs, assigner, QUICK, checkpoint=Folder(sys.argv[2]), on_record=maybe_die)
"""


@pytest.mark.costly("three real processes: the one killed run of training")
def test_runs_killed_by_sigkill_end_with_the_same_numbers(tmp_path: Path) -> None:
    tests = str(Path(__file__).parent)
    command = [sys.executable, "-c", KILLED, tests, str(tmp_path / "run")]
    for step, status in ((20, -9), (30, -9), (0, 0)):
        assert subprocess.run([*command, str(step)], check=False).returncode == status
    pairs, undisturbed = problem()
    expected = train(pairs, undisturbed, QUICK)
    assigner = Assigner(4, 3)
    state = TrainState.start(assigner, QUICK)
    assert load_checkpoint(Folder(tmp_path / "run"), assigner, state, QUICK)
    same_history(state, expected)
    same_weights(assigner, undisturbed)


def test_batches_that_never_meet_do_no_harm() -> None:
    """Uniform batches of a sparse graph hold no pair now and then: the loss is the balance term."""

    class Empty:
        def stream(self, _batch_size: int, **_options: object):
            nothing = torch.empty(0, dtype=torch.int64)
            while True:
                rows = torch.randn(8, 4)
                yield FeatureBatch(rows, nothing, nothing, torch.empty(0), torch.ones(8))

    _, assigner = problem()
    history = train(Empty(), assigner, QUICK).history
    assert (history["cut"] == 0).all()
    assert np.isfinite(history["objective"]).all()
