from typing import Any

import pytest
from bench_samples import VERSIONS, record
from benchmarks.harness.mixing import find_mixtures, newest_records
from benchmarks.harness.summary import summarise

from prcut.errors import InvalidInputError

PRCUT = {**VERSIONS, "prcut": "0.1.0", "prcut source": "bbbb"}

# what a second record has that the first has not, and what must be said of it
MIXTURES = [
    (
        {"versions": {**VERSIONS, "faiss-cpu": "1.10.0"}},
        "faiss_kmeans: version of faiss-cpu: 1.9.0 (1 record), 1.10.0 (1 record)",
    ),
    (
        {"data": "f" * 16},
        f"mnist, raw: digest of the rows: 0123456789abcdef (1 record), {'f' * 16} (1 record)",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), MIXTURES)
def test_mixed_records_cannot_be_summarised_unnoticed(
    changes: dict[str, Any], expected: str
) -> None:
    records = [record(), record(seed=1, **changes)]
    assert find_mixtures(records) == [expected]
    with pytest.raises(InvalidInputError) as error:
        summarise(records)
    assert expected in str(error.value)
    assert f"**Mixed records:**\n- {expected}" in summarise(records, mixed=True)


def test_two_states_of_the_code_are_told_apart_across_methods() -> None:
    records = [record("prcut"), record("prcut_graph"), record("prcut_cut", versions=PRCUT)]
    expected = "source code of prcut: aaaa (2 records), bbbb (1 record)"
    assert find_mixtures(records) == [expected]
    # runs of hours may be of one other state, which is named
    records = [record("prcut"), record("prcut_published_pixels", versions=PRCUT)]
    assert find_mixtures(records) == []
    assert "Code of prcut: aaaa (prcut); bbbb (prcut_published_pixels)." in summarise(records)


def test_a_later_record_stands_only_for_one_that_failed_or_had_less_time() -> None:
    failed = record(status="failed", acc=None)
    late = record(status="timed out", acc=None, time_limit=10.0)
    done = record()
    assert newest_records([failed, done]) == [done]
    assert newest_records([done, failed]) == [done]
    assert newest_records([late, failed, done]) == [done]
    assert newest_records([done, record(wall_seconds=99.0)]) == [done]  # the same but for its time
