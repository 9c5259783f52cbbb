"""Run the tests of what changed since the last commit, room by room: part of `make quick`.

A change of ``src/prcut/<room>/…`` runs ``tests/<room>``, a change of a test file that file. Tests
that cost more than 2 CPU-seconds are left to `make check`.
"""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Return the exit status of pytest, 0 where nothing with tests changed."""
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    lines = subprocess.run(status, check=True, capture_output=True, text=True).stdout.splitlines()
    chosen = set[str]()
    for path in (Path(line[3:].rpartition(" -> ")[2]) for line in lines):
        match path.parts:
            case ("src", "prcut", room, _, *_) if Path("tests", room).is_dir():
                chosen.add(f"tests/{room}")
            case ("src", "prcut", file) if Path("tests", f"test_{file}").exists():
                chosen.add(f"tests/test_{file}")
            case ("tests", *_) if path.name.startswith("test_") and path.exists():
                chosen.add(str(path))
    if not chosen:
        print("nothing with tests of its own has changed")
        return 0
    options = ["-q", "-n", "2", "-m", "not weekly and not costly"]
    command = [sys.executable, "-m", "pytest", *options, *sorted(chosen)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
