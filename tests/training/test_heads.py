from pathlib import Path

import numpy as np
import pytest
import torch

from prcut import Assigner, SimilarityGraph
from prcut.numerics.objective import hard_objective
from prcut.runtime.folder import Folder
from prcut.training.batches import GatheredPairs
from prcut.training.loop import held_objectives, train
from prcut.training.pairs import WalkPairs
from prcut.training.settings import TrainConfig
from prcut.training.state import Record
from training.test_loop import blobs, same_history, same_weights

CONFIG = TrainConfig(
    max_steps=50,
    batch_size=64,
    learning_rate=0.03,
    patience=None,
    checkpoint_every=10,
    n_heads=8,
    first_balance=4.0,
)


def problem(seed: int = 0, hidden: tuple[int, ...] = (6,)) -> tuple[GatheredPairs, Assigner]:
    rows, labels = blobs()
    pairs = GatheredPairs(WalkPairs(SimilarityGraph.from_labels(labels), n_steps=2), rows)
    generator = torch.Generator().manual_seed(seed)
    return pairs, Assigner(4, 3, hidden, n_heads=8, weight_norm=False, generator=generator)


@pytest.mark.parametrize("weight_norm", [True, False])
def test_kept_heads_give_what_they_gave(weight_norm: bool) -> None:
    assigner = Assigner(4, 3, (6,), n_heads=5, weight_norm=weight_norm)
    rows = torch.randn(7, 4)
    before = assigner(rows)
    assert before.shape == (7, 3, 5)
    assigner.keep_heads(torch.tensor([1, 4]))
    torch.testing.assert_close(assigner(rows), before[:, :, [1, 4]])
    assigner.keep_heads(torch.tensor([1]))
    torch.testing.assert_close(assigner(rows), before[:, :, 4])


def test_heads_without_a_body_learn_as_if_alone() -> None:
    pairs, together = problem(hidden=())
    alone = [Assigner(4, 3) for _ in range(8)]
    for number, assigner in enumerate(alone):
        for mine, ours in zip(assigner.parameters(), together.parameters(), strict=True):
            mine.data = ours.data.unflatten(0, (3, 8))[:, number].clone()
    steps = {"batch_size": 64, "patience": None, "schedule": "constant"}

    def stop(record: Record) -> None:
        if record.step == 10:
            raise StopIteration

    with pytest.raises(StopIteration):
        train(pairs, together, TrainConfig(**steps, n_heads=8), on_record=stop)
    rows, _ = blobs()
    for number, assigner in enumerate(alone):
        train(pairs, assigner, TrainConfig(**steps, max_steps=10))
        torch.testing.assert_close(together(rows)[:, :, number], assigner(rows))


def test_the_best_head_is_kept_and_the_history_shows_all() -> None:
    pairs, assigner = problem()
    state = train(pairs, assigner, CONFIG)
    rows, labels = blobs()
    found = assigner(rows).argmax(1)
    assert len(torch.unique(torch.stack([found, labels], 1), dim=0)) == 3
    assert (assigner.n_heads, len(state.heads), state.cluster_mass.running.shape) == (1, 1, (3,))
    history = state.history
    by_head = history["head_objectives"]
    assert by_head.shape == (5, 8)
    np.testing.assert_allclose(by_head[0].min(), history["objective"][0])
    kept = int(state.heads)
    assert history["objective"][-1] == by_head[-1, kept]
    dropped = np.arange(8) != kept
    np.testing.assert_array_equal(by_head[-1, dropped], by_head[-2, dropped])
    assert (by_head[1] != by_head[0]).all()


def test_heads_are_judged_by_the_objective_of_hard_labels() -> None:
    rows, labels = blobs()
    graph = SimilarityGraph.from_labels((labels + (torch.arange(90) % 7 == 0)) % 3)
    assigner = Assigner(4, 3, n_heads=8, generator=torch.Generator().manual_seed(1))
    config = TrainConfig(batch_size=4096, n_heads=8, balance_weight=0.5)
    estimates = held_objectives(GatheredPairs(WalkPairs(graph, n_steps=1), rows), assigner, config)
    hard = assigner(rows).argmax(1)
    exact = [hard_objective(graph.weight, one, 3, balance_weight=0.5) for one in hard.T]
    np.testing.assert_allclose(estimates, exact, rtol=0.05)


def test_heads_resume_bit_by_bit_before_and_after_some_are_dropped(tmp_path: Path) -> None:
    pairs, undisturbed = problem()
    expected = train(pairs, undisturbed, CONFIG)
    for step in (20, 40, 50):
        folder = Folder(tmp_path / str(step))

        def stop(record: Record, step: int = step) -> None:
            if record.step == step:
                raise StopIteration

        pairs, assigner = problem()
        with pytest.raises(StopIteration):
            train(pairs, assigner, CONFIG, checkpoint=folder, on_record=stop)
        pairs, assigner = problem(seed=9)  # its weights come from the checkpoint
        state = train(pairs, assigner, CONFIG, checkpoint=folder)
        same_history(state, expected)
        same_weights(assigner, undisturbed)
        # a finished run has one head
        pairs, assigner = problem(seed=9)
        same_history(train(pairs, assigner, CONFIG, checkpoint=folder), expected)
        same_weights(assigner, undisturbed)
