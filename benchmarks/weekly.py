"""Run what is too slow, or too dependent on the machine, for every change: the weekly tier.

The tests marked `weekly`, the lowest versions that pyproject.toml allows, the mutants, and the
`--quick` version of every benchmark. Two entries run side by side, on one thread each, except those
that judge ratios of times (``TIMED``): they run alone, and in turns until two of at most three
agree. Each entry's output is a file in ``build/weekly``.

Exits with 1 when an entry fell short.

    python benchmarks/weekly.py                     # about an hour on two cores
    python benchmarks/weekly.py --only speed names  # some entries
    python benchmarks/weekly.py --quick             # the fastest three entries
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import STDOUT, run

from _shared import options_of, verdict

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "build/weekly"
# each of these judges ratios of times, and runs alone, up to three times
TIMED = ("growth", "neighbors", "scaling", "speed")
# the longest begin first, so that the two processes end together
LONGEST = ("tests", "mutants", "oldest", "stability", "crashes", "chaos")
# CI runs the first two for every change; the third is this script
NOT_HERE = ("house", "prose", "weekly")
QUICK = ("contest", "tables", "unknown_k")
# an entry that hangs must not hang the rest
MAX_SECONDS = 3600


def command_of(name: str) -> list[str]:
    """Return the command of an entry."""
    if name == "tests":
        return [sys.executable, "-m", "pytest", "-q", "-m", "weekly"]
    if name == "oldest":
        return ["bash", str(ROOT / ".ci/oldest")]
    script = [sys.executable, str(ROOT / f"benchmarks/{name}.py")]
    return script if name == "mutants" else [*script, "--quick"]


def run_entry(name: str) -> tuple[str, list[bool]]:
    """Run an entry once, or in turns where it judges times; return which turns held."""
    start, turns = time.monotonic(), list[bool]()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PRCUT_CPU_ONLY": "1", "CI": "true"}
    with (LOGS / f"{name}.log").open("w") as log:
        while len(turns) < (3 if name in TIMED else 1) and max(map(turns.count, (0, 1))) < 2:
            print(f"-- turn {len(turns) + 1}, load {os.getloadavg()[0]:.2f}", file=log, flush=True)
            options = {"stdout": log, "stderr": STDOUT, "cwd": ROOT, "env": environment}
            done = run(["timeout", str(MAX_SECONDS), *command_of(name)], check=False, **options)
            turns.append(done.returncode == 0)
    marks = ", ".join("held" if turn else "fell short" for turn in turns)
    print(f"{name}: {marks} ({time.monotonic() - start:.0f} s)", flush=True)
    return name, turns


def main() -> int:
    """Run the entries, and say which fell short."""
    parser = options_of(__doc__, "the fastest three entries")
    parser.add_argument("--only", nargs="+", help="names of entries")
    given = parser.parse_args()
    benchmarks = [path.stem for path in sorted((ROOT / "benchmarks").glob("[a-z]*.py"))]
    names = [*LONGEST, *(name for name in benchmarks if name not in (*NOT_HERE, *LONGEST))]
    names = list(QUICK) if given.quick else given.only or names
    LOGS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        entries = [*pool.map(run_entry, [name for name in names if name not in TIMED])]
    entries += [run_entry(name) for name in names if name in TIMED]
    short = [
        f"{name}: see build/weekly/{name}.log"
        for name, turns in entries
        if 2 * sum(turns) <= len(turns)
    ]
    return verdict(short, f"all {len(entries)} entries")


if __name__ == "__main__":
    sys.exit(main())
