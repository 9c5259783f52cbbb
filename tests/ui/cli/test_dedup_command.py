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
