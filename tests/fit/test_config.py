import pytest

from prcut.fit.config import FitConfig, Preset
from prcut.numerics.objective import balance_factor


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
