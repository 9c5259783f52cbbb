"""Progress: what callbacks are told, and what another process reads of it."""

import time
from pathlib import Path

import pytest

from prcut.errors import CorruptFileError
from prcut.runtime.folder import Folder
from prcut.runtime.progress import (
    Progress,
    Reporter,
    StatusWriter,
    read_status,
)


def test_reporters_add_up_and_estimate_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("prcut.runtime.progress.time.monotonic", lambda: now[0])
    seen: list[Progress] = []
    reporter = Reporter("scatter", 100, seen.append)
    for count, at in ((20, 12.0), (30, 20.0)):
        now[0] = at
        reporter.advance(count, running=4, failed=1)
    assert seen == [
        Progress("scatter", 20, 100, 10.0, 8.0, 4, 1),
        Progress("scatter", 50, 100, 5.0, 10.0, 4, 1),
    ]
    Reporter("quiet", 100, None).advance(1)  # nobody listens


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
    assert (stage.progress, stage.state) == (progress, state)
    assert state in stage.describe()


def test_a_stage_that_says_nothing_for_long_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StatusWriter(tmp_path).on_progress(Progress("gather", 4, 10, 5.0, 1.2, running=3))
    later = time.time() + 300
    monkeypatch.setattr("prcut.runtime.progress.time.time", lambda: later)
    (stage,) = read_status(tmp_path)
    assert stage.state == "silent"
    assert "may be dead" in stage.describe()


def test_a_status_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    (Folder(tmp_path) / "status").write_json("gather.json", {"stage": "gather", "time": 1.0})
    with pytest.raises(CorruptFileError, match=r"gather\.json lacks 'done'"):
        read_status(tmp_path)
