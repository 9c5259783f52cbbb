"""Compare this version with an earlier one, keep the figures, and fail where one is 10 % worse.

    python benchmarks/_regression.py run --before RELEASE/bin/python --out result.json
    python benchmarks/_regression.py record result.json --history history.jsonl
    python benchmarks/_regression.py judge --history history.jsonl

Machines that are rented by the minute differ by more than 10 %, so seconds of different weeks are
not compared: both versions are measured in turns on one machine, and the least of several rounds
counts. The weekly workflow keeps a line for every week; ``record`` and ``judge`` need nothing
but Python.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 1.10
_ROUNDS = 5

# of every figure less is better: CPU-seconds, and the ratio cut of what was found
Figures = dict[str, float]


def measure(n_rows: int = 6000) -> Figures:
    """Fit, predict and build graphs of planted rows with the prcut of this process."""
    import numpy as np

    from prcut import PRCut, build_graph

    rng = np.random.default_rng(0)
    centers = rng.normal(size=(20, 32))
    rows = centers[rng.integers(20, size=n_rows)] + 0.9 * rng.normal(size=(n_rows, 32))
    rows = rows.astype(np.float32)
    fixed = {"n_clusters": 20, "n_neighbors": 10, "random_state": 0, "n_jobs": 1}
    PRCut(**fixed).fit(rows[:500])  # what is loaded on first use is not measured
    found: Figures = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        found[f"{name}, s"] = time.process_time() - start
        return result

    timed("graph", lambda: build_graph(rows, n_neighbors=10))
    model = timed("fit", lambda: PRCut(**fixed).fit(rows))
    found["fit, ratio cut"] = float(model.ratio_cut_)
    default = timed("fit, nothing set", lambda: PRCut(20, random_state=0, n_jobs=1).fit(rows))
    timed("distil", lambda: default.predict(rows[:1]))
    many = np.tile(rows, (20, 1))
    timed("predict", lambda: default.predict(many))
    return found


def in_turns(
    before: Callable[[], Figures], now: Callable[[], Figures], rounds: int = _ROUNDS
) -> dict[str, dict[str, float]]:
    """Return the least of every figure of both; what seems worse is measured as often again."""
    least: dict[str, dict[str, float]] = {}
    for number in range(2 * rounds):
        if number == rounds and not worse(least):
            break
        for side, measure_side in (("before", before), ("now", now)):
            for name, value in measure_side().items():
                figure = least.setdefault(name, {})
                figure[side] = min(value, figure.get(side, value))
    return least


def worse(figures: dict[str, dict[str, float]], limit: float = LIMIT) -> list[str]:
    """Say what exceeds the limit, or is no longer measured."""
    found = []
    for name, values in figures.items():
        if "now" not in values:
            found.append(f"{name}: was measured before, not now")
        elif values["now"] > limit * values.get("before", values["now"]):
            ratio = values["now"] / values["before"] if values["before"] else float("inf")
            found.append(f"{name}: {values['now']:.4g}, {ratio:.2f} times {values['before']:.4g}")
    return found


def _measured_by(python: str) -> Figures:
    # -P: the installed prcut of that Python, not one that lies beside this script
    command = [python, "-P", __file__, "measure"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    found: Figures = json.loads(run.stdout.splitlines()[-1])
    return found


def record(result: Path, history: Path) -> None:
    """Add a result to the history, as one line."""
    line = json.dumps(json.loads(result.read_text("utf-8")), sort_keys=True)
    with history.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def judge(history: Path) -> int:
    """Show the last weeks, and fail where the last of them is worse."""
    weeks = [json.loads(line) for line in history.read_text("utf-8").splitlines() if line]
    if not weeks:
        print(f"{history} holds no result")
        return 1
    for name, values in weeks[-1]["figures"].items():
        ratios = [
            "–"
            if {"now", "before"} - figure.keys() or not figure["before"]
            else f"{figure['now'] / figure['before']:.2f}"
            for week in weeks[-8:]
            for figure in [week["figures"].get(name, {})]
        ]
        print(f"{name:24} {values.get('now', float('nan')):10.4g}  now/before: {' '.join(ratios)}")
    short = worse(weeks[-1]["figures"])
    print("\n".join(["more than 10 % worse:", *short] if short else ["nothing is 10 % worse"]))
    return 1 if short else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("measure", help="print the figures of this Python's prcut")
    run = commands.add_parser("run", help="measure two versions in turns")
    run.add_argument("--before", required=True, help="the Python that has the earlier version")
    run.add_argument("--out", type=Path, required=True)
    add = commands.add_parser("record", help="add a result to the history")
    add.add_argument("result", type=Path)
    last = commands.add_parser("judge", help="fail where the last result is worse")
    for command in (add, last):
        command.add_argument("--history", type=Path, required=True)
    options = parser.parse_args(arguments)
    if options.command == "judge":
        return judge(options.history)
    if options.command == "record":
        record(options.result, options.history)
    elif options.command == "measure":
        print(json.dumps(measure()))
    else:
        figures = in_turns(
            lambda: _measured_by(options.before), lambda: _measured_by(sys.executable)
        )
        about = {"time": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "on": platform.platform()}
        options.out.write_text(json.dumps({**about, "figures": figures}, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
