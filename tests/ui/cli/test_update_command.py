from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from prcut.ui.cli.commands import main


def test_update_says_what_became_of_the_clusters(
    data: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.load(data / "rows.npy")[:400]
    far = rows[:120] + np.float32(60)  # a class of its own
    np.save(tmp_path / "week2.npy", np.concatenate([rows, far]))
    given = ["update", str(run), f"{tmp_path}/week2.npy", "-o", f"{tmp_path}/two", "--quiet"]
    assert main([*given, "--device", "cpu"]) == 0
    said = capsys.readouterr().out.splitlines()
    found = dict(line.split("=", 1) for line in said if "=" in line)
    assert found["rows"] == "520"
    assert int(found["births"]) >= 1
    assert any(line.startswith("birth of cluster 4: ") for line in said)
    labels = pq.read_table(tmp_path / "two/labels").to_pandas()
    assert (labels["cluster_id"][400:] >= 4).mean() > 0.95
    assert (labels["cluster_id"][:400] < 4).mean() > 0.95

    # the model goes on: assign names the same ids
    assert main(["assign", f"{tmp_path}/two", f"{tmp_path}/week2.npy", "-o", f"{tmp_path}/l"]) == 0
    again = pq.read_table(tmp_path / "l").to_pandas()
    assert (again["cluster_id"] == labels["cluster_id"]).mean() > 0.9


def test_a_folder_with_other_files_is_refused(
    data: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["update", str(run), f"{data}/rows.npy", "--out", str(data)]) == 2
    assert "holds other files" in capsys.readouterr().err
