"""Which records may stand in one table: those that differ in nothing but method and seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.harness.records import RunRecord

from prcut.errors import InvalidInputError

__all__ = ["code_states", "comparable_records", "find_mixtures", "newest_records"]

_SOURCE = "prcut source"
# their runs take hours, so they may be of another state of the code than the rest of a table
_LONG = ("prcut_published_pixels", "prcut_published_representations")


def comparable_records(
    records: Iterable[RunRecord], *, mixed: bool = False
) -> tuple[list[RunRecord], list[str]]:
    """Return the newest record of every run and their differences; refuse those unless mixed."""
    newest = newest_records(records)
    mixtures = find_mixtures(newest)
    if mixtures and not mixed:
        listed = "; ".join(mixtures)
        raise InvalidInputError(
            f"the records of one table differ in more than method and seed: {listed}. Remove "
            "the lines of the older ones and run them again, or allow it with --mixed."
        )
    return newest, mixtures


def newest_records(records: Iterable[RunRecord]) -> list[RunRecord]:
    """One record per run: a later one stands for one that failed, or that had less time."""
    kept: dict[str, RunRecord] = {}
    for record in records:
        older = kept.get(record.spec.key)
        if older is None or _is_superseded(older, record):
            kept[record.spec.key] = record
    return list(kept.values())


def _is_superseded(older: RunRecord, newer: RunRecord) -> bool:
    if older.result.status == "timed out":
        had_longer = newer.spec.time_limit > older.spec.time_limit
        return had_longer and newer.result.status != "failed"
    return older.result.status == "failed"


def find_mixtures(records: Sequence[RunRecord]) -> list[str]:
    """Return every way in which the records differ in kind, with values and numbers of records."""
    found = []
    for method in dict.fromkeys(record.spec.method for record in records):
        of_method = [r.result.versions for r in records if r.spec.method == method]
        for package in sorted({name for versions in of_method for name in versions} - {_SOURCE}):
            values = [versions.get(package) for versions in of_method if versions]
            found += _differs(f"{method}: version of {package}", values)
    for methods in ({record.spec.method for record in records} - {*_LONG}, {*_LONG}):
        states = (r.result.versions.get(_SOURCE) for r in records if r.spec.method in methods)
        found += _differs("source code of prcut", [state for state in states if state])
    for dataset in dict.fromkeys(record.spec.dataset for record in records):
        of_dataset = [record for record in records if record.spec.dataset == dataset]
        found += _differs(f"{dataset}: split", [r.spec.split for r in of_dataset])
        found += _differs(f"{dataset}: n_rows", [r.spec.n_rows for r in of_dataset])
        for representation in dict.fromkeys(r.spec.representation for r in of_dataset):
            digests = [
                record.result.data
                for record in of_dataset
                if record.spec.representation == representation and record.result.data
            ]
            found += _differs(f"{dataset}, {representation}: digest of the rows", digests)
    return found


def code_states(records: Iterable[RunRecord]) -> list[str]:
    """Return every state of the code, with the methods whose records are of it."""
    methods: dict[str, dict[str, None]] = {}
    for record in records:
        if state := record.result.versions.get(_SOURCE):
            methods.setdefault(state, {})[record.spec.method] = None
    return [f"{state} ({', '.join(names)})" for state, names in methods.items()]


def _differs(what: str, values: Sequence[object]) -> list[str]:
    """One line where the values are not all the same."""
    counts = Counter(values)
    if len(counts) < 2:
        return []
    listed = ", ".join(
        f"{'none' if value is None else value} ({count} record{'s' if count > 1 else ''})"
        for value, count in counts.items()
    )
    return [f"{what}: {listed}"]
