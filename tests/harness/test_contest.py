"""The contest's statistics, on records that never were."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench_samples import record
from benchmarks.harness.contest.claims import check_claims
from benchmarks.harness.contest.report import describe_contest, summarise_contest
from benchmarks.harness.contest.scoreboard import make_scoreboard
from benchmarks.harness.contest.sets import CONTEST_SETS
from benchmarks.harness.contest.significance import adjust_holm, compare_pair, friedman_p
from benchmarks.harness.contest.specs import CONTESTANTS, contest_specs, is_left_out
from benchmarks.harness.records import RunResult
from scipy.stats import wilcoxon

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


def test_medians_are_over_seeds_and_missing_results_are_last():
    runs = records_of(ours_first, ["mnist", "wine"])
    where = {"table": "contest", "dataset": "wine", "split": "contest"}
    runs += [record("metis", seed, **where, nmi=0.8, acc=0.8) for seed in (1, 2)]
    board = make_scoreboard(runs)
    assert board.sets == ("mnist", "wine")
    assert board.row("nmi", "metis")[1] == 0.8
    assert board.row("nmi", "ward")[0] == 0.0
    assert np.isnan(board.cpu_seconds[board.methods.index("ward"), 0])


def test_sets_without_all_methods_are_named_and_not_ranked():
    runs = records_of(ours_first, ["wine", "usps"])
    kept = [one for one in runs if (one.spec.dataset, one.spec.method) != ("usps", "metis")]
    board = make_scoreboard(kept)
    assert board.sets == ("wine",)
    assert board.incomplete == ("usps",)
    assert "Not yet run by all methods: usps." in describe_contest(board)
    with pytest.raises(InvalidInputError, match="no data set has records of all"):
        make_scoreboard([kept[0], kept[-1]])


def test_pairs_are_compared_as_scipy_does():
    rng = np.random.default_rng(0)
    ours, theirs = rng.random((2, 30))
    expected = wilcoxon(ours, theirs, method="approx").pvalue
    assert compare_pair(ours, theirs) == pytest.approx(expected, rel=0.01)
    assert compare_pair(ours, ours) == 1.0
    assert compare_pair(ours + 1, ours) < 1e-4


def test_holm_never_lowers_a_p_and_keeps_their_order():
    values = [0.04, 0.001, 0.5, 0.02]
    adjusted = adjust_holm(values)
    assert all(after >= before for before, after in zip(values, adjusted, strict=True))
    assert np.argsort(adjusted, kind="stable").tolist() == np.argsort(values).tolist()
    assert adjusted[1] == 0.004


def test_friedman_sees_a_method_that_always_leads():
    rng = np.random.default_rng(0)
    alike = rng.random((4, 40)) * 0.1
    assert friedman_p(alike) > 0.05
    apart = alike + np.array([[3], [2], [2], [0]])
    assert friedman_p(apart) < 1e-5


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


def test_the_report_has_ranks_duels_and_every_set():
    text = summarise_contest(records_of(ours_first))
    assert f"### Mean ranks over {len(DEVELOPMENT)} data sets" in text
    assert "| PRCut | 1.00 |" in text
    assert f"| METIS | {len(DEVELOPMENT)} / 0 / 0 |" in text
    assert all(f"| {name} |" in text for name in DEVELOPMENT)


@pytest.fixture
def contest(monkeypatch):
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location("contest_script", folder / "contest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_test_half_is_logged_before_it_runs(contest, tmp_path, monkeypatch):
    log = tmp_path / "log.md"
    monkeypatch.setattr(contest, "LOG", log)
    monkeypatch.setattr(contest, "RESULTS", tmp_path)
    answers = {"status": "", "rev-parse": "abc123"}
    monkeypatch.setattr(contest, "ask_git", lambda command, *_: answers[command])
    monkeypatch.setattr(contest, "run_all", lambda specs, path: lines.append(log.read_text()))
    lines: list[str] = []
    contest.run_half("test")
    contest.run_half("test")
    assert lines[-1].count("| abc123 |") == 2
    assert f"| {len(contest_specs('test'))} |" in lines[0]
    answers["status"] = " M src/prcut/estimator.py"
    with pytest.raises(SystemExit, match="clean checkout"):
        contest.run_half("test")
    assert len(lines) == 2
