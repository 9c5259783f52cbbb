"""Cold start: a new process imports prcut and has the labels of 1,000 rows.

    python benchmarks/cold_start.py            # the best of 5 processes
    python benchmarks/cold_start.py --quick    # of 2

torch and scikit-learn are most of it, so each is imported first and timed by itself; the modules
that a fit of 1,000 rows has no use for are listed where something imported them all the same.
"""

import argparse
import json
import subprocess
import sys

from _verdict import verdict

# on a machine that imports torch and scikit-learn in 3 s; a slower one is given as much more
MOST_SECONDS, IMPORT_SECONDS = 4.0, 3.0
UNUSED = ("faiss", "torch._dynamo", "sympy", "matplotlib", "typer", "jinja2", "ray")
PROCESS = """
import json, sys, time
clocks = [(time.perf_counter(), time.process_time())]
def lap():
    clocks.append((time.perf_counter(), time.process_time()))
import torch; lap()
import sklearn.base; lap()
from prcut import PRCut; lap()
import numpy as np
rng = np.random.default_rng(0)
rows = 5 * rng.normal(size=(10, 16))[np.arange(1000) % 10] + rng.normal(size=(1000, 16))
PRCut(10, random_state=0).fit(rows.astype(np.float32)).labels_; lap()
laps = [[b - a for a, b in zip(*pair)] for pair in zip(clocks, clocks[1:])]
print(json.dumps({"laps": laps, "modules": [*sys.modules]}))
"""
PARTS = ("import torch", "import sklearn.base", "import prcut", "fit")


def run() -> dict[str, list]:  # type: ignore[type-arg]
    """Return wall and processor seconds of each part in a new process, and its modules."""
    command = [sys.executable, "-c", PROCESS]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output)  # type: ignore[no-any-return]


def main() -> int:
    """Print the parts of the quickest process; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="2 processes")
    n_processes = 2 if parser.parse_args().quick else 5
    run()  # writes what Python caches
    best = min((run() for _ in range(n_processes)), key=lambda one: sum(w for w, _ in one["laps"]))
    print("| part | wall, s | processor, s |\n|---|---|---|")
    total = [sum(column) for column in zip(*best["laps"], strict=True)]
    for part, (wall, cpu) in zip((*PARTS, "all"), (*best["laps"], total), strict=True):
        print(f"| {part} | {wall:.2f} | {cpu:.2f} |")
    print("imported without need:", ", ".join(set(UNUSED) & set(best["modules"])) or "nothing")
    imports = sum(wall for wall, _ in best["laps"][:2])
    most = MOST_SECONDS * max(1.0, imports / IMPORT_SECONDS)
    short = [f"{total[0]:.2f} s to the labels > {most:.2f} s"] * (total[0] > most)
    return verdict(short, f"labels of 1,000 rows within {most:.2f} s of a new process")


if __name__ == "__main__":
    sys.exit(main())
