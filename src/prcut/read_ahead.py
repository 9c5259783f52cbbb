"""One step ahead: the next item is made by a thread while the last one is used."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["read_ahead"]

_T = TypeVar("_T")
_END = object()


def read_ahead(items: Iterator[_T]) -> Generator[_T, None, None]:
    """The same items in the same order; closing the generator ends the thread.

    >>> list(read_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1, thread_name_prefix="prcut-read-ahead") as maker:
        ahead = maker.submit(next, items, _END)
        while (item := ahead.result()) is not _END:
            ahead = maker.submit(next, items, _END)
            yield item  # type: ignore[misc]
