"""``prcut dedup``: what it prints and writes."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from prcut.ui.cli.commands import main


def test_dedup_prints_where_and_how_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    rows[40:] = rows[:10]
    np.save(tmp_path / "rows.npy", rows)
    out = tmp_path / "out"
    assert main(["dedup", str(tmp_path / "rows.npy"), "--out", str(out), "-q"]) == 0
    printed = dict(line.split("=") for line in capsys.readouterr().out.splitlines())
    assert printed["kept"] == f"{out}/kept"
    assert [printed[name] for name in ("rows", "kept_rows", "copies", "n_groups")] == [
        "50",
        "40",
        "10",
        "10",
    ]
    assert pq.read_table(out / "kept").num_rows == 40


def test_a_wrong_option_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "rows.npy", np.ones((3, 2), np.float32))
    arguments = ["dedup", str(tmp_path / "rows.npy"), "--out", str(tmp_path / "out"), "-q"]
    assert main([*arguments, "--epsilon", "2"]) == 2
    assert main([*arguments, "--memory", "much"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "--epsilon 2.0" in lines[0]
