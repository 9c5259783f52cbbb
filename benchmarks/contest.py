"""Who is first on data that nobody tuned on: the contest's ranks, tests and claims.

126 data sets (texts, images, tables, planted, long-tailed samples), in two halves:
``development``, by which rules may be changed, and ``test``, which is run once per release
candidate from a clean checkout; each start of it is a line in ``results/contest_test_log.md``.
Runs are processes of their own, and resumable; the records are ``results/contest.jsonl`` and
``results/contest_test.jsonl``.

Exits with 1 when a claim falls short: mean rank (NMI) of the default before every peer's, over all
and by kind; better than k-means, SpectralClustering, HDBSCAN, EVoC and UMAP + HDBSCAN by Wilcoxon
with Holm at .05; behind k-means by more than .05 NMI on one set in ten at most; accuracy of the
better of Leiden at equal k and METIS reached on two thirds.

    python benchmarks/contest.py                     # from the committed records, development
    python benchmarks/contest.py --half test         # the same of the test half
    python benchmarks/contest.py --summary           # the committed summary is that of the records
    python benchmarks/contest.py --run               # first runs what is missing: hours
    python benchmarks/contest.py --quick             # three small sets, few methods: a minute
"""

import datetime
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.contest.claims import check_claims
from benchmarks.harness.contest.report import describe_contest
from benchmarks.harness.contest.scoreboard import make_scoreboard
from benchmarks.harness.contest.sets import HALVES
from benchmarks.harness.contest.specs import contest_specs
from benchmarks.harness.records import RunRecord, read_records
from benchmarks.harness.runner import pending_specs, run_all

from _shared import options_of, verdict

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LOG = RESULTS / "contest_test_log.md"
PROMISE = "the default is first on this half, as the claims say"


def ask_git(*arguments: str) -> str:
    command = [shutil.which("git") or "git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def log_test_run(n_runs: int) -> None:
    """Write down that the test half is looked at, and of which code; refuse changes in sight."""
    if changes := ask_git("status", "--porcelain"):
        sys.exit(f"the test half is run from a clean checkout only; commit first:\n{changes}")
    if not LOG.exists():
        LOG.write_text("# Runs of the test half\n\n| date | commit | runs |\n|---|---|---|\n")
    with LOG.open("a") as log:
        log.write(f"| {datetime.date.today()} | {ask_git('rev-parse', 'HEAD')} | {n_runs} |\n")


def run_half(half: str) -> None:
    specs = contest_specs(half)
    path = RESULTS / f"{specs[0].table}.jsonl"
    pending = pending_specs(specs, read_records(path))
    print(f"{half}: {len(pending)} of {len(specs)} runs are missing", flush=True)
    if half == "test" and pending:
        log_test_run(len(pending))
    run_all(specs, path)


def check_summary(records: list[RunRecord], name: str) -> int:
    """Compare the committed summary with the records; no claim is judged."""
    committed = (RESULTS / f"{name}.md").read_text("utf-8")
    is_current = committed == describe_contest(make_scoreboard(records))
    short = [] if is_current else [f"{name}.md does not match the records; run without --summary"]
    return verdict(short, f"{name}.md is the summary of {len(records)} records")


def report(records: list[RunRecord], folder: Path, name: str) -> list[str]:
    """Print and keep the report; return what falls short."""
    board = make_scoreboard(records)
    text = describe_contest(board)
    (folder / f"{name}.md").write_text(text, "utf-8")
    print(text)
    return check_claims(board, name.removeprefix("contest_"))


def run_quick() -> int:
    """Go from rows to ranks on three small sets; few sets prove nothing, so no claim is checked."""
    specs = contest_specs("development", quick=True)
    with tempfile.TemporaryDirectory() as folder:
        records = run_all(specs, Path(folder) / "contest.jsonl")
        report(records, Path(folder), "contest_quick")
    short = [
        f"{record.spec.dataset}, {record.spec.method}: {record.result.message}"
        for record in records
        if record.result.status != "done"
    ]
    return verdict(short, "every run ends, and the contest is scored")


def main() -> int:
    parser = options_of(__doc__, "three small sets, no claims")
    parser.add_argument("--half", choices=HALVES, default="development")
    parser.add_argument("--run", action="store_true", help="first run what is missing")
    parser.add_argument("--summary", action="store_true", help="compare the committed summary")
    given = parser.parse_args()
    if given.quick:
        return run_quick()
    if given.run:
        run_half(given.half)
    table = "contest" if given.half == "development" else "contest_test"
    records = read_records(RESULTS / f"{table}.jsonl")
    if not records:
        print(f"no records of the {given.half} half; --run makes them")
        return 1
    if given.summary:
        return check_summary(records, f"contest_{given.half}")
    return verdict(report(records, RESULTS, f"contest_{given.half}"), PROMISE)


if __name__ == "__main__":
    sys.exit(main())
