"""Real data, where it is: tests that need it skip, saying so, where it is not."""

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


CPU_LIMIT = 2.0
"""CPU-seconds, children included, that a test may cost without a mark that gives the reason."""
_costs: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    item.stash[_STARTED] = sum(os.times()[:4])
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    if call.when == "teardown":
        cost = sum(os.times()[:4]) - item.stash[_STARTED]
        item.user_properties.append(("cpu", cost))
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        _costs[report.nodeid] = dict(report.user_properties)["cpu"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{sum(_costs.values()):.0f} CPU-seconds in {len(_costs)} tests")
    if path := os.environ.get("PRCUT_TEST_COSTS"):
        Path(path).write_text(json.dumps(_costs))


_STARTED = pytest.StashKey[float]()


def data_file(name: str) -> Path:
    """A file of PRCUT_DATA, or a skip that says what is missing."""
    folder = os.environ.get("PRCUT_DATA")
    if not folder or not (Path(folder) / name).exists():
        pytest.skip(f"{name} is not in PRCUT_DATA={folder or '(not set)'}")
    return Path(folder) / name
