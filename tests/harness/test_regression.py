"""The weekly comparison: what is kept, and what fails."""

import json
from itertools import cycle
from pathlib import Path

import pytest
from benchmarks import _regression as regression


def write(path: Path, **figures: tuple[float, float]) -> Path:
    made = {name: {"before": before, "now": now} for name, (before, now) in figures.items()}
    path.write_text(json.dumps({"figures": made}))
    return path


@pytest.mark.parametrize(("now", "code"), [(0.5, 0), (1.09, 0), (1.11, 1), (3.0, 1)])
def test_more_than_ten_per_cent_worse_fails(
    tmp_path: Path, now: float, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.jsonl"
    for each in (1.5, now):  # the last week counts; the one before is shown
        regression.record(write(tmp_path / "new.json", fit=(1.0, each), cut=(2.0, 2.0)), history)
    assert len(history.read_text().splitlines()) == 2
    assert regression.main(["judge", "--history", str(history)]) == code
    printed = capsys.readouterr().out
    assert f"1.50 {now:.2f}" in printed
    assert ("fit: " in printed.partition("more than 10 % worse")[2]) is bool(code)


def test_a_figure_that_is_no_longer_measured_fails() -> None:
    assert regression.worse({"fit": {"before": 1.0}}) == ["fit: was measured before, not now"]
    assert regression.worse({"new": {"now": 1.0}}) == []
    assert regression.worse({"cut": {"before": 0.0, "now": 0.1}})


def test_an_empty_history_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").touch()
    assert regression.judge(tmp_path / "history.jsonl") == 1


def test_the_least_of_turns_counts_and_what_seems_worse_is_measured_again() -> None:
    turns = []

    def side(name: str, seconds: list[float]):
        values = cycle(seconds)

        def measured() -> dict[str, float]:
            turns.append(name)
            return {"fit": next(values)}

        return measured

    figures = regression.in_turns(side("before", [3, 1]), side("now", [2, 1.05]), rounds=2)
    assert figures == {"fit": {"before": 1, "now": 1.05}}
    assert turns == ["before", "now"] * 2
    figures = regression.in_turns(side("before", [1]), side("now", [2, 2, 1]), rounds=2)
    assert figures == {"fit": {"before": 1, "now": 1}}, "a busy minute is not a regression"
    assert regression.worse(regression.in_turns(side("before", [1]), side("now", [2]), rounds=2))


def test_what_is_measured() -> None:
    figures = regression.measure(n_rows=400)
    assert len(figures) == 6
    assert all(value >= 0 for value in figures.values())
    assert figures["fit, ratio cut"] > 0
