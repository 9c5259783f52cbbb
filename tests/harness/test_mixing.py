from typing import Any

import pytest
from bench_samples import VERSIONS, record
from benchmarks.harness.mixing import find_mixtures, newest_records
from benchmarks.harness.records import RunRecord
from benchmarks.harness.summary import summarise

from prcut.errors import InvalidInputError

PRCUT = {**VERSIONS, "prcut": "0.1.0", "prcut source": "bbbb"}

# what a second record has that the first has not, and what must be said of it
MIXTURES = [
    (
        {"versions": {**VERSIONS, "faiss-cpu": "1.10.0"}},
        "faiss_kmeans: version of faiss-cpu: 1.9.0 (2 records), 1.10.0 (1 record)",
    ),
    (
        {"versions": {**VERSIONS, "python": "3.12.0"}},
        "faiss_kmeans: version of python: 3.11.7 (2 records), 3.12.0 (1 record)",
    ),
    (
        {"versions": {"python": "3.11.7", "numpy": "2.0.0"}},
        "faiss_kmeans: version of faiss-cpu: 1.9.0 (2 records), none (1 record)",
    ),
    ({"split": "test"}, "mnist: split: train (2 records), test (1 record)"),
    ({"n_rows": 2000}, "mnist: n_rows: none (2 records), 2000 (1 record)"),
    (
        {"data": "f" * 16},
        f"mnist, raw: digest of the rows: 0123456789abcdef (2 records), {'f' * 16} (1 record)",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), MIXTURES)
def test_mixed_records_cannot_be_summarised_unnoticed(
    changes: dict[str, Any], expected: str
) -> None:
    records = [record(seed=0), record(seed=1), record(seed=2, **changes)]
    assert find_mixtures(records) == [expected]
    with pytest.raises(InvalidInputError) as error:
        summarise(records)
    assert expected in str(error.value)
    assert f"**Mixed records:**\n- {expected}" in summarise(records, mixed=True)


def test_two_states_of_the_code_are_told_apart_across_methods() -> None:
    records = [record("prcut"), record("prcut_graph"), record("prcut_cut", versions=PRCUT)]
    expected = "source code of prcut: aaaa (2 records), bbbb (1 record)"
    assert find_mixtures(records) == [expected]
    with pytest.raises(InvalidInputError, match="source code of prcut"):
        summarise(records)
    assert expected in summarise(records, mixed=True)


def test_runs_of_hours_may_be_of_one_other_state_which_is_named() -> None:
    long = [record("prcut_published_pixels", seed, versions=PRCUT) for seed in range(2)]
    records = [record("prcut"), *long]
    assert find_mixtures(records) == []
    assert "Code of prcut: aaaa (prcut); bbbb (prcut_published_pixels)." in summarise(records)
    records.append(record("prcut_published_pixels", 2))
    expected = "source code of prcut: bbbb (2 records), aaaa (1 record)"
    assert find_mixtures(records) == [expected]


def test_what_may_differ_is_no_mixture() -> None:
    records = [
        record(),
        record(seed=1),
        record(n_neighbors=50),
        record("evoc", versions={**VERSIONS, "evoc": "1"}),
        record("prcut"),
        record(dataset="usps", split="all", data="9" * 16),
        record("hdbscan", status="timed out", versions={}, data=None, acc=None),
    ]
    assert find_mixtures(records) == []
    assert "Mixed" not in summarise(records)


def test_a_later_record_stands_only_for_one_that_failed_or_had_less_time() -> None:
    failed = record(status="failed", acc=None)
    late = record(status="timed out", acc=None, time_limit=10.0)
    done = record()
    again = record(wall_seconds=99.0)

    def kept(*records: RunRecord) -> list[RunRecord]:
        return newest_records(records)

    assert kept(failed, done) == [done]
    assert kept(done, failed) == [done]
    assert kept(late, failed, done) == [done]
    assert kept(done, again) == [done]  # the same but for its time
    for records in ((done, record(acc=0.8)), (done, late), (late, record(time_limit=10.0))):
        with pytest.raises(InvalidInputError, match="two results for table3, mnist"):
            newest_records(records)
