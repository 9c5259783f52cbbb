"""The contest's statistics, on records that never were."""

from dataclasses import replace

import pytest
from bench_samples import record
from benchmarks.harness.contest.claims import check_claims
from benchmarks.harness.contest.report import describe_contest
from benchmarks.harness.contest.scoreboard import make_scoreboard
from benchmarks.harness.contest.sets import CONTEST_SETS
from benchmarks.harness.contest.specs import CONTESTANTS, is_left_out
from benchmarks.harness.records import RunResult

from prcut.errors import InvalidInputError

DEVELOPMENT = [one.name for one in CONTEST_SETS.values() if one.half == "development"]


def records_of(scores, sets=DEVELOPMENT, **changes):
    """One run of every method on every set, scored by a function of both."""
    return [
        record(
            method,
            table="contest",
            dataset=name,
            split="contest",
            **{"nmi": scores(method, j), "acc": scores(method, j), "cpu_seconds": 1.0, **changes},
        )
        for j, name in enumerate(sets)
        for method in CONTESTANTS
        if not is_left_out(name, method)
    ]


def ours_first(method, j):
    return 0.97 if method == "prcut" else 0.3 + 0.02 * CONTESTANTS.index(method) + 0.01 * (j % 3)


def test_sets_without_all_methods_are_named_and_not_ranked():
    runs = records_of(ours_first, ["wine", "usps"])
    kept = [one for one in runs if (one.spec.dataset, one.spec.method) != ("usps", "metis")]
    board = make_scoreboard(kept)
    assert board.sets == ("wine",)
    assert board.incomplete == ("usps",)
    assert "Not yet run by all methods: usps." in describe_contest(board)
    with pytest.raises(InvalidInputError, match="no data set has records of all"):
        make_scoreboard([kept[0], kept[-1]])


def test_claims_hold_where_the_default_leads_and_each_can_fall_short():
    assert check_claims(make_scoreboard(records_of(ours_first)), "development") == []
    behind = make_scoreboard(records_of(lambda m, j: 0.1 if m == "prcut" else ours_first(m, j)))
    short = "\n".join(check_claims(behind, "development"))
    for words in (
        "mean rank over all",
        "mean rank over table",
        "not significantly better than evoc",
        "behind k-means",
        "accuracy of the best of Leiden and METIS",
    ):
        assert words in short
    part = make_scoreboard(records_of(ours_first, DEVELOPMENT[:5]))
    assert "not run by all methods yet" in check_claims(part, "development")[0]
    peers = [one for one in records_of(ours_first) if one.spec.method != "prcut"]
    assert "no records of prcut" in check_claims(make_scoreboard(peers), "development")[-1]


def test_a_method_that_refuses_the_rows_is_the_last():
    def with_fate(message):
        return [
            replace(one, result=RunResult("failed", message))
            if (one.spec.method, one.spec.dataset) == ("evoc", DEVELOPMENT[0])
            else one
            for one in records_of(ours_first)
        ]

    board = make_scoreboard(with_fate("ValueError: n_components=4 must be between 0 and 2"))
    assert DEVELOPMENT[0] in board.sets
    assert board.row("nmi", "evoc")[board.sets.index(DEVELOPMENT[0])] == 0
    absent = make_scoreboard(with_fate("InvalidInputError: evoc is not installed"))
    assert absent.incomplete == (DEVELOPMENT[0],)
