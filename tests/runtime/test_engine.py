"""Engines: what they promise to the stages, here without a cluster."""

import threading
from collections.abc import Iterator

import pytest

from prcut.runtime.engine import LocalEngine, read_ahead
from prcut.runtime.progress import Progress


def test_a_local_engine_runs_every_number_once_in_order() -> None:
    seen: list[Progress] = []
    done: list[int] = []

    def note(number: int, advance) -> None:
        done.append(number)
        advance(number)

    LocalEngine().run("note", note, 4, total=6, on_progress=seen.append)
    assert done == [0, 1, 2, 3]
    assert [progress.done for progress in seen] == [0, 1, 3, 6]


def test_the_first_error_stops_the_stage() -> None:
    done: list[int] = []

    def fail(number: int, advance) -> None:
        if number == 2:
            raise ValueError("no")
        done.append(number)
        advance(1)

    with pytest.raises(ValueError, match="no"):
        LocalEngine().run("fail", fail, 5, total=5)
    assert done == [0, 1]


def test_items_are_made_ahead_in_order_and_errors_come_in_their_turn() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(3):
            made.append(number)
            yield number
        raise ValueError("no more")

    ahead = read_ahead(items())
    assert next(ahead) == 0
    assert next(ahead) == 1
    assert next(ahead) == 2  # the error of the next item is not raised yet
    with pytest.raises(ValueError, match="no more"):
        next(ahead)
    assert made == [0, 1, 2]


def test_closing_what_reads_ahead_stops_its_thread() -> None:
    def names() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith("prcut-read-ahead")]

    ahead = read_ahead(iter(range(10**9)))
    assert next(ahead) == 0
    assert names()
    ahead.close()
    assert not names()
