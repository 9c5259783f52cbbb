from dataclasses import fields, replace
from typing import get_args

import pytest

from prcut.fit.config import FitConfig, Preset
from prcut.graph.build import Similarity
from prcut.graph.neighbors import Metric
from prcut.numerics.objective import balance_factor


def test_presets() -> None:
    ours = FitConfig.of("default", 10)
    assert ours == FitConfig(10)
    assert (ours.solver, ours.layers, ours.n_starts) == ("search", (256,), 4)
    assert (ours.in_use, replace(ours, solver="train").in_use) == (ours.distil, ours.train)
    mixed = FitConfig.of("paper-pixels", 10, batch_size=512, metric="cosine")
    assert (mixed.train.batch_size, mixed.metric, mixed.n_neighbors) == (512, "cosine", 150)
    given = FitConfig.of("default", 10, balance_weight=0.25, max_steps=7, n_init=3, hidden=(5,))
    assert (given.train.max_steps, given.distil.max_steps) == (7, 7)
    assert (given.balance_weight, given.training_balance) == (0.25, 0.25)
    assert (ours.balance_weight, ours.training_balance) == (None, 2.0)
    assert (given.n_starts, given.layers) == (3, (5,))


@pytest.mark.parametrize(
    ("preset", "optimizer", "n_neighbors", "layers"),
    [
        ("paper-pixels", "rmsprop", 150, (512, 512, 512)),
        ("paper-representations", "adam", 100, ()),
    ],
)
def test_published_presets(
    preset: Preset, optimizer: str, n_neighbors: int, layers: tuple[int, ...]
) -> None:
    config = FitConfig.of(preset, 10, seed=3)
    train = config.train
    assert (config.layers, config.n_neighbors, config.similarity) == (layers, n_neighbors, "binary")
    assert (config.solver, config.pairs, config.n_starts) == ("train", "uniform", 1)
    assert not config.standardize
    assert (train.optimizer, train.learning_rate, train.weight_decay) == (optimizer, 1e-4, 1e-7)
    assert (train.max_steps, train.batch_size, train.mass_update_rate) == (25_000, 2048, 0.8)
    assert (train.schedule, train.patience) == ("constant", None)
    assert train.seed == 3
    # the paper's 100, on a sum without the definition's ½
    assert balance_factor(train.balance_weight, 10) == pytest.approx(50)


def test_choices_are_the_names_that_the_graph_knows() -> None:
    choices = {one.name: one.metadata.get("choices") for one in fields(FitConfig)}
    assert choices["metric"] == get_args(Metric)
    assert choices["similarity"] == get_args(Similarity)
