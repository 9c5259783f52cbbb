from pathlib import Path

import numpy as np
import pytest

from prcut.errors import InvalidInputError
from prcut.pipeline.config import FitConfig
from prcut.pipeline.run_plan import (
    GraphConfig,
    choose_mode,
    describe_run,
    open_plan,
    write_plan,
)
from prcut.runtime.sources import ArraySource

SOURCE = ArraySource(np.zeros((1000, 8), np.float32))
CONFIG = FitConfig.of("default", 4, n_neighbors=10)


def test_what_fits_in_memory_stays_there() -> None:
    graph = GraphConfig.of(CONFIG, SOURCE.n_samples)
    assert (graph.n_neighbors, graph.max_components) == (10, 4)
    assert choose_mode(SOURCE, graph, 10**9)[0] == "memory"
    assert choose_mode(SOURCE, graph, 10**3)[0] == "disk"
    assert choose_mode(SOURCE, graph, 10**9, on_disk=True)[0] == "disk"


def test_a_plan_is_written_once(tmp_path: Path) -> None:
    path = str(tmp_path)
    write_plan(path, SOURCE, CONFIG, 10**3, on_disk=False)
    write_plan(path, SOURCE, CONFIG, 10**12, on_disk=False)
    plan = open_plan(path, SOURCE, CONFIG)
    assert (plan.mode, plan.most_nodes) == ("disk", 1000)
    assert plan.key == open_plan(path, SOURCE, CONFIG).key
    with pytest.raises(InvalidInputError, match="begun with another n_clusters"):
        write_plan(path, SOURCE, FitConfig.of("default", 5, n_neighbors=10), None, on_disk=False)


def test_a_description_names_the_weight_that_will_be_used() -> None:
    assert describe_run(SOURCE, CONFIG)["balance_weight"] is None  # the search chooses it
    train = FitConfig.of("default", 4, solver="train")
    assert describe_run(SOURCE, train)["balance_weight"] == 2.0
    given = FitConfig.of("default", 4, solver="train", balance_weight=0.5)
    assert describe_run(SOURCE, given)["balance_weight"] == 0.5
