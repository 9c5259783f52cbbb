from pathlib import Path

import numpy as np
import pytest

from prcut.errors import InvalidInputError
from prcut.fit.config import FitConfig
from prcut.runs.folder import choose_mode, describe_run, plan_run
from prcut.runtime.sources import ArraySource

SOURCE = ArraySource(np.zeros((1000, 8), np.float32))
CONFIG = FitConfig.of("default", 4, n_neighbors=10)


def test_what_fits_in_memory_stays_there() -> None:
    assert choose_mode(SOURCE, 10, 10**9)[0] == "memory"
    assert choose_mode(SOURCE, 10, 10**3)[0] == "disk"
    assert choose_mode(SOURCE, 10, 10**9, on_disk=True)[0] == "disk"


def test_a_plan_is_written_once(tmp_path: Path) -> None:
    path = str(tmp_path)
    first = plan_run(path, SOURCE, CONFIG, 10**3)
    again = plan_run(path, SOURCE, CONFIG, 10**12)
    assert first.mode == again.mode == "disk"
    assert first.key == again.key
    assert first.n_neighbors == 10
    with pytest.raises(InvalidInputError, match="begun with another n_clusters"):
        plan_run(path, SOURCE, FitConfig.of("default", 5, n_neighbors=10), None)


def test_a_description_names_the_weight_that_will_be_used() -> None:
    assert describe_run(SOURCE, CONFIG)["balance_weight"] is None  # the search chooses it
    train = FitConfig.of("default", 4, solver="train")
    assert describe_run(SOURCE, train)["balance_weight"] == 2.0
    given = FitConfig.of("default", 4, solver="train", balance_weight=0.5)
    assert describe_run(SOURCE, given)["balance_weight"] == 0.5
