import io

import numpy as np
from rich.console import Console

from prcut.fit.config import FitConfig
from prcut.runtime.progress import Progress
from prcut.training.state import Record
from prcut.ui.progress_bars import FitDisplay

CONFIG = FitConfig.of("default", 4, solver="train", max_steps=20, n_init=2)


def record(step: int) -> Record:
    sizes = np.array([0.5, 0.25, 0.25, 0.0], np.float32)
    return Record(step, 1.5, 1.25, 0.1, 0.875, sizes)


def shown(console: Console) -> str:
    with FitDisplay(CONFIG, console=console) as fit:
        fit.on_progress(Progress("search neighbours", 50, 100, 1234.5, 1.0))
        fit.on_progress(Progress("search neighbours", 100, 100, 1234.5, 0.0))
        for start in (0, 1):
            for step in (10, 20):
                fit.on_record(start, record(step))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_log_file_has_plain_lines() -> None:
    assert shown(Console(file=io.StringIO(), width=40)).splitlines() == [
        "search neighbours: 50/100  1,234/s",
        "search neighbours: 100/100  1,234/s",
        "training 1/2: 20/20  cut 1.2500  clusters 3/4  confidence 0.88",
        "training 2/2: 20/20  cut 1.2500  clusters 3/4  confidence 0.88",
    ]


def test_a_terminal_has_bars() -> None:
    text = shown(Console(file=io.StringIO(), force_terminal=True, width=120))
    last = text.split("\x1b[2K")[-1]
    for words in ("search neighbours", "training 1/2", "training 2/2", "20/20", "clusters 3/4"):
        assert words in last
    assert "━" in last
