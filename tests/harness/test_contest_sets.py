import numpy as np
import pytest
from benchmarks.harness.contest.sets import (
    CONTEST_SETS,
    HALVES,
    HALVES_FILE,
    KINDS,
    describe_halves,
    load_contest_set,
)
from benchmarks.harness.contest.specs import CONTESTANTS, contest_specs, is_left_out
from benchmarks.harness.methods import METHODS

from prcut.errors import PRCutError

# encoders take minutes, and the largest images have tests of their own
_SLOW = {one.name for one in CONTEST_SETS.values() if one.kind == "text"}
_SLOW |= {"cifar10", "openclipart", "mnist", "fashion_mnist", "mnist_long_tail", "human_genomes"}


def test_the_halves_are_those_that_were_written_down():
    assert HALVES_FILE.read_text() == describe_halves()
    drawn = {(one.collection, one.half) for one in CONTEST_SETS.values()}
    assert len(drawn) == len({collection for collection, _ in drawn}), "a collection in both"
    for half in HALVES:
        kinds = [one.kind for one in CONTEST_SETS.values() if one.half == half]
        assert len(kinds) >= 14
        assert set(kinds) == set(KINDS)


@pytest.mark.weekly("reads every data set that is here")
@pytest.mark.parametrize("name", sorted(set(CONTEST_SETS) - _SLOW))
def test_sets_load_as_the_harness_needs_them(name):
    try:
        rows, labels = load_contest_set(name)
    except PRCutError as error:
        pytest.skip(str(error))
    assert rows.dtype == np.float32
    assert labels.dtype == np.int64
    assert 150 <= len(rows) == len(labels) <= 10**5
    assert np.isfinite(rows).all()
    assert 2 <= len(np.unique(labels)) == labels.max() + 1 <= 150
    np.testing.assert_array_equal(load_contest_set(name)[0], rows)  # planted sets too


def test_every_set_of_the_contest_meets_every_method_that_can_take_it():
    specs = {half: contest_specs(half) for half in HALVES}
    for half in HALVES:
        asked = {(spec.dataset, spec.method) for spec in specs[half]}
        expected = {one.name for one in CONTEST_SETS.values() if one.half == half}
        assert {dataset for dataset, _ in asked} == expected
        left_out = {(one, way) for one in expected for way in CONTESTANTS} - asked
        assert all(is_left_out(*pair) for pair in left_out)
    assert all(METHODS[spec.method].seeded or spec.seed == 0 for spec in specs["test"])
