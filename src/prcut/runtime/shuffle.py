"""Regroup rows that do not fit in memory: scatter the rows of every input, gather every bucket.

An input is what one task reads at a time, such as a range of rows. It is written once, sorted by
the bucket that each of its rows belongs to; a bucket is then one contiguous range of every input,
end to end. Both steps are idempotent tasks: one per input, then one per bucket.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from prcut.runtime.folder import Folder


def is_scattered(folder: Folder, number: int, key: str) -> bool:
    """Return whether input ``number`` was scattered with ``key`` and its files are whole."""
    return folder.is_sealed(_name(number, "json"), key)


def scatter(
    folder: Folder,
    number: int,
    columns: Mapping[str, np.ndarray],
    bucket: np.ndarray,
    n_buckets: int,
    key: str,
) -> None:
    """Write input ``number`` by bucket: row ``c`` of every column goes to ``bucket[c]``."""
    order = np.argsort(bucket, kind="stable")
    offsets = np.searchsorted(bucket[order], np.arange(n_buckets + 1))
    arrays = {_name(number, f"{name}.npy"): column[order] for name, column in columns.items()}
    arrays[_name(number, "offsets.npy")] = offsets.astype(np.int64)
    folder.seal(_name(number, "json"), arrays, {"key": key})


def bucket_counts(folder: Folder, n_inputs: int) -> np.ndarray:
    """Count the rows in every bucket, shape (n_buckets,)."""
    count: np.ndarray = sum(  # type: ignore[assignment]
        np.diff(folder.read_array(_name(number, "offsets.npy"))) for number in range(n_inputs)
    )
    return count


def gather(
    folder: Folder,
    n_inputs: int,
    columns: Sequence[str],
    bucket: int,
    first: int = 0,
    step: int = 1,
) -> dict[str, np.ndarray]:
    """Read every ``step``-th row of a bucket from row ``first`` on, in the order of the inputs."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    n_seen = 0
    for number in range(n_inputs):
        start, stop = folder.read_array(_name(number, "offsets.npy"), bucket, bucket + 2).tolist()
        if start == stop and found[columns[0]]:
            continue
        for name in columns:
            rows = folder.read_array(_name(number, f"{name}.npy"), start, stop)
            found[name].append(rows[(first - n_seen) % step :: step])
        n_seen += stop - start
    return {name: np.concatenate(arrays) for name, arrays in found.items()}


def _name(number: int, suffix: str) -> str:
    return f"input-{number:06d}.{suffix}"
