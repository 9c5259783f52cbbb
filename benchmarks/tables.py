"""Check the claims made from the committed results of the harness, and their summaries.

    python benchmarks/tables.py             # read the results, check the claims and the summaries
    python benchmarks/tables.py --write     # write the summaries anew
    python benchmarks/tables.py --quick     # run the small table, check it and the summaries

Runs are made by `python -m benchmarks.harness table1` and so on; here nothing is run but the small
table.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.harness.commands import bench_table
from benchmarks.harness.records import RunRecord, read_records
from benchmarks.harness.tables import TABLES

from _shared import options_of, verdict

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks/results", ROOT / "docs/benchmarks.md"
# below cross-entropy at most, in accuracy
TABLE1_MARGIN = 0.005


def main() -> int:
    parser = options_of(__doc__, "run the table of the digits too")
    parser.add_argument("--write", action="store_true", help="write the summaries")
    args = parser.parse_args()
    if args.quick:
        short = [*quick(), *summaries(write=False)]
        return verdict(
            short, "no peer cuts the digits better, and the summaries are those of the results"
        )
    short = []
    for name, claim in (("table1", table1), ("table2", table2)):
        path = RESULTS / f"{name}.jsonl"
        short += claim(done(path)) if path.exists() else [f"{path.name} is missing"]
    short += summaries(write=args.write)
    return verdict(
        short, "PRCut within .005 of cross-entropy (table 1), below SC's best RC (table 2)"
    )


def done(path: Path) -> list[RunRecord]:
    return [record for record in read_records(path) if record.result.status == "done"]


def table1(records: list[RunRecord]) -> Iterator[str]:
    print("\n| table 1 | PRCut | cross-entropy |\n|---|---|---|")
    for dataset in dict.fromkeys(record.spec.dataset for record in records):
        ours, theirs = (
            median(
                record.result.acc or 0.0
                for record in records
                if (record.spec.dataset, record.spec.method) == (dataset, method)
            )
            for method in ("prcut_labels", "cross_entropy")
        )
        print(f"| {dataset} | {ours:.4f} | {theirs:.4f} |")
        if ours < theirs - TABLE1_MARGIN:
            yield f"table 1, {dataset}: {ours:.4f} < {theirs:.4f} - {TABLE1_MARGIN}"


def table2(records: list[RunRecord]) -> Iterator[str]:
    """Compare the worst of our seeds with their best."""
    print("\n| table 2, RC | PRCut, worst seed | SC, best seed |\n|---|---|---|")
    for graph in dict.fromkeys((r.spec.dataset, r.spec.n_neighbors) for r in records):
        cuts = {
            method: [
                record.result.ratio_cut or 0.0
                for record in records
                if (record.spec.dataset, record.spec.n_neighbors) == graph
                and record.spec.method == method
            ]
            for method in ("prcut_cut", "spectral_clustering")
        }
        if not all(cuts.values()):
            yield f"table 2, {graph}: runs are missing"
            continue
        ours, theirs = max(cuts["prcut_cut"]), min(cuts["spectral_clustering"])
        print(f"| {graph[0]}, {graph[1]} neighbours | {ours:.3f} | {theirs:.3f} |")
        if ours >= theirs:
            yield f"table 2, {graph}: RC {ours:.3f} >= {theirs:.3f}"


def summaries(*, write: bool) -> Iterator[str]:
    """Check that every table on the page has a summary beside its records, made from them."""
    for name in re.findall(r"<!-- results: (\w+) -->", PAGE.read_text("utf-8")):
        if name not in TABLES:  # a script of its own writes it
            continue
        path = RESULTS / f"{name}.md"
        before = path.read_text("utf-8") if path.exists() else ""
        summary = bench_table(name, results=RESULTS, summary_only=True, mixed=True)
        if summary != before and not write:
            path.write_text(before, "utf-8")
            yield f"{path.name} is out of date: run with --write"


def quick() -> Iterator[str]:
    """Compare our cut of the digits with that of the peers that have one."""
    peers = ("spectral_clustering", "leiden_k")
    with tempfile.TemporaryDirectory() as folder:
        print(bench_table("quick", results=folder, methods=("prcut_cut", *peers)))
        records = done(Path(folder) / "quick.jsonl")
    cuts = {
        method: [r.result.ratio_cut or 0.0 for r in records if r.spec.method == method]
        for method in ("prcut_cut", *peers)
    }
    for peer in peers:
        if cuts[peer] and max(cuts["prcut_cut"]) > min(cuts[peer]):
            yield f"digits: RC {max(cuts['prcut_cut']):.3f} > {peer}'s {min(cuts[peer]):.3f}"


if __name__ == "__main__":
    sys.exit(main())
