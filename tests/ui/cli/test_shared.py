"""How a command ends, and what the commands share."""

import errno
from pathlib import Path

import pytest

from prcut.errors import CorruptFileError
from prcut.ui.cli.commands import main
from prcut.ui.cli.shared import name_options


def test_what_nobody_expected_is_one_line_unless_debugging(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("prcut.runs.run.fit_run", fail)
    monkeypatch.delenv("PRCUT_DEBUG", raising=False)
    command = ["fit", f"{data}/rows.npy", "-k", "2", "-o", f"{tmp_path}/run", "--quiet"]
    assert main(command) == 1
    line = "error: ZeroDivisionError: on purpose (unexpected; PRCUT_DEBUG=1 shows the traceback)\n"
    assert capsys.readouterr().err == line
    assert "Traceback" in (tmp_path / "run/log.txt").read_text()
    monkeypatch.setenv("PRCUT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(command)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


NO_MEMORY = "out of memory; lower --memory"
NO_THREAD = "cannot start a thread: out of memory, or the limit of `ulimit -u` is reached"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "full", "a.npy"), "no space left on the disk: a.npy"),
        (MemoryError(), NO_MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), NO_MEMORY),
        (RuntimeError("can't start new thread"), NO_THREAD),
        (caused(CorruptFileError("rows cannot be read"), MemoryError()), NO_MEMORY),
    ],
)
def test_an_error_says_what_is_full_and_how_to_resume(
    data: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Exception,
    message: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("prcut.runs.run.fit_run", fail)
    assert main(["fit", f"{data}/rows.npy", "-k", "2", "-o", f"{tmp_path}/run", "--quiet"]) == 4
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: free some space or memory, then resume with: prcut fit")
    assert last == f"error: {message}"


# -- messages in the words of the command line ---------------------------------------------------

FLAGS = {"n_clusters": "--clusters", "column": "--column", "memory": "--memory", "top": "--top"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("n_clusters=0 must be >= 1.", "--clusters 0 must be >= 1."),
        ("such as by column='f*'.", "such as by --column 'f*'."),
        ("raise memory or use less memory.", "raise --memory or use less memory."),
        ("top=9 is over n_clusters=4.", "--top 9 is over --clusters 4."),
        # not of this command, or not parameters
        ("n_samples=3; a column 'top' of x.column=5", "n_samples=3; a column 'top' of x.column=5"),
    ],
)
def test_parameters_become_options_and_words_stay(message: str, expected: str) -> None:
    assert name_options(message, FLAGS) == expected
