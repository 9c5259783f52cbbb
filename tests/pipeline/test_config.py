from dataclasses import replace

import pytest

from prcut.errors import InvalidInputError
from prcut.pipeline.config import FitConfig
from prcut.training.state import TrainConfig


def test_presets() -> None:
    ours, paper = FitConfig.of("default", 10), FitConfig.of("paper", 10, seed=3)
    assert ours == FitConfig(10)
    assert (ours.solver, ours.layers, ours.n_starts) == ("search", (256,), 4)
    assert (ours.in_use, replace(ours, solver="train").in_use) == (ours.distil, ours.train)
    assert (paper.pairs, paper.n_init, paper.train) == ("uniform", 1, TrainConfig.paper(10, 3))
    assert (paper.solver, paper.similarity, paper.layers) == ("train", "binary", ())
    mixed = FitConfig.of("paper", 10, batch_size=512, metric="cosine", hidden=None)
    assert (mixed.train.batch_size, mixed.metric, mixed.hidden) == (512, "cosine", None)
    given = FitConfig.of("default", 10, balance_weight=0.25, max_steps=7, n_init=3, hidden=(5,))
    assert (given.train.max_steps, given.distil.max_steps) == (7, 7)
    assert (given.balance_weight, given.training_balance) == (0.25, 0.25)
    assert (ours.balance_weight, ours.training_balance) == (None, 2.0)
    assert (given.n_starts, given.layers) == (3, (5,))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be a whole number"),
        ({"n_neighbors": 0}, "n_neighbors=0 must be a whole number"),
        ({"n_init": 0}, "n_init=0 must be a whole number"),
        ({"walk_length": 0}, "walk_length=0 must be a whole number"),
        ({"pairs": "all"}, "pairs='all' must be 'walk' or 'uniform'"),
        ({"solver": "magic"}, "solver='magic' must be 'search' or 'train'"),
    ],
)
def test_wrong_settings(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        FitConfig(**{"n_clusters": 3, **wrong})  # type: ignore[arg-type]
