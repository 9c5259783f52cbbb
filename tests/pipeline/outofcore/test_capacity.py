"""The capacity model: what it counts is what a run moves."""

import json
from pathlib import Path

import pytest

from prcut.errors import CorruptFileError
from prcut.pipeline.outofcore import capacity
from prcut.pipeline.outofcore.capacity import (
    Rates,
    Workload,
    calibrate,
    read_rates,
    show_plan,
)
from prcut.pipeline.outofcore.sizes import most_block_rows
from prcut.ui.cli.commands import main


def test_rates_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(capacity, "cache_folder", lambda kind: tmp_path / kind)
    monkeypatch.setattr(capacity, "_measure", lambda: Rates(flops=1e10))
    assert read_rates() is None
    assert main(["plan", "--rows", "1e9", "--dim", "768", "--k", "10000"]) == 0
    assert "typical" in capsys.readouterr().out
    rates = calibrate()
    assert read_rates() == rates
    assert main(["plan", "--rows", "1e6", "--dim", "64", "-k", "10"]) == 0
    out = capsys.readouterr().out
    assert "measured on this machine" in out
    assert show_plan(Workload(10**6, 64, 10, block_rows=most_block_rows(10**6)), rates) in out
    other = json.dumps(rates._asdict()).replace("comparisons", "search")
    for content in ("[]", other):
        (tmp_path / "capacity/rates.json").write_text(content)
        with pytest.raises(CorruptFileError):
            read_rates()
