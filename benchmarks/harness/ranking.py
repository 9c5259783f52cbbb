"""Representations of one data set ranked by their cuts, without labels; labels check the ranking.

Where a representation holds clusters, its graph can be cut well. The cuts of different graphs
compare once they are measured against chance, see :func:`cut_score`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import NamedTuple

from benchmarks.harness.methods import METHODS
from benchmarks.harness.mixing import comparable_records
from benchmarks.harness.records import RunRecord
from benchmarks.harness.summary import footer, score_text, spread
from benchmarks.harness.task import Method

__all__ = ["cut_score", "summarise_representations"]

_HEAD = "| rank | representation | features | score | clusters | ACC | NMI |"
_RULE = "|---|---|---|---|---|---|---|"
_NOTE = (
    "Medians over seeds (range). Score: 1 − NC / ((k − 1) / 2), where NC is the normalised cut of "
    "the k clusters found, each on the graph of its representation: 1 where no edge is cut, 0 for "
    "labels drawn at random. Score and rank use no labels, only the number of classes. ACC "
    "(Hungarian), NMI (over the larger entropy) and the correlation use them, to check the ranking."
)


def cut_score(normalized_cut: float, n_clusters: int) -> float:
    """How much of the cut of chance is avoided: 1 is perfect, 0 is chance.

    Labels drawn at random leave (k − 1) / k of every cluster's edges, hence (k − 1) / 2 with the
    ½ of the definition. Pass the clusters in use: an empty one is no merit.

    >>> cut_score(0.9, 10)
    0.8
    """
    return 1 - 2 * normalized_cut / (n_clusters - 1) if n_clusters > 1 else 0.0


def summarise_representations(
    records: Sequence[RunRecord],
    *,
    mixed: bool = False,
    methods: Mapping[str, Method] = METHODS,
) -> str:
    """Return a table per data set, sorted by the score, and how well that is the order by accuracy.

    Parameters are those of :func:`benchmarks.harness.summary.summarise`.
    """
    records, mixtures = comparable_records(records, mixed=mixed)
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_heading(record, methods), []).append(record)
    rankings = {heading: _ranking(group) for heading, group in groups.items()}
    parts = [_table(heading, groups[heading], rows) for heading, rows in rankings.items()]
    if overall := _overall([rows for rows in rankings.values() if rows[0].scores]):
        parts.append(overall)
    note = footer(records, mixtures, methods, note=_NOTE)
    return "\n\n".join([*parts, note]) + "\n"


class _Row(NamedTuple):
    """A representation with its runs that are done, or with the others."""

    name: str
    done: list[RunRecord]
    others: list[RunRecord]
    """Runs that timed out or failed."""

    @property
    def scores(self) -> list[float]:
        return [
            cut_score(record.result.normalized_cut, record.result.used_clusters or 0)
            for record in self.done
            if record.result.normalized_cut is not None
        ]

    def values(self, name: str) -> list[float]:
        found = [getattr(record.result, name) for record in self.done]
        return [value for value in found if value is not None]

    @property
    def score(self) -> float:
        return median(self.scores)

    @property
    def acc(self) -> float:
        return median(self.values("acc"))


def _heading(record: RunRecord, methods: Mapping[str, Method]) -> str:
    spec = record.spec
    rows = "" if spec.n_rows is None else f", first {spec.n_rows:,} rows"
    title = methods[spec.method].title if spec.method in methods else spec.method
    return f"### {spec.dataset} ({spec.split}{rows}), {spec.n_neighbors} neighbours, {title}"


def _ranking(records: Sequence[RunRecord]) -> list[_Row]:
    """Best score first, what has none last; labels have no part in it."""
    rows = []
    for name in dict.fromkeys(record.spec.representation for record in records):
        runs = [record for record in records if record.spec.representation == name]
        done = [record for record in runs if record.result.status == "done"]
        rows.append(_Row(name, done, [record for record in runs if record not in done]))
    return sorted(rows, key=lambda row: -row.score if row.scores else float("inf"))


def _table(heading: str, records: Sequence[RunRecord], rows: Sequence[_Row]) -> str:
    known = next((r.result for r in records if r.result.n_samples is not None), None)
    size = (
        "No run was finished."
        if known is None
        else f"{known.n_samples:,} rows, {known.n_clusters} classes."
    )
    ranked = [row for row in rows if row.scores]
    lines = [_line(row, ranked) for row in rows]
    return "\n".join([heading, "", size, "", _HEAD, _RULE, *lines, "", _check(ranked)])


def _line(row: _Row, ranked: Sequence[_Row]) -> str:
    if not row.scores:
        return f"| — | {row.name} | — | {_reason(row)} | — | — | — |"
    rank = 1 + sum(other.score > row.score for other in ranked)
    missing = f", {len(row.others)} not done" if row.others else ""
    cells = [
        str(rank),
        row.name,
        f"{row.values('n_features')[0]:,}",
        spread(row.scores, score_text) + missing,
        spread(row.values("used_clusters"), lambda value: f"{value:.0f}"),
        spread(row.values("acc"), score_text),
        spread(row.values("nmi"), score_text),
    ]
    return f"| {' | '.join(cells)} |"


def _reason(row: _Row) -> str:
    late = [r.spec.time_limit for r in row.others if r.result.status == "timed out"]
    return f"> {max(late):g} s" if late else "failed"


# -- the check against labels --------------------------------------------------------------------


def _check(rows: Sequence[_Row]) -> str:
    """How well the order by score is the order by accuracy."""
    if not rows:
        return "Nothing to rank."
    correlation = _correlation(rows)
    found = "undefined" if correlation is None else f"{correlation:.2f}"
    lines = [
        f"Spearman rank correlation of score and ACC: {found} over {len(rows)} "
        f"representation{'s' if len(rows) > 1 else ''}."
    ]
    best = max(rows, key=lambda row: row.acc)
    if rows[0].acc < best.acc:
        lines.append(
            f"**The score puts {rows[0].name} first, ACC {rows[0].acc:.3f} against {best.acc:.3f} "
            f"of {best.name}.**"
        )
    return "  \n".join(lines)


def _correlation(rows: Sequence[_Row]) -> float | None:
    """Spearman's, of medians; None where all are level or there are fewer than two."""
    from scipy.stats import spearmanr

    scores, accuracies = [row.score for row in rows], [row.acc for row in rows]
    if len(set(scores)) < 2 or len(set(accuracies)) < 2:
        return None
    return float(spearmanr(scores, accuracies).statistic)


def _overall(rankings: Sequence[Sequence[_Row]]) -> str | None:
    """One sentence where there are several data sets."""
    if len(rankings) < 2:
        return None
    found = [value for rows in rankings if (value := _correlation(rows)) is not None]
    average = f"{mean(found):.2f}, lowest {min(found):.2f}" if found else "undefined"
    n_right = sum(rows[0].acc == max(row.acc for row in rows) for rows in rankings)
    return (
        f"Over {len(rankings)} data sets: mean Spearman rank correlation {average}; the "
        f"representation with the best score has the best ACC in {n_right}."
    )
