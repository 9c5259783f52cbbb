"""Processes that run together, and their devices."""

import socket
import subprocess
import sys

import pytest
import torch
from torch import distributed

from prcut.errors import InvalidInputError
from prcut.runtime.distributed import (
    Process,
    choose_device,
    join_processes,
    leave_processes,
    this_process,
)


def test_a_process_alone_joins_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert join_processes("auto") == "auto"
    assert not distributed.is_initialized()
    assert this_process() == Process(0, 1)
    leave_processes()


JOINING = """
from prcut.runtime.distributed import join_processes, leave_processes, this_process
print(join_processes("cpu"), *this_process())
leave_processes()
print(*this_process())
"""


def test_processes_of_torchrun_join_and_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    started = []
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        command = [sys.executable, "-c", JOINING]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    for rank, process in enumerate(started):
        out, _ = process.communicate(timeout=200)
        assert out.splitlines() == [f"cpu {rank} 2", "0 1"]


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
