"""Engines: what they promise to the stages, here without a cluster."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from prcut.blocks import BlockConfig, build_blocks
from prcut.engine import Here, Usage, measured
from prcut.progress import Progress
from prcut.status import StatusWriter, read_status


def write(folder: Path, number: int, advance) -> None:
    (folder / f"{number}.bin").write_bytes(bytes(10**6))
    advance(number)


def test_here_runs_every_number_once_and_counts_what_it_took(tmp_path: Path) -> None:
    seen: list[Progress] = []
    engine = Here()
    engine.run("write", partial(write, tmp_path), 4, total=6, on_progress=seen.append)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{n}.bin" for n in range(4)]
    used = engine.usage["write"]
    assert (used.tasks, used.rows) == (4, 6)
    assert used.written >= 4 * 10**6
    assert used.peak_bytes > 10**7
    assert [progress.done for progress in seen] == [0, 1, 3, 6]


def test_the_first_error_ends_it() -> None:
    done: list[int] = []

    def fail(number: int, advance) -> None:
        if number == 2:
            raise ValueError("no")
        done.append(number)
        advance(1)

    with pytest.raises(ValueError, match="no"):
        Here().run("fail", fail, 5, total=5)
    assert done == [0, 1]


def test_usage_adds_up() -> None:
    one = measured(lambda number, advance: advance(number), 7)
    both = one.plus(Usage(tasks=2, rows=3, read=5, peak_bytes=10**15))
    assert (both.tasks, both.rows, both.peak_bytes) == (3, 10, 10**15)
    assert both.read == one.read + 5


def test_stages_run_where_the_engine_says(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32)
    engine = Here()
    build_blocks(rows, tmp_path, BlockConfig(n_neighbors=5, block_rows=500), engine=engine)
    assert engine.usage["scatter"].rows == engine.usage["gather"].rows == 2000
    again = Here()
    build_blocks(rows, tmp_path, BlockConfig(n_neighbors=5, block_rows=500), engine=again)
    assert again.usage == {}  # all is there


@pytest.mark.parametrize(
    ("progress", "state"),
    [
        (Progress("gather", 10, 10, 5.0, 0.0), "done"),
        (Progress("gather", 4, 10, 5.0, 1.2, running=3), "running"),
        (Progress("gather", 4, 10, 5.0, 1.2, running=0, failed=2), "failed"),
    ],
)
def test_status_says_what_a_stage_last_said(tmp_path: Path, progress: Progress, state: str) -> None:
    StatusWriter(tmp_path).on_progress(progress)
    (stage,) = read_status(tmp_path)
    assert (stage.stage, stage.state, stage.done) == ("gather", state, progress.done)
    assert state in stage.describe()


def test_a_stage_that_says_nothing_for_long_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StatusWriter(tmp_path).on_progress(Progress("gather", 4, 10, 5.0, 1.2, running=3))
    import time

    later = time.time() + 300
    monkeypatch.setattr("prcut.status.time.time", lambda: later)
    (stage,) = read_status(tmp_path)
    assert stage.state == "silent"
    assert "may be dead" in stage.describe()


def test_status_is_written_every_two_seconds_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("prcut.status.time.time", lambda: now[0])
    writer = StatusWriter(tmp_path)
    shown = []
    for done, at in ((1, 100.0), (2, 101.0), (3, 102.5), (10, 102.6)):
        now[0] = at
        writer.also(lambda progress: None)(Progress("a b", done, 10, 1.0, 1.0))
        shown.append(read_status(tmp_path)[0].done)
    assert shown == [1, 1, 3, 10]
