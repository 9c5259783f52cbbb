from benchmarks.harness.contest.sets import (
    CONTEST_SETS,
    HALVES,
    HALVES_FILE,
    KINDS,
    describe_halves,
)


def test_the_halves_are_those_that_were_written_down():
    assert HALVES_FILE.read_text() == describe_halves()
    drawn = {(one.collection, one.half) for one in CONTEST_SETS.values()}
    assert len(drawn) == len({collection for collection, _ in drawn}), "a collection in both"
    for half in HALVES:
        kinds = [one.kind for one in CONTEST_SETS.values() if one.half == half]
        assert len(kinds) >= 14
        assert set(kinds) == set(KINDS)
