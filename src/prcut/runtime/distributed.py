"""Processes that run together by torch.distributed, and the device of each."""

import os
from datetime import timedelta
from typing import NamedTuple

import torch
from torch import cuda, distributed

from prcut.errors import InvalidInputError


class Process(NamedTuple):
    """Rank of a process, and the number of processes."""

    rank: int
    world_size: int


def this_process() -> Process:
    """Return the rank of this process among those it joined; alone it is the first of one."""
    if distributed.is_available() and distributed.is_initialized():
        return Process(distributed.get_rank(), distributed.get_world_size())
    return Process(0, 1)


def join_processes(device: str) -> str:
    """Join the processes that torchrun started, if it did; return the device of this one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return device
    is_gpu = device.startswith("cuda") or (device == "auto" and cuda.is_available())
    if is_gpu:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        cuda.set_device(device)
    else:
        device = "cpu"
    # the others wait while one does what is done once, which may take days
    distributed.init_process_group("nccl" if is_gpu else "gloo", timeout=timedelta(days=30))
    return device


def leave_processes() -> None:
    """Leave the processes that were joined, if any were."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def choose_device(name: str) -> torch.device:
    """Return the device of a name; ``"auto"`` chooses CUDA or MPS where there is one."""
    if name == "auto":
        gpus = {"cuda": cuda, "mps": torch.backends.mps}
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
    return torch.float32 if device.type == "mps" else torch.float64
