"""How much memory there is, and what a fit would take of it."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from prcut.errors import InvalidInputError

__all__ = [
    "LARGEST_BLOCK",
    "SAMPLE_PER_CLUSTER",
    "available_memory",
    "bytes_in_memory",
    "choose_block_rows",
    "choose_sample_rows",
    "parse_bytes",
    "peak_memory",
    "readable_bytes",
    "release_memory",
]

# measured: neighbours, weights, both directions and the copies made while they are joined
_BYTES_PER_LINK = 100
# rows per block that make its neighbours worth having, and that blocks have where memory is ample
_MIN_BLOCK_ROWS, _MAX_BLOCK_ROWS = 1_000, 100_000
# rows of a sample that tells the clusters, for each of them
SAMPLE_PER_CLUSTER = 200
# rows of one that is searched in place of all, and at least whatever the memory; neighbours that
# its search may come to try
_SAMPLE_ROWS, _MIN_SAMPLE_ROWS, _SAMPLE_NEIGHBORS = 2**18, 2**14, 100
# rows of the largest block with its halo, in means
LARGEST_BLOCK = 1.5
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def bytes_in_memory(
    n_samples: int, n_features: int, itemsize: int, n_neighbors: int, *, n_processes: int = 1
) -> int:
    """Bytes that features, neighbours and graph take at most while the graph is built.

    Every process holds the features, one of them also the search's copy in float32.

    >>> bytes_in_memory(1_000_000, 128, 4, 15) / 1e9
    2.524
    """
    row = n_features * (n_processes * itemsize + 4) + n_neighbors * _BYTES_PER_LINK
    return n_samples * row


def choose_block_rows(
    memory: int, n_features: int, itemsize: int, n_neighbors: int, halo: int
) -> int:
    """Rows of a block, so that the largest with its halo takes no more than ``memory`` bytes.

    >>> choose_block_rows(8 * 10**9, 128, 4, 15, halo=4)
    100000
    >>> choose_block_rows(10**9, 128, 4, 15, halo=4)
    81859
    """
    # rows with their halo are read, joined and searched; core rows may be twice the mean
    rows = max(2.0, LARGEST_BLOCK * halo) * n_features * (2 * itemsize + 4)
    row = int(rows + 2 * n_neighbors * _BYTES_PER_LINK)
    least = max(_MIN_BLOCK_ROWS, 10 * n_neighbors)
    return max(least, min(_MAX_BLOCK_ROWS, memory // row))


def choose_sample_rows(
    memory: int, n_samples: int, n_features: int, itemsize: int, n_clusters: int
) -> int:
    """Rows of a sample that tells the clusters, of no more than ``memory`` bytes with its graph.

    >>> [choose_sample_rows(8 * 10**9, 10**9, 128, 4, k) for k in (10, 10_000)]
    [262144, 725689]
    """
    wanted = max(_SAMPLE_ROWS, SAMPLE_PER_CLUSTER * n_clusters)
    row = bytes_in_memory(1, n_features, itemsize, _SAMPLE_NEIGHBORS)
    return min(n_samples, max(_MIN_SAMPLE_ROWS, n_clusters, min(wanted, memory // row)))


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may take: what is free, or what its control group allows.

    Parameters
    ----------
    root : path
        Where ``proc`` and ``sys`` are.
    """
    found = [*_free(root), *_group_limits(root)]
    if not found:  # not Linux
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    return min(found)


def _free(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield 1024 * int(line.split()[1])


def _group_limits(root: Path) -> Iterator[int]:
    """Limits of the control groups, version 1 and 2, from this process's up to the root."""
    groups = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, kinds, inside = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        base, name = (
            (groups, "memory.max") if kinds == "" else (groups / kinds, "memory.limit_in_bytes")
        )
        group = base / inside.strip().lstrip("/")
        for folder in (group, *group.parents):
            yield from (int(text) for text in _lines(folder / name) if text.strip().isdigit())
            if folder == base:
                break


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def parse_bytes(text: str) -> int:
    """Bytes from a number with K, M, G or T.

    >>> parse_bytes("8G"), parse_bytes("1.5 GB"), parse_bytes("4096")
    (8000000000, 1500000000, 4096)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", text, re.IGNORECASE)
    if found is None or (size := int(float(found[1]) * _UNITS[found[2].upper()])) < 1:
        raise InvalidInputError(f"memory={text!r} is not a size; write it like 8G or 500M.")
    return size


def readable_bytes(size: float) -> str:
    """A size for people.

    >>> readable_bytes(1234567), readable_bytes(900)
    ('1.2 MB', '900 B')
    """
    units = ["TB", "GB", "MB", "kB", "B"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop()
    return f"{size:.0f} B" if units[-1] == "B" else f"{size:.1f} {units[-1]}"


def peak_memory() -> int | None:
    """The most bytes this process has had in memory so far, None where nobody counts them."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage would count what the process that started this one had
        (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 2**10
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def release_memory() -> None:
    """Give back what is free: allocators keep it, and a process of many fits would only grow."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
