import math

import numpy as np
import pytest

from prcut import Assigner
from prcut.training.settings import TrainConfig
from prcut.training.state import Record, TrainState


def test_schedule_warms_up_and_falls_to_nothing() -> None:
    config = TrainConfig(max_steps=100, learning_rate=1.0)
    rates = [config.learning_rate_at(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == pytest.approx(1, abs=0.01)
    assert rates[-1] < 1e-3
    assert TrainConfig(schedule="constant").learning_rate_at(500) == TrainConfig.learning_rate


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_steps": 0}, "max_steps=0 must be a whole number >= 1"),
        ({"batch_size": 2.5}, "batch_size=2.5 must be a whole number >= 1"),
        ({"patience": 0}, "patience=0 must be a whole number >= 1"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be > 0"),
        ({"learning_rate": math.nan}, "learning_rate=nan must be > 0"),
        ({"balance_weight": -1.0}, "balance_weight=-1.0 must be >= 0"),
        ({"weight_decay": math.inf}, "weight_decay=inf must be >= 0"),
        ({"schedule": "linear"}, "schedule='linear' must be 'cosine' or 'constant'"),
        ({"optimizer": "sgd"}, "optimizer='sgd' must be 'adam' or 'rmsprop'"),
        ({"precision": "float16"}, "precision='float16' must be 'float32' or 'bfloat16'"),
        ({"checkpoint_every": 15}, "checkpoint_every=15 must be a multiple of 10"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**wrong)  # type: ignore[arg-type]


def test_very_long_runs_keep_their_newest_records_and_thin_out_the_old_ones() -> None:
    state = TrainState.start(Assigner(2, 2), TrainConfig())
    sizes = np.full(2, 0.5, np.float32)
    for number in range(1, 12_001):
        state.add(Record(10 * number, 1.0, 1.0, 0.0, 0.5, sizes))
    steps = state.history["step"]
    assert len(steps) < 10_000
    assert (np.diff(steps) > 0).all()
    assert steps[0] == 10
    np.testing.assert_array_equal(steps[-5000:], np.arange(70_010, 120_001, 10))
