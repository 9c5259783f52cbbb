"""Which process of torch.distributed this is, or that it is alone."""

import os
from datetime import timedelta
from typing import NamedTuple

from torch import cuda, distributed

__all__ = ["Place", "join_team", "leave_team", "this_place"]


class Place(NamedTuple):
    """Rank of a process, and how many there are."""

    rank: int
    world_size: int


def this_place() -> Place:
    """Where this process stands.

    >>> this_place()
    Place(rank=0, world_size=1)
    """
    if distributed.is_available() and distributed.is_initialized():
        return Place(distributed.get_rank(), distributed.get_world_size())
    return Place(0, 1)


def join_team(device: str) -> str:
    """Join the processes that torchrun started, if it did; return this one's device."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return device
    is_gpu = device.startswith("cuda") or (device == "auto" and cuda.is_available())
    if is_gpu:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        cuda.set_device(device)
    else:
        device = "cpu"
    # the others wait while one builds the graph, which may take days
    distributed.init_process_group("nccl" if is_gpu else "gloo", timeout=timedelta(days=30))
    return device


def leave_team() -> None:
    """Leave the processes that were joined, if any were."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
