"""Stages of deduplication: digests, copies, what is looked up."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from prcut.pipeline.dedup_stages import Job, find_copies, join_copies, look_up, send_digests
from prcut.runtime.folder import Folder
from prcut.runtime.sources import open_source


@given(st.sets(st.integers(0, 100)), st.lists(st.integers(0, 100)))
@settings(deadline=None)
def test_look_up_is_that_of_a_dictionary(keys: set[int], rows: list[int]) -> None:
    known = np.array(sorted(keys), np.int64)
    expected = [row * 2 if row in keys else -1 for row in rows]
    assert look_up(np.array(rows, np.int64), known, known * 2).tolist() == expected


@given(arrays(np.float32, (20, 2), elements=st.sampled_from([0.0, -0.0, 1.0, 2.0])), st.data())
@settings(max_examples=20, deadline=None)
def test_copies_are_the_rows_with_equal_values(tmp_path_factory, rows, data) -> None:  # type: ignore[no-untyped-def]
    """Over all ranges of rows; the first one stands for the others."""
    cuts = np.array([0, data.draw(st.integers(1, 19)), 20])
    work = Folder(tmp_path_factory.mktemp("work"))
    job = Job(work, open_source(rows), None, 0.1, "cosine", 0, "key", cuts, None)
    for number in range(2):
        send_digests(job, number, lambda _: None)
    find_copies(job, 0, lambda _: None)
    join_copies(job)
    copies, of = job.read("copies", "rows", "of")
    first = [int((rows == row).all(1).argmax()) for row in rows]
    found = dict(zip(copies.tolist(), of.tolist(), strict=True))
    assert found == {row: one for row, one in enumerate(first) if row != one}
