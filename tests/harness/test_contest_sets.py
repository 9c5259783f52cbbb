from benchmarks.harness.contest.sets import (
    CONTEST_SETS,
    HALVES,
    HALVES_FILE,
    KINDS,
    describe_halves,
)
from benchmarks.harness.contest.specs import CONTESTANTS, contest_specs, is_left_out
from benchmarks.harness.methods import METHODS


def test_the_halves_are_those_that_were_written_down():
    assert HALVES_FILE.read_text() == describe_halves()
    drawn = {(one.collection, one.half) for one in CONTEST_SETS.values()}
    assert len(drawn) == len({collection for collection, _ in drawn}), "a collection in both"
    for half in HALVES:
        kinds = [one.kind for one in CONTEST_SETS.values() if one.half == half]
        assert len(kinds) >= 14
        assert set(kinds) == set(KINDS)


def test_every_set_of_the_contest_meets_every_method_that_can_take_it():
    specs = {half: contest_specs(half) for half in HALVES}
    for half in HALVES:
        asked = {(spec.dataset, spec.method) for spec in specs[half]}
        expected = {one.name for one in CONTEST_SETS.values() if one.half == half}
        assert {dataset for dataset, _ in asked} == expected
        ways = [way for way in CONTESTANTS if way != "leiden_k"]  # igraph's takes its place
        left_out = {(one, way) for one in expected for way in ways} - asked
        assert all(is_left_out(*pair) for pair in left_out)
    assert all(METHODS[spec.method].seeded or spec.seed == 0 for spec in specs["test"])
