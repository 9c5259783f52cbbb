"""Tables of finished runs, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.harness.methods import METHODS
from benchmarks.harness.mixing import code_states, comparable_records
from benchmarks.harness.records import RunRecord

__all__ = ["footer", "run_seconds", "score_text", "spread", "summarise"]

_SPECTRAL = "spectral_clustering"
_SCORES = ("acc", "nmi", "ari", "ratio_cut", "normalized_cut")
_HEAD = "| method | ACC | NMI | ARI | RC | NC | clusters | time |"
_RULE = "|---|---|---|---|---|---|---|---|"
_NOTE = (
    "Medians over seeds (range); best of a column in italics, of cuts among those with as many "
    "clusters as classes. ACC: Hungarian; NMI: over the larger entropy; RC, NC: ratio and "
    "normalised cut on the graph of the heading. Noise is wrong in ACC and one cluster in NMI "
    "and ARI. Time is that of the method, with neighbours and graph where it was given the "
    "graph."
)


def summarise(
    records: Sequence[RunRecord],
    *,
    mixed: bool = False,
) -> str:
    """Return a table per data set, representation and graph: medians over seeds, with their range.

    Parameters
    ----------
    records : sequence of RunRecord
        In the order of their file.
    mixed : bool
        Allow records of different versions, code, splits or rows, and say so beneath. Without it
        they are refused, since no reader could know what a difference comes from.
    """
    records, mixtures = comparable_records(records, mixed=mixed)
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_heading(record), []).append(record)
    parts = [_table(heading, group) for heading, group in groups.items()]
    return "\n\n".join([*parts, footer(records, mixtures, note=_NOTE)]) + "\n"


def run_seconds(record: RunRecord) -> float:
    """Seconds of a run that is done; with those of the graph for a method that was given one."""
    seconds = record.result.wall_seconds or 0.0
    method = METHODS.get(record.spec.method)
    if method is not None and method.on_graph:
        seconds += record.result.graph_seconds or 0.0
    return seconds


# -- one table -----------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A line of a table."""

    method: str
    title: str
    done: list[RunRecord]
    others: list[RunRecord]
    """Runs that timed out or failed."""
    seconds: list[float]

    def middle(self, score: str) -> float | None:
        values = _values(self.done, score)
        return median(values) if values else None

    @property
    def has_all_clusters(self) -> bool:
        return all(r.result.used_clusters == r.result.n_clusters for r in self.done)


def _heading(record: RunRecord) -> str:
    spec = record.spec
    rows = "" if spec.n_rows is None else f", first {spec.n_rows:,} rows"
    graph = f"{spec.n_neighbors} neighbours" if spec.n_neighbors else "same label as similarity"
    return f"### {spec.dataset} ({spec.split}{rows}), {spec.representation}, {graph}"


def _table(heading: str, records: Sequence[RunRecord]) -> str:
    rows: list[_Row] = []
    for key in dict.fromkeys(record.spec.method for record in records):
        runs = [record for record in records if record.spec.method == key]
        rows += _rows(key, _title(key), runs)
    rows.sort(key=lambda row: -(row.middle("acc") or -1.0))
    best = {score: _best(rows, score) for score in _SCORES}
    lines = [heading, "", _size(records), "", _HEAD, _RULE]
    lines += [_line(row, best) for row in rows]
    remarks = [remark for score in ("acc", "nmi") if (remark := _not_first(rows, score))]
    return "\n".join([*lines, *(["", "  \n".join(remarks)] if remarks else [])])


def _title(key: str) -> str:
    if key not in METHODS:
        return key
    return METHODS[key].title + ("" if METHODS[key].given_k else "¹")


def _size(records: Sequence[RunRecord]) -> str:
    known = next((r.result for r in records if r.result.n_samples is not None), None)
    if known is None:
        return "No run was finished."
    return f"{known.n_samples:,} rows, {known.n_features:,} features, {known.n_clusters} classes."


def _rows(key: str, title: str, runs: Sequence[RunRecord]) -> list[_Row]:
    """Return the line of a method; spectral clustering gets one more, for its best start."""
    done = [record for record in runs if record.result.status == "done"]
    others = [record for record in runs if record.result.status != "done"]
    seconds = [run_seconds(record) for record in done]
    rows = [_Row(key, title, done, others, seconds)]
    if key == _SPECTRAL and len(done) > 1:
        # by the cut it seeks, never by the labels; finding it takes the time of them all
        best = min(done, key=lambda record: record.result.ratio_cut or math.inf)
        rows.append(_Row(key, f"{title}, best of {len(done)} by RC", [best], [], [sum(seconds)]))
    return rows


def _best(rows: Sequence[_Row], score: str) -> float | None:
    """Return the best median of a column; cuts compare only at the same number of clusters."""
    is_cut = score.endswith("cut")
    compared = [row for row in rows if not is_cut or row.has_all_clusters]
    values = [value for row in compared if (value := row.middle(score)) is not None]
    return (min if is_cut else max)(values, default=None)


def _line(row: _Row, best: Mapping[str, float | None]) -> str:
    cells = [row.title]
    for score in _SCORES:
        cell = spread(_values(row.done, score), score_text)
        is_best = cell != "—" and row.middle(score) == best[score]
        cells.append(f"*{cell}*" if is_best else cell)
    return f"| {' | '.join([*cells, _clusters(row), _time(row)])} |"


def _values(records: Sequence[RunRecord], score: str) -> list[float]:
    found = [getattr(record.result, score) for record in records]
    return [value for value in found if value is not None]


def spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Median and, where they differ as written, range."""
    if not values:
        return "—"
    low, middle, high = (text(value) for value in (min(values), median(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def score_text(value: float) -> str:
    """Format a number of a table."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def _seconds_text(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _clusters(row: _Row) -> str:
    cell = spread(_values(row.done, "used_clusters"), lambda value: f"{value:.0f}")
    noise = median(_values(row.done, "noise_share") or [0.0])
    return f"{cell}, {100 * noise:.0f} % noise" if noise else cell


def _time(row: _Row) -> str:
    parts = [f"{spread(row.seconds, _seconds_text)} s"] if row.done else []
    late = [r.spec.time_limit for r in row.others if r.result.status == "timed out"]
    failed = len(row.others) - len(late)
    of_all = f" ({{}} of {len(row.done) + len(row.others)} seeds)" if row.done else ""
    if late:
        parts.append(f"> {max(late):g} s" + of_all.format(len(late)))
    if failed:
        parts.append("failed" + of_all.format(failed))
    return ", ".join(parts)


def _not_first(rows: Sequence[_Row], score: str) -> str | None:
    """Return the sentence that says so where another method is better than every PRCut."""
    scored = [(value, row) for row in rows if (value := row.middle(score)) is not None]
    ours = [value for value, row in scored if row.method.startswith("prcut")]
    others = [(value, row.title) for value, row in scored if not row.method.startswith("prcut")]
    if not ours or not others or max(others)[0] <= max(ours):
        return None
    value, title = max(others)
    against = f"{value:.3f} against {max(ours):.3f}"
    return f"**PRCut is not first in {score.upper()}: {title.rstrip('¹')} {against}.**"


# -- beneath the tables --------------------------------------------------------------------------


def footer(
    records: Sequence[RunRecord],
    mixtures: Sequence[str],
    *,
    note: str,
) -> str:
    """Explain what the columns mean and where the numbers come from."""
    seeds = sorted({record.spec.seed for record in records})
    lines = [
        note,
        f"Seeds {', '.join(map(str, seeds))}; {len(records)} runs, {_total(records)} in all.",
    ]
    if any(r.spec.method in METHODS and not METHODS[r.spec.method].given_k for r in records):
        lines.append("¹ Not told the number of clusters.")
    states = code_states(records)
    if len(states) > 1:
        lines.append(f"Code of prcut: {'; '.join(states)}.")
    machines = list(dict.fromkeys(_machine(r) for r in records if r.result.machine))
    if len(machines) == 1:
        lines.append(f"Machine: {machines[0]}.")
    elif machines:
        lines.append(f"**Mixed machines, times do not compare:** {'; '.join(machines)}.")
    lines += [
        f"Failed: {r.spec.subject}, {r.spec.method}, seed {r.spec.seed}: {r.result.message}"
        for r in records
        if r.result.status == "failed"
    ]
    if mixtures:
        lines.append("**Mixed records:**\n" + "\n".join(f"- {mixture}" for mixture in mixtures))
    return "\n\n".join(lines)


def _total(records: Sequence[RunRecord]) -> str:
    late = sum(r.spec.time_limit for r in records if r.result.status == "timed out")
    seconds = late + sum(r.result.wall_seconds or 0.0 for r in records)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def _machine(record: RunRecord) -> str:
    known = record.result.machine
    cpu, cpus, threads, platform = (
        known.get(name, "?") for name in ("cpu", "cpus", "threads", "platform")
    )
    return f"{cpu}, {cpus} CPU(s), {threads} thread(s), {platform}"
