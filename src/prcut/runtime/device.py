"""The device that a name stands for, and memory as the operating system counts it."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prcut.errors import InvalidInputError

if TYPE_CHECKING:
    import torch

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def choose_device(name: str) -> torch.device:
    """Return the device of a name; ``"auto"`` chooses CUDA or MPS where there is one."""
    import torch

    if name == "auto":
        gpus = {"cuda": torch.cuda, "mps": torch.backends.mps}
        return torch.device(next((name for name in gpus if gpus[name].is_available()), "cpu"))
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # fails for "meta", which holds no numbers
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"device={name!r} cannot be used: {reason}") from error
    return device


def widest_float(device: torch.device) -> torch.dtype:
    """Return the dtype to add up in on a device: MPS has no float64."""
    import torch

    return torch.float32 if device.type == "mps" else torch.float64


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process may take: what is free, or its control group allows."""
    free = (line for line in _lines(root / "proc/meminfo") if line.startswith("MemAvailable:"))
    found = [*(1024 * int(line.split()[1]) for line in free), *_group_limits(root)]
    # neither is known on other systems than Linux
    return min(found) if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the limits of the control groups, version 1 and 2, from this process to the root."""
    names = {"": "memory.max", "memory": "memory.limit_in_bytes"}
    for line in _lines(root / "proc/self/cgroup"):
        _, kinds, inside = line.split(":", 2)
        if kinds in names:
            base = root / "sys/fs/cgroup" / kinds
            group = base / inside.strip().lstrip("/")
            for folder in (one for one in (group, *group.parents) if one.is_relative_to(base)):
                lines = _lines(folder / names[kinds])
                yield from (int(text) for text in lines if text.strip().isdigit())


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def parse_bytes(text: str) -> int:
    """Parse a number of bytes with K, M, G or T.

    >>> parse_bytes("8G"), parse_bytes("1.5 GB"), parse_bytes("4096")
    (8000000000, 1500000000, 4096)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", text, re.IGNORECASE)
    if found is None or (size := int(float(found[1]) * _UNITS[found[2].upper()])) < 1:
        raise InvalidInputError(f"memory={text!r} is not a size; write it like 8G or 500M.")
    return size


def readable_bytes(size: float) -> str:
    """Format a number of bytes for people, such as 1.2 MB."""
    units = ["TB", "GB", "MB", "kB", "B"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop()
    return f"{size:.0f} B" if units[-1] == "B" else f"{size:.1f} {units[-1]}"


def release_memory() -> None:
    """Return freed memory to the system; allocators cache it, so a long process would only grow."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
