"""The capacity model: what it counts is what a run moves."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.harness.usage import MeasuredEngine

from prcut.errors import CorruptFileError
from prcut.pipeline.outofcore import capacity
from prcut.pipeline.outofcore.build_blocks import BlockConfig, build_blocks
from prcut.pipeline.outofcore.capacity import (
    Rates,
    Workload,
    calibrate,
    plan_stages,
    read_rates,
    show_plan,
)
from prcut.pipeline.outofcore.link import link_blocks
from prcut.pipeline.outofcore.sizes import most_block_rows
from prcut.runtime.engine import LocalEngine
from prcut.runtime.folder import Folder
from prcut.ui.cli.commands import main


@pytest.mark.costly("30,000 rows: of fewer the model says little")
def test_bytes_written_and_read_are_those_of_the_model(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(30_000, 32)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    # modules that are imported on the way would be counted as bytes read
    build_blocks(rows[:300], tmp_path / "few", BlockConfig(block_rows=100))
    engine = MeasuredEngine(LocalEngine())
    # what a run on disk keeps: enough to distil, here all rows
    config = BlockConfig(block_rows=3_000, kept=450 * 256)
    blocks = build_blocks(tmp_path / "rows.npy", tmp_path / "blocks", config, engine=engine)
    link_blocks(blocks, Folder(tmp_path / "parts"), "mean", engine, {"total": 30_000})
    work = Workload(30_000, 32, 10, block_rows=3_000)
    planned = {stage.stage: stage for stage in plan_stages(work)}
    for stage, used in engine.usage.items():
        if stage in ("join", "meet"):  # depend on how many edges lead to other blocks
            continue
        assert used.written == pytest.approx(planned[stage].written, rel=0.15), stage
        if stage in ("gather", "link"):  # the system counts no mapped files
            assert used.read == pytest.approx(planned[stage].read, rel=0.15), stage


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
