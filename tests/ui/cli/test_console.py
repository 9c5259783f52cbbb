"""Messages on a console and in a log file."""

import logging
import re
import warnings
from pathlib import Path

import pytest

from prcut.errors import DataWarning
from prcut.runtime.progress import Progress
from prcut.ui.cli.console import open_messages

LOGGER = logging.getLogger("prcut.anything")


def say_everything(log: Path | None = None, *, quiet: bool = False) -> None:
    with open_messages("prcut fit", quiet=quiet) as messages, messages.progress() as display:
        if log is not None:
            messages.log_to(log)
        messages.say("a long message " * 10)
        LOGGER.info("of [a] module")
        warnings.warn("look:\n- here", DataWarning, stacklevel=1)
        display.on_progress(Progress("scatter", 10, 10, 5.0, 0.0))
        messages.warn("careful")


def test_lines_go_to_standard_error_and_with_times_to_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say_everything(tmp_path / "log.txt")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "a long message " * 10,
        "of [a] module",
        "warning: look:",
        "  - here",
        "scatter: 10/10  5/s",
        "warning: careful",
    ]
    log = (tmp_path / "log.txt").read_text().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \S+ INFO    of \[a\] module", log[1])
    assert log[-2].endswith("INFO    scatter: 10/10  5/s")
    assert log[-1].endswith("WARNING careful")
    # quiet hides all but warnings, and the log has everything
    say_everything(tmp_path / "quiet.txt", quiet=True)
    assert capsys.readouterr().err == "warning: look:\n  - here\nwarning: careful\n"
    assert "scatter: 10/10" in (tmp_path / "quiet.txt").read_text()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyboardInterrupt(), "WARNING interrupted; resume with: prcut fit\n"),
        (ZeroDivisionError("on purpose"), "ZeroDivisionError: on purpose\n"),
    ],
)
def test_the_log_ends_with_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: BaseException, words: str
) -> None:
    with pytest.raises(type(error)), open_messages("prcut fit") as messages:  # noqa: PT012
        messages.log_to(tmp_path / "log.txt")
        raise error
    log = (tmp_path / "log.txt").read_text()
    assert log.endswith(words)
    assert ("Traceback" in log) == isinstance(error, ZeroDivisionError)
    assert ("interrupted" in capsys.readouterr().err) == isinstance(error, KeyboardInterrupt)
