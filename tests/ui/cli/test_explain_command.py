from pathlib import Path

import pytest

from prcut.ui.cli.commands import main


def test_explain_says_a_sentence_for_each_row(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(run), "--rows", "7,0"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("row 0: ")
    assert second.startswith("row 7: ")
    assert " neighbours are in cluster " in first


def test_ids_of_a_run_without_them_are_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(run), "--ids", "a"]) == 2
    assert "the run has no id column" in capsys.readouterr().err
