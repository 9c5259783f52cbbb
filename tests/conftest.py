"""What a test may cost without a mark, and threads that do not wait for one another."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# before torch and NumPy are loaded: threads that wait for one another on a busy machine make tests
# of small data many times slower
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest

# jobs that a shell runs in the background ignore Ctrl-C, and so would the commands tests start
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# CPU-seconds, children included, that a test may cost without a mark that says why
CPU_LIMIT = 2.0
MARKS = ("costly", "weekly")
_STARTED = pytest.StashKey[float]()
# the cost of every test, and whether it has a mark
_costs: dict[str, Any] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in (mark for name in MARKS for mark in item.iter_markers(name)):
            if len(mark.args) != 1:
                raise pytest.UsageError(f"{item.nodeid}: the mark {mark.name} needs a reason")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    item.stash[_STARTED] = sum(os.times()[:4])
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    if call.when == "teardown":
        cost = sum(os.times()[:4]) - item.stash[_STARTED]
        is_marked = any(item.get_closest_marker(name) for name in MARKS)
        item.user_properties.append(("cost", (cost, is_marked)))
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # a report has no cost if the process of its test died
    if cost := dict(report.user_properties).get("cost"):
        _costs[report.nodeid] = cost


def pytest_terminal_summary(terminalreporter: Any) -> None:
    total = sum(cost for cost, _ in _costs.values())
    terminalreporter.write_line(f"{total:.0f} CPU-seconds in {len(_costs)} tests")
    unmarked = [(cost, test) for test, (cost, is_marked) in _costs.items() if not is_marked]
    # named, but no failure: on a busy machine a test costs up to twice as much
    for cost, test in sorted(unmarked, reverse=True):
        if cost > CPU_LIMIT:
            terminalreporter.write_line(f"{cost:.1f} CPU-seconds without a mark: {test}")
    if path := os.environ.get("PRCUT_TEST_COSTS"):
        Path(path).write_text(json.dumps({test: cost for test, (cost, _) in _costs.items()}))
