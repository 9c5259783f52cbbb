"""Run what is too slow, or too dependent on the machine, for every change: the weekly tier.

The tests marked `weekly`, the lowest versions that pyproject.toml allows, the mutants, and the
`--quick` version of every benchmark. Two entries run side by side, on one thread each, except those
that judge ratios of times (``TIMED``): they run alone, and in turns until two of at most three
agree. Each entry's output is a file in ``build/weekly``; the summary is printed as a table, with
the machine's load when the entry began.

Exits with 1 when an entry fell short.

    python benchmarks/weekly.py                     # about an hour on two cores
    python benchmarks/weekly.py --only speed names  # some entries
    python benchmarks/weekly.py --quick             # the fastest three entries
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT, run

from _shared import options_of, verdict

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "build/weekly"
# each of these judges ratios of times, and runs alone, up to three times
TIMED = ("growth", "neighbors", "speed")
# the longest begin first, so that the two processes end together
LONGEST = ("tests", "mutants", "oldest", "stability", "crashes", "chaos")
# CI runs the first for every change; the second is this script
NOT_HERE = ("house", "weekly")
QUICK = ("contest", "tables", "unknown_k")
# an entry that hangs must not hang the rest
MAX_SECONDS = 3600


@dataclass(frozen=True)
class Entry:
    """How one entry ended."""

    name: str
    turns: tuple[bool, ...]
    seconds: float
    load: float

    @property
    def held(self) -> bool:
        """Whether most of its turns held."""
        return 2 * sum(self.turns) > len(self.turns)


def command_of(name: str) -> list[str]:
    """Return the command of an entry."""
    if name == "tests":
        return [sys.executable, "-m", "pytest", "-q", "-m", "weekly"]
    if name == "oldest":
        return ["bash", str(ROOT / ".ci/oldest")]
    script = [sys.executable, str(ROOT / f"benchmarks/{name}.py")]
    return script if name == "mutants" else [*script, "--quick"]


def run_entry(name: str) -> Entry:
    """Run an entry once, or in turns where it judges times."""
    start, load, turns = time.monotonic(), os.getloadavg()[0], list[bool]()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PRCUT_CPU_ONLY": "1", "CI": "true"}
    with (LOGS / f"{name}.log").open("w") as log:
        while len(turns) < (3 if name in TIMED else 1) and max(map(turns.count, (0, 1))) < 2:
            print(f"-- turn {len(turns) + 1}, load {os.getloadavg()[0]:.2f}", file=log, flush=True)
            options = {"stdout": log, "stderr": STDOUT, "cwd": ROOT, "env": environment}
            done = run(["timeout", str(MAX_SECONDS), *command_of(name)], check=False, **options)
            turns.append(done.returncode == 0)
    entry = Entry(name, tuple(turns), time.monotonic() - start, load)
    marks = ", ".join("held" if turn else "fell short" for turn in turns)
    print(f"{name}: {marks} ({entry.seconds:.0f} s, load {load:.2f})", flush=True)
    return entry


def main() -> int:
    """Run the entries and print their summary."""
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

    print("\n| entry | turns that held | seconds | load at its start |\n|---|---|---|---|")
    for one in entries:
        turns = f"{sum(one.turns)} of {len(one.turns)}"
        print(f"| {one.name} | {turns} | {one.seconds:.0f} | {one.load:.2f} |")
    short = [f"{one.name}: see build/weekly/{one.name}.log" for one in entries if not one.held]
    return verdict(short, f"all {len(entries)} entries")


if __name__ == "__main__":
    sys.exit(main())
