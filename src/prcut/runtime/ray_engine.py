"""Ray as the engine: tasks on any node of a cluster.

The tasks are those of one machine. A node, a worker or the driver may die at any moment: Ray runs a
task again on another node, and a driver that is started again finds the finished files. Nothing is
lost with Ray's own state.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from shutil import rmtree
from statistics import median
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from prcut.errors import InvalidInputError, StageError
from prcut.runtime.engine import Task
from prcut.runtime.memory import release_memory
from prcut.runtime.progress import OnProgress, Reporter

if TYPE_CHECKING:
    from ray import ObjectRef

_LOG = logging.getLogger(__name__)
# how often a task is run again after its worker or node died, or a file could not be read
_RETRIES = 3
# seconds to wait for a finished task before reporting that the stage is alive
_WAIT_SECONDS = 2.0
# a task is sent again when it has taken so many times the median, and at least so many seconds
_SLOW, _SLOW_SECONDS = 4.0, 60.0
# tasks sent per CPU: one runs, one waits. With more, waiting tasks would look as if they hung
_QUEUED = 2


class RayEngine:
    """Runs tasks on a Ray cluster, one CPU each.

    Parameters
    ----------
    address : str, optional
        Address of a cluster, such as ``"auto"`` or ``"ray://head:10001"``; by default
        ``RAY_ADDRESS``, or else a cluster of this machine that stops with this process and listens
        on loopback only.
    slow_seconds : float
        A task that takes longer than this, and than four times the median, is also run by a
        second worker, because the first may hang.

    Examples
    --------
    >>> engine = RayEngine("auto")  # doctest: +SKIP
    >>> fit_run("s3://bucket/parts", "s3://bucket/run", config, engine=engine)  # doctest: +SKIP
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        slow_seconds: float = _SLOW_SECONDS,
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise InvalidInputError(
                "engine='ray' needs Ray, which is not installed; pip install 'prcut[ray]'."
            ) from error
        self._slow = slow_seconds
        if not ray.is_initialized():
            _connect(address or os.environ.get("RAY_ADDRESS") or "local")

    def run(
        self, stage: str, task: Task, n_tasks: int, *, total: int, on_progress: OnProgress = None
    ) -> None:
        """Run the tasks; those that fail are named when all others are done."""
        import ray

        tasks = _Tasks(stage, ray.put(task), self._slow)
        report = Reporter(stage, total, on_progress)
        waiting = iter(range(n_tasks))
        while True:
            n_cpus = max(1, int(_resource("CPU")))  # a cluster without nodes may get some
            for number in islice(waiting, max(0, _QUEUED * n_cpus - tasks.n_running)):
                tasks.start(number)
            if not tasks.n_running:
                break
            for rows in [*tasks.finished(_WAIT_SECONDS), 0]:  # at least a sign of life
                report.advance(rows, running=tasks.n_running, failed=len(tasks.failures))
            tasks.repeat_slow()
        if tasks.failures:
            report.advance(0, running=0, failed=len(tasks.failures))
            raise StageError(_describe(stage, tasks.failures, n_tasks))


def _resource(name: str) -> float:
    """Return how much of a resource the cluster has now."""
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return resources.get(name, 0.0)


def _connect(address: str) -> None:
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    own = address == "local"
    if own:
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        options["_temp_dir"] = _private_folder()
    try:
        with _loopback() if own else nullcontext():
            ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"no Ray cluster answers at {address=}: {reason}") from error


def _private_folder() -> str:
    """Make a folder that no other user can read, and remove it when this process ends.

    By default Ray writes to /tmp/ray, which may be another user's.
    """
    import ray

    folder = mkdtemp(prefix="ray-")  # short: the paths of Ray's sockets have 107 characters

    def remove() -> None:
        ray.shutdown()
        rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


@contextmanager
def _loopback() -> Iterator[None]:
    """Keep Ray from listening beyond this machine.

    On Linux Ray replaces 127.0.0.1 by the machine's outer address and then listens on all
    addresses, so that other machines may join. With clusters of several machines switched off, as
    by default on macOS, it stays on loopback.
    """
    from ray._private import ray_constants

    name, switch = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "ENABLE_RAY_CLUSTER"
    before, was = os.environ.get(name), getattr(ray_constants, switch, None)
    os.environ[name] = "0"  # for the processes that Ray starts
    setattr(ray_constants, switch, False)  # for this one
    try:
        yield
    finally:
        setattr(ray_constants, switch, was)
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


class _Tasks:
    """The tasks of a stage that are sent to workers; one may be sent to two."""

    def __init__(self, stage: str, task: ObjectRef[Task], slow_seconds: float) -> None:
        import ray

        self.failures: dict[int, Exception] = {}
        self._stage, self._task, self._slow_seconds = stage, task, slow_seconds
        # a file that cannot be read may be readable a moment later; wrong input stays wrong
        options: dict[str, Any] = {"max_retries": _RETRIES, "retry_exceptions": [OSError]}
        self._remote: Any = ray.remote(num_cpus=1, **options)(_in_worker)
        self._number: dict[ObjectRef[tuple[int, float]], int] = {}
        self._started: dict[int, float] = {}
        self._repeated: set[int] = set()
        self._took: list[float] = []

    @property
    def n_running(self) -> int:
        """Number of tasks that are neither done nor failed."""
        return len(self._started)

    def start(self, number: int) -> None:
        """Send a task to a worker of Ray's choice."""
        name = f"{self._stage} {number}"
        self._number[self._remote.options(name=name).remote(self._task, number)] = number
        self._started.setdefault(number, time.monotonic())

    def finished(self, timeout: float) -> list[int]:
        """Wait up to ``timeout`` seconds; return the rows of done tasks, and keep failures."""
        import ray

        done, _ = ray.wait(list(self._number), num_returns=len(self._number), timeout=0)
        if not done:
            done, _ = ray.wait(list(self._number), timeout=timeout)
        found = []
        for reference in done:
            number = self._number.pop(reference)
            if number not in self._started:  # the other of two runs was first
                continue
            try:
                rows, seconds = ray.get(reference)
            except Exception as error:
                if number in self._number.values():  # its other run may succeed
                    continue
                self.failures[number] = error
                _LOG.warning("%s %d failed: %s", self._stage, number, _reason(error))
            else:
                found.append(rows)
                self._took.append(seconds)
            del self._started[number]
            self._cancel(number)
        return found

    def _cancel(self, number: int) -> None:
        """Kill the other run of a task that is done."""
        import ray

        for reference in [one for one, other in self._number.items() if other == number]:
            del self._number[reference]
            ray.cancel(reference, force=True)

    def repeat_slow(self) -> None:
        """Send tasks that take too long to a second worker."""
        if not self._took:
            return
        limit = max(self._slow_seconds, _SLOW * median(self._took))
        now = time.monotonic()
        for number, started in self._started.items():
            if now - started > limit and number not in self._repeated:
                self._repeated.add(number)
                _LOG.warning("%s %d takes long and is run by a second worker", self._stage, number)
                self.start(number)


def _in_worker(task: Task, number: int) -> tuple[int, float]:
    """Run a task in a worker, which may have run others before; return its rows and seconds."""
    gc.collect()  # the last task's source is in a reference cycle with its generators
    start, counts = time.monotonic(), [0]
    task(number, counts.append)
    release_memory()
    return sum(counts), time.monotonic() - start


def _reason(error: Exception) -> str:
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {(str(cause).strip().splitlines() or [''])[-1]}"


def _describe(stage: str, failures: dict[int, Exception], n_tasks: int) -> str:
    numbers = sorted(failures)
    shown = ", ".join(map(str, numbers[:10])) + (", …" if len(numbers) > 10 else "")
    return (
        f"stage {stage!r}: {len(numbers)} of {n_tasks} tasks failed (number {shown}), the first "
        f"with {_reason(failures[numbers[0]])}; all others are done. Fix the cause and run again."
    )
