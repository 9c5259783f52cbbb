"""Which process of torch.distributed this is, or that it is alone."""

from typing import NamedTuple

from torch import distributed

__all__ = ["Place", "this_place"]


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
