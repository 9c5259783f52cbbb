"""Regrouping rows that do not fit in memory: scatter pieces by bucket, gather a bucket from all.

Every piece of the input is written once, sorted by the bucket its rows belong to; a bucket is then
the concatenation of one contiguous range of every piece. Both steps are independent per piece and
per bucket, and what is already there is not made again.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from prcut.storage import Folder

__all__ = ["bucket_counts", "gather", "is_scattered", "scatter"]


def is_scattered(folder: Folder, piece: int, key: str) -> bool:
    """Whether a piece made with ``key`` is there and whole."""
    return folder.is_sealed(_name(piece, "json"), key)


def scatter(
    folder: Folder,
    piece: int,
    columns: Mapping[str, np.ndarray],
    copies: np.ndarray,
    bucket: np.ndarray,
    n_buckets: int,
    key: str,
) -> None:
    """Write one piece.

    Parameters
    ----------
    columns : mapping of names to arrays of equal length
    copies, bucket : int64 arrays, shape (n_copies,)
        Copy c of the piece is row ``copies[c]`` of the columns and goes to ``bucket[c]``.
    """
    order = np.argsort(bucket, kind="stable")
    offsets = np.searchsorted(bucket[order], np.arange(n_buckets + 1))
    rows = copies[order]
    arrays = {_name(piece, f"{name}.npy"): column[rows] for name, column in columns.items()}
    folder.seal(
        _name(piece, "json"),
        {**arrays, _name(piece, "offsets.npy"): offsets.astype(np.int64)},
        {"key": key},
    )


def bucket_counts(folder: Folder, n_pieces: int) -> np.ndarray:
    """Rows in every bucket, shape (n_buckets,)."""
    count: np.ndarray = sum(  # type: ignore[assignment]
        np.diff(folder.read_array(_name(piece, "offsets.npy"))) for piece in range(n_pieces)
    )
    return count


def gather(
    folder: Folder,
    n_pieces: int,
    columns: Sequence[str],
    bucket: int,
    part: int = 0,
    n_parts: int = 1,
) -> dict[str, np.ndarray]:
    """One bucket, rows in the order of the pieces; of several parts every ``n_parts``-th row."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    seen = 0
    for piece in range(n_pieces):
        start, stop = folder.read_array(_name(piece, "offsets.npy"), bucket, bucket + 2).tolist()
        if start == stop and found[columns[0]]:
            continue
        for name in columns:
            rows = folder.read_array(_name(piece, f"{name}.npy"), start, stop)
            found[name].append(rows[(part - seen) % n_parts :: n_parts])
        seen += stop - start
    return {name: np.concatenate(arrays) for name, arrays in found.items()}


def _name(piece: int, suffix: str) -> str:
    return f"piece-{piece:06d}.{suffix}"
