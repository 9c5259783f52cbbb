"""Devices by name, and memory in and outside of control groups."""

from pathlib import Path

import pytest
import torch

from prcut.errors import InvalidInputError
from prcut.runtime.device import (
    available_memory,
    choose_device,
    parse_bytes,
    readable_bytes,
)


def test_devices_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["meta", "nothing", "cpu:x"])
def test_devices_that_cannot_be_used_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"device='{name}' cannot be used: "):
        choose_device(name)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 4000 kB\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 4000 * 1024),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n"}, 1000),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "2000\n"}, 2000),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 4000 * 1024),
        (
            {
                "proc/self/cgroup": "3:cpu:/x\n5:memory:/x\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "3000\n",
            },
            3000,
        ),
    ],
)
def test_the_smallest_limit_counts(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert available_memory(write(tmp_path, {**MEMINFO, **files})) == expected


@pytest.mark.parametrize("text", ["", "G", "-1G", "8X", "0", "1 2G"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a size; write it like 8G or 500M"):
        parse_bytes(text)


def test_sizes_are_readable() -> None:
    sizes = [999, 1000, 10**6, 25 * 10**8, 10**12, 10**16]
    expected = ["999 B", "1.0 kB", "1.0 MB", "2.5 GB", "1.0 TB", "10000.0 TB"]
    assert [readable_bytes(size) for size in sizes] == expected
    assert parse_bytes("500m") == 500 * 10**6
