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

from prcut.errors import InvalidInputError, PRCutError

# encoders take minutes, and the largest images have tests of their own
_SLOW = {one.name for one in CONTEST_SETS.values() if one.kind == "text"}
_SLOW |= {"cifar10", "openclipart", "mnist", "fashion_mnist", "mnist_long_tail", "human_genomes"}


def test_the_halves_are_those_that_were_written_down():
    assert HALVES_FILE.read_text() == describe_halves()


@pytest.mark.parametrize("half", HALVES)
def test_each_half_has_enough_sets_of_every_kind(half):
    kinds = [one.kind for one in CONTEST_SETS.values() if one.half == half]
    assert len(kinds) >= 14
    assert set(kinds) == set(KINDS)


def test_a_collection_is_in_one_half():
    drawn = {(one.collection, one.half) for one in CONTEST_SETS.values()}
    assert len(drawn) == len({collection for collection, _ in drawn})


def test_sets_kept_aside_for_others_are_not_here():
    aside = {"satellite", "satimage", "vowel", "vehicle", "dna", "splice", "reuters"}
    assert not aside & set(CONTEST_SETS)


@pytest.mark.parametrize("name", sorted(set(CONTEST_SETS) - _SLOW))
def test_sets_load_as_the_harness_needs_them(name):
    try:
        rows, labels = load_contest_set(name)
    except PRCutError as error:
        pytest.skip(str(error))
    assert rows.dtype == np.float32
    assert labels.dtype == np.int64
    assert rows.ndim == 2
    assert 150 <= len(rows) == len(labels) <= 10**5
    assert np.isfinite(rows).all()
    assert 2 <= len(np.unique(labels)) == labels.max() + 1 <= 150


@pytest.mark.parametrize("name", ["blobs_unequal", "zipf"])
def test_planted_sets_never_change(name):
    first, again = load_contest_set(name), load_contest_set(name)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])


def test_unknown_sets_are_refused_by_name():
    with pytest.raises(InvalidInputError, match="no data set of the contest"):
        load_contest_set("satellite")


def test_every_set_of_the_contest_meets_every_method_that_can_take_it():
    specs = {half: contest_specs(half) for half in HALVES}
    assert {spec.dataset for half in HALVES for spec in specs[half]} == set(CONTEST_SETS)
    for half in HALVES:
        assert {CONTEST_SETS[spec.dataset].half for spec in specs[half]} == {half}
        assert {spec.method for spec in specs[half]} == set(CONTESTANTS)
        asked = {(spec.dataset, spec.method) for spec in specs[half]}
        sets = {dataset for dataset, _ in asked}
        left_out = {(one, way) for one in sets for way in CONTESTANTS} - asked
        assert all(is_left_out(*pair) for pair in left_out)
    assert all(METHODS[spec.method].seeded or spec.seed == 0 for spec in specs["test"])
