"""Engines run the tasks of a stage: in this process, or wherever another engine sends them.

A stage is a number of independent *idempotent* tasks (see :mod:`prcut.runtime.folder`): each writes
its own files, whole or not at all, skips what an earlier run has finished, and may run twice at
once. So an engine is free to send a task to any machine, and to send it again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from prcut.runtime.device import release_memory
from prcut.runtime.progress import OnProgress, Reporter

# takes its number, and a function to call with the number of rows done since the last call
Task = Callable[[int, Callable[[int], None]], None]

_T = TypeVar("_T")
_Result = TypeVar("_Result")
_END = object()


class Engine(Protocol):
    """Runs the tasks of a stage."""

    def run(
        self, stage: str, task: Task, n_tasks: int, *, total: int, on_progress: OnProgress = None
    ) -> None:
        """Run ``task`` with every number below ``n_tasks``; together they do ``total`` rows."""


class LocalEngine:
    """Runs tasks in this process, one after the other.

    >>> LocalEngine().run("count", lambda number, advance: print(number), 3, total=30)
    0
    1
    2
    """

    def run(
        self, stage: str, task: Task, n_tasks: int, *, total: int, on_progress: OnProgress = None
    ) -> None:
        """Run the tasks as :meth:`Engine.run` says; the first error stops the stage."""
        report = Reporter(stage, total, on_progress)
        for number in range(n_tasks):
            task(number, report.advance)
            release_memory()


def sealed_task(is_done: Callable[..., bool], make: Callable[[int], object], n_rows: int) -> Task:
    """Return a task that calls ``make`` with its number, unless that was done; then reports rows.

    >>> task = sealed_task(lambda: True, print, 10)
    >>> task(0, lambda rows: print(rows, "rows"))
    10 rows
    """

    def task(number: int, advance: Callable[[int], None]) -> None:
        if not is_done():
            make(number)
        advance(n_rows)

    return task


def read_ahead(items: Iterator[_T]) -> Generator[_T, None, None]:
    """Yield the items in order while a thread makes the next one; closing stops the thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="prcut-read-ahead") as maker:
        ahead = maker.submit(next, items, _END)
        while (item := ahead.result()) is not _END:
            ahead = maker.submit(next, items, _END)
            yield item  # type: ignore[misc]


def map_threads(
    function: Callable[[_T], _Result], items: Iterable[_T], n_jobs: int
) -> Generator[_Result, None, None]:
    """Yield the function's results in order, computed by up to ``n_jobs`` threads.

    >>> [*map_threads(abs, [-1, -2], n_jobs=2)]
    [1, 2]
    """
    if n_jobs == 1:
        yield from map(function, items)
        return
    import torch

    n_threads = torch.get_num_threads()
    # each of these threads would start as many of torch's
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(n_jobs, thread_name_prefix="prcut-search") as pool:
            yield from pool.map(function, items)
    finally:
        torch.set_num_threads(n_threads)
