"""The weekly comparison: what is kept, and what fails."""

import json
from pathlib import Path

import pytest
from benchmarks import _regression as regression


@pytest.mark.parametrize(("now", "code"), [(0.5, 0), (1.09, 0), (1.11, 1)])
def test_more_than_ten_per_cent_worse_fails(
    tmp_path: Path, now: float, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.jsonl"
    for each in (1.5, now):  # the last week counts; the one before is shown
        figures = {"fit": {"before": 1.0, "now": each}, "cut": {"before": 2.0, "now": 2.0}}
        (tmp_path / "new.json").write_text(json.dumps({"figures": figures}))
        regression.record(tmp_path / "new.json", history)
    assert regression.main(["judge", "--history", str(history)]) == code
    printed = capsys.readouterr().out
    assert f"1.50 {now:.2f}" in printed
    assert ("fit: " in printed.partition("more than 10 % worse")[2]) is bool(code)


def test_a_figure_that_is_no_longer_measured_fails() -> None:
    assert regression.worse({"fit": {"before": 1.0}}) == ["fit: was measured before, not now"]
    assert regression.worse({"new": {"now": 1.0}}) == []
    assert regression.worse({"cut": {"before": 0.0, "now": 0.1}})
