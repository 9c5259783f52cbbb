"""``prcut sample``: what it prints and writes."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from prcut.ui.cli.commands import main


def test_sample_prints_where_and_how_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(200, 4)), rng.normal(9, 1, size=(20, 4))])
    np.save(tmp_path / "rows.npy", rows.astype(np.float32))
    data, run, out = (str(tmp_path / name) for name in ("rows.npy", "run", "out"))
    assert main(["fit", data, "-k", "2", "--out", run, "--steps", "20", "-q"]) == 0
    capsys.readouterr()
    assert main(["sample", run, "-n", "30", "--balance", "uniform", "-o", out, "-q"]) == 0
    printed = dict(line.split("=") for line in capsys.readouterr().out.splitlines())
    assert printed == {"sample": out, "rows": "30", "n_clusters": "2"}
    labels = pq.read_table(out)["label"].to_numpy()
    assert sorted(np.bincount(labels)) == [15, 15]
    assert main(["sample", run, "-n", "30", "--balance", "even", "-o", out, "-q"]) == 2
    assert "temperature:2" in capsys.readouterr().err
