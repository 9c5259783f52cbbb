"""The contest in words and numbers: ranks by kind, duels, significance, time, every set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from benchmarks.harness.contest.claims import OURS, compare_peers
from benchmarks.harness.contest.scoreboard import (
    SCORES,
    Scoreboard,
    make_scoreboard,
    mean_ranks,
)
from benchmarks.harness.contest.sets import CONTEST_SETS, KINDS
from benchmarks.harness.contest.significance import count_duel, friedman_p
from benchmarks.harness.methods import METHODS
from benchmarks.harness.mixing import find_mixtures, newest_records
from benchmarks.harness.records import RunRecord

__all__ = ["describe_contest", "summarise_contest"]


def summarise_contest(records: Iterable[RunRecord], *, mixed: bool = False) -> str:
    """Return the report of records, and how they differ where that is allowed."""
    kept = list(records)
    mixtures = find_mixtures(newest_records(kept)) if mixed else []
    return "\n\n".join([describe_contest(make_scoreboard(kept)), *mixtures])


def describe_contest(board: Scoreboard) -> str:
    """Return tables of ranks, of duels where PRCut takes part, and of every set."""
    parts = [_describe_ranks(board)]
    if OURS in board.methods:
        parts.append(_describe_duels(board))
    parts += [_describe_sets(board, score) for score in ("nmi", "acc")]
    if board.incomplete:
        parts.append(f"Not yet run by all methods: {', '.join(board.incomplete)}.")
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _title(method: str) -> str:
    return METHODS[method].title + ("" if METHODS[method].given_k else "¹")


def _describe_ranks(board: Scoreboard) -> str:
    kinds = [kind for kind in KINDS if board.of_kind(kind).sets]
    columns = [mean_ranks(board.scores[score]) for score in SCORES]
    columns += [mean_ranks(board.of_kind(kind).scores["nmi"]) for kind in kinds]
    means = [board.scores[score].mean(1) for score in SCORES]
    order = columns[0].argsort(kind="stable")
    rows = [
        [
            _title(board.methods[i]),
            *(f"{column[i]:.2f}" for column in columns),
            *(f"{mean[i]:.3f}" for mean in means),
            f"{np.nanmedian(board.cpu_seconds[i]):.2f}",
        ]
        for i in order
    ]
    head = [
        "method",
        *(f"rank {score.upper()}" for score in SCORES),
        *(f"{kind} ({len(board.of_kind(kind).sets)})" for kind in kinds),
        *(f"mean {score.upper()}" for score in SCORES),
        "median CPU s",
    ]
    p = friedman_p(board.scores["nmi"])
    return (
        f"### Mean ranks over {len(board.sets)} data sets\n\n"
        "1 is best; the kinds' ranks are by NMI. Medians over seeds; a method without a result "
        "(left out for its size, or not done in time) counts as the last.\n\n"
        f"{_table(head, rows)}\n\n"
        f"¹ Not told the number of clusters. Friedman over NMI: p = {p:.2g}."
    )


def _describe_duels(board: Scoreboard) -> str:
    ours, adjusted = board.row("nmi", OURS), compare_peers(board)
    rows = []
    for method, p in adjusted.items():
        theirs = board.row("nmi", method)
        duel = count_duel(ours, theirs)
        difference = np.median(ours - theirs)
        counts = f"{duel.wins} / {duel.ties} / {duel.losses}"
        rows.append([_title(method), counts, f"{difference:+.3f}", f"{p:.2g}"])
    head = ["PRCut against", "wins / ties / losses", "median difference", "p (Wilcoxon, Holm)"]
    return f"### PRCut against each peer, NMI\n\nLess than .005 is a tie.\n\n{_table(head, rows)}"


def _describe_sets(board: Scoreboard, score: str) -> str:
    rows = []
    for j, name in enumerate(board.sets):
        values = board.scores[score][:, j]
        best = values.max()
        cells = [f"*{value:.3f}*" if value == best else f"{value:.3f}" for value in values]
        rows.append([name, CONTEST_SETS[name].kind, *cells])
    head = ["data set", "kind", *(_title(method) for method in board.methods)]
    return f"### {score.upper()} by data set\n\n{_table(head, rows)}"
