from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prcut.runtime.folder import Folder
from prcut.runtime.shuffle import bucket_counts, gather, is_scattered, scatter


@given(
    inputs=st.lists(st.lists(st.integers(0, 4), max_size=12), min_size=1, max_size=4),
    step=st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_buckets_hold_every_copy_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, inputs: list[list[int]], step: int
) -> None:
    folder = Folder(tmp_path_factory.mktemp("shuffle"))
    value = 0
    expected: dict[int, list[int]] = {bucket: [] for bucket in range(5)}
    for number, buckets in enumerate(inputs):
        n_copies = len(buckets)
        rows = np.arange(value, value + n_copies)
        scatter(
            folder,
            number,
            {"value": rows, "text": rows.astype("S")},
            np.array(buckets, np.int64),
            5,
            "key",
        )
        for bucket, row in zip(buckets, rows, strict=True):
            expected[bucket].append(int(row))
        value += n_copies
        assert is_scattered(folder, number, "key")
        assert not is_scattered(folder, number, "other")
    assert bucket_counts(folder, len(inputs)).tolist() == [len(expected[b]) for b in range(5)]
    for bucket in range(5):
        whole = gather(folder, len(inputs), ["value", "text"], bucket)
        assert whole["value"].tolist() == expected[bucket]
        assert [int(t) for t in whole["text"]] == expected[bucket]
        strided = [
            gather(folder, len(inputs), ["value"], bucket, first=first, step=step)["value"]
            for first in range(step)
        ]
        for first, rows in enumerate(strided):
            assert rows.tolist() == expected[bucket][first::step]


def test_a_damaged_input_is_seen(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    scatter(folder, 0, {"v": np.arange(9)}, np.zeros(9, np.int64), 1, "key")
    (tmp_path / "input-000000.v.npy").write_bytes(b"gone")
    assert not is_scattered(folder, 0, "key")
