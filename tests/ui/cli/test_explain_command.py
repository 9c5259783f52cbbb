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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either --rows"),
        (["--rows", "1,x"], "must be numbers of rows"),
        (["--ids", "a"], "the run has no id column"),
    ],
)
def test_what_cannot_be_explained_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["explain", str(run), *options]) == 2
    assert message in capsys.readouterr().err
