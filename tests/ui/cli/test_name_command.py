"""``prcut name``, and one command from data to a report with names."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prcut.ui.cli.commands import main
from report_samples import EVIL, check_self_contained

HOSTILE = [EVIL, "\x1b]0;owned\x07\x1b[31mred", "x" * 1_000_000, "", "\u202eevil\u2066"]
QUICK = ["--steps", "50", "--n-init", "1", "--neighbors", "10", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def texts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of the data with texts, some of them hostile."""
    path = tmp_path_factory.mktemp("texts") / "texts.parquet"
    rows, labels = np.load(data / "rows.npy")[:600], np.load(data / "labels.npy")[:600]
    words = ["bank loan", "garden soil", "guitar song", "<b>bold</b> \x1b[31mcolours"]
    body = [f"{words[label]} {number}" for number, label in enumerate(labels)]
    body[: 3 * len(HOSTILE)] = 3 * HOSTILE
    pq.write_table(pa.table({"body": body, "e": list(rows)}), path)
    return path


@pytest.mark.costly("hostile texts from a file to a report with names")
def test_one_command_ends_in_a_report_with_names(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, page = tmp_path / "run", tmp_path / "report.html"
    given = ["fit", str(texts), "-k", "4", "--texts", "body", "--report", str(page)]
    assert main([*given, "--out", str(run), *QUICK]) == 0
    assert f"report={page}" in capsys.readouterr().out
    names = [one["name"] for one in json.loads((run / "names.json").read_text())["clusters"]]
    assert any("bank loan" in name for name in names)
    found = check_self_contained(page.read_text("utf-8"))
    shown = " ".join(found.words)
    assert all(name in shown for name in names)
    assert "alert(" not in "".join(str(given) for _, given in found.tags)
    assert not set("\x1b\x07\u202e\u2066") & set(page.read_text("utf-8"))

    assert main(["info", str(run)]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in names)
    assert not set("\x1b\x07\u202e\u2066\ufffd") & set(told)

    labels = tmp_path / "labels"
    assert main(["assign", str(run), str(texts), "--out", str(labels), "--names", "--quiet"]) == 0
    table = pq.read_table(labels).to_pydict()
    assert [names[label] for label in table["label"]] == table["name"]


def test_a_run_without_names_says_how_to_make_them(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["assign", str(run), f"{data}/rows.npy", "--out", str(tmp_path / "l"), "--names"]
    assert main(arguments) == 2
    assert "has no names; make them with `prcut name" in capsys.readouterr().err
