"""What `python -m benchmarks.harness` does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.contest.report import summarise_contest
from benchmarks.harness.quality import summarise_quality
from benchmarks.harness.records import RunRecord, RunSpec, drop_records, read_records
from benchmarks.harness.runner import run_all
from benchmarks.harness.summary import summarise
from benchmarks.harness.tables import TABLES, missing_packages, parse_seeds, select_specs

from prcut.errors import InvalidInputError, PRCutError
from prcut.runtime.progress import Progress

__all__ = ["BenchOptions", "bench_table"]

_LOG = logging.getLogger(__name__)
_OnProgress = Callable[[Progress], None]
# of tables that do not compare methods
_SUMMARIES: dict[str, Callable[..., str]] = {
    "quality": summarise_quality,
    "contest": summarise_contest,
}


@dataclass(frozen=True)
class BenchOptions:
    """What the command line was asked for."""

    results: str = "benchmarks/results"
    methods: str | None = None
    datasets: str | None = None
    seeds: str | None = None
    quick: bool = False
    time_limit: float | None = None
    redo: bool = False
    summary_only: bool = False
    mixed: bool = False
    plot: bool = False


def bench_table(name: str, options: BenchOptions, on_progress: _OnProgress | None = None) -> str:
    """Run what is missing of a table and return its summary, which is also kept as a file."""
    if name not in TABLES:
        raise InvalidInputError(f"{name!r} is no table; choose from {', '.join(TABLES)}.")
    if options.time_limit is not None and options.time_limit <= 0:
        raise InvalidInputError(f"time_limit={options.time_limit:g} must be > 0.")
    if options.plot and name in _SUMMARIES:
        raise InvalidInputError(f"{name} has no plot; leave out --plot.")
    methods, datasets = _names(options.methods), _names(options.datasets)
    seeds = None if options.seeds is None else parse_seeds(options.seeds)
    specs = select_specs(
        TABLES[name](options.quick),
        methods=methods,
        datasets=datasets,
        seeds=seeds,
        time_limit=options.time_limit,
    )
    if not options.summary_only:
        specs = _runnable(specs, is_lenient=name == "quick" or options.quick)
    end = "-quick" if options.quick else ""
    folder = Path(options.results)
    records: list[RunRecord] = []
    for table in dict.fromkeys(spec.table for spec in specs):
        path = folder / f"{table}{end}.jsonl"
        of_table = [spec for spec in specs if spec.table == table]
        if options.summary_only:
            found = read_records(path)
        else:
            if options.redo:
                drop_records(path, [spec.key for spec in of_table])
            found = run_all(of_table, path, on_progress=on_progress)
        records += [
            record
            for record in found
            if (methods is None or record.spec.method in methods)
            and (datasets is None or record.spec.dataset in datasets)
            and (seeds is None or record.spec.seed in seeds)
        ]
    if not records:
        raise InvalidInputError(f"{folder} holds no runs of {name}{end}; run it first.")
    as_text: Callable[..., str] = _SUMMARIES.get(name, summarise)
    text = as_text(records, mixed=options.mixed)
    (folder / f"{name}{end}.md").write_text(text, "utf-8")
    if options.plot:
        _plot(records, folder, f"{name}{end}")
    return text


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _runnable(specs: Sequence[RunSpec], *, is_lenient: bool) -> list[RunSpec]:
    """Return the specs whose packages are installed; where it matters, all must be."""
    for method in dict.fromkeys(spec.method for spec in specs):
        if missing := missing_packages(method):
            lacks = f"{method} needs {' and '.join(missing)}: pip install 'prcut[bench]'"
            if not is_lenient:
                raise PRCutError(f"{lacks}, or leave it out by --methods.")
            _LOG.warning("%s; it is left out", lacks)
            specs = [spec for spec in specs if spec.method != method]
    return list(specs)


def _plot(records: Sequence[RunRecord], folder: Path, name: str) -> None:
    from benchmarks.harness.plots import plot_quality

    for dataset in dict.fromkeys(record.spec.dataset for record in records):
        path = folder / f"{name}-{dataset}.svg"
        plot_quality([record for record in records if record.spec.dataset == dataset], path)
        _LOG.info("plot: %s", path)
