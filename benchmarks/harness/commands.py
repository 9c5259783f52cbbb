"""What `python -m benchmarks.harness` does."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness.contest.report import summarise_contest
from benchmarks.harness.methods import METHODS
from benchmarks.harness.records import RunRecord, RunSpec, read_records
from benchmarks.harness.runner import run_all
from benchmarks.harness.summary import summarise
from benchmarks.harness.tables import TABLES, select_specs

from prcut.errors import InvalidInputError, PRCutError

__all__ = ["bench_table"]

_LOG = logging.getLogger(__name__)


def bench_table(
    name: str,
    *,
    results: str | Path = "benchmarks/results",
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    summary_only: bool = False,
    mixed: bool = False,
) -> str:
    """Run what is missing of a table and return its summary, which is also kept as a file."""
    if name not in TABLES:
        raise InvalidInputError(f"{name!r} is no table; choose from {', '.join(TABLES)}.")
    specs = select_specs(TABLES[name](), methods=methods, datasets=datasets)
    if not summary_only:
        specs = _runnable(specs, is_lenient=name == "quick")
    folder = Path(results)
    records: list[RunRecord] = []
    for table in dict.fromkeys(spec.table for spec in specs):
        path = folder / f"{table}.jsonl"
        of_table = [spec for spec in specs if spec.table == table]
        found = read_records(path) if summary_only else run_all(of_table, path)
        records += [
            record
            for record in found
            if (methods is None or record.spec.method in methods)
            and (datasets is None or record.spec.dataset in datasets)
        ]
    if not records:
        raise InvalidInputError(f"{folder} holds no runs of {name}; run it first.")
    as_text: Callable[..., str] = summarise_contest if name == "contest" else summarise
    text = as_text(records, mixed=mixed)
    (folder / f"{name}.md").write_text(text, "utf-8")
    return text


def _runnable(specs: Sequence[RunSpec], *, is_lenient: bool) -> list[RunSpec]:
    """Return the specs whose packages are installed; where it matters, all must be."""
    installed = {str(one.metadata["Name"]).lower() for one in importlib.metadata.distributions()}
    for method in dict.fromkeys(spec.method for spec in specs):
        missing = [name for name in METHODS[method].packages if name.lower() not in installed]
        if missing:
            lacks = f"{method} needs {' and '.join(missing)}: pip install 'prcut[bench]'"
            if not is_lenient:
                raise PRCutError(f"{lacks}, or leave it out by --methods.")
            _LOG.warning("%s; it is left out", lacks)
            specs = [spec for spec in specs if spec.method != method]
    return list(specs)
