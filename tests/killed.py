"""A command that is killed after it has written some files, and what a folder holds."""

import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def kill_after(n_files: int, command: Callable[[], object]) -> None:
    """Run a command, and kill it by SIGKILL as soon as it has written so many files.

    It runs in a fork of this process: a new one would import for seconds what is imported here.
    """
    with warnings.catch_warnings():
        # since Python 3.12, where there are threads; none of them holds a lock here
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _run_killed(n_files, command)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "it ended before it was killed"


def _run_killed(n_files: int, command: Callable[[], object]) -> None:
    replace, left = os.replace, n_files

    def count(source: str, target: str) -> None:
        nonlocal left
        replace(source, target)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = count  # type: ignore[assignment]
    try:
        command()
    finally:
        os._exit(0)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files in a folder, or of one file."""
    if folder.is_file():
        return {folder.name: folder.read_bytes()}
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
