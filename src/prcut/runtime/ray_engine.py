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
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from prcut.errors import InvalidInputError, StageError
from prcut.runtime.device import release_memory
from prcut.runtime.engine import Task
from prcut.runtime.progress import OnProgress, Reporter

if TYPE_CHECKING:
    from ray import ObjectRef

_LOG = logging.getLogger(__name__)
# how often a task is run again after its worker or node died, or a file could not be read
_RETRIES = 3
# seconds to wait for a finished task before reporting that the stage is alive
_WAIT_SECONDS = 2.0
# tasks sent per CPU: one runs, one waits
_QUEUED = 2


class RayEngine:
    """Runs tasks on a Ray cluster, one CPU each.

    Parameters
    ----------
    address : str, optional
        Address of a cluster, such as ``"auto"`` or ``"ray://head:10001"``; by default
        ``RAY_ADDRESS``, or else a cluster of this machine that stops with this process and listens
        on loopback only.

    Examples
    --------
    >>> engine = RayEngine("auto")  # doctest: +SKIP
    >>> fit_run("s3://bucket/parts", "s3://bucket/run", config, engine=engine)  # doctest: +SKIP
    """

    def __init__(self, address: str | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise InvalidInputError(
                "engine='ray' needs Ray, which is not installed; pip install 'prcut[ray]'."
            ) from error
        if not ray.is_initialized():
            _connect(address or os.environ.get("RAY_ADDRESS") or "local")

    def run(
        self, stage: str, task: Task, n_tasks: int, *, total: int, on_progress: OnProgress = None
    ) -> None:
        """Run the tasks; those that fail are named when all others are done."""
        import ray

        # a file that cannot be read may be readable a moment later; wrong input stays wrong
        retries: dict[str, Any] = {"max_retries": _RETRIES, "retry_exceptions": [OSError]}
        remote: Any = ray.remote(num_cpus=1, **retries)(_in_worker)
        shared, report = ray.put(task), Reporter(stage, total, on_progress)
        waiting = iter(range(n_tasks))
        running: dict[ObjectRef[int], int] = {}
        failures: dict[int, Exception] = {}
        while True:
            n_cpus = ray.cluster_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
            # a cluster without nodes may get some
            n_sent = _QUEUED * max(1, int(n_cpus))
            for number in islice(waiting, max(0, n_sent - len(running))):
                running[remote.options(name=f"{stage} {number}").remote(shared, number)] = number
            if not running:
                break
            done, _ = ray.wait([*running], timeout=_WAIT_SECONDS)
            n_rows = 0
            for reference in done:
                number = running.pop(reference)
                try:
                    n_rows += ray.get(reference)
                except Exception as error:
                    failures[number] = error
                    _LOG.warning("%s %d failed: %s", stage, number, _reason(error))
            # at least a sign of life
            report.advance(n_rows, running=len(running), failed=len(failures))
        if failures:
            numbers = sorted(failures)
            shown = ", ".join(map(str, numbers[:10])) + (", …" if len(numbers) > 10 else "")
            raise StageError(
                f"stage {stage!r}: {len(numbers)} of {n_tasks} tasks failed (number {shown}), the "
                f"first with {_reason(failures[numbers[0]])}; all others are done. Fix the cause "
                "and run again."
            )


def _connect(address: str) -> None:
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    own = address == "local"
    if own:
        # by default Ray writes to /tmp/ray, which may be another user's; the name is short, since
        # the paths of Ray's sockets have at most 107 characters
        folder = mkdtemp(prefix="ray-")
        atexit.register(rmtree, folder, ignore_errors=True)
        atexit.register(ray.shutdown)  # the last to be registered is called first
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        options["_temp_dir"] = folder
    try:
        with _loopback() if own else nullcontext():
            ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"no Ray cluster answers at {address=}: {reason}") from error


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


def _in_worker(task: Task, number: int) -> int:
    """Run a task in a worker, which may have run others before; return its rows."""
    gc.collect()  # the last task's source is in a reference cycle with its generators
    counts = [0]
    task(number, counts.append)
    release_memory()
    return sum(counts)


def _reason(error: Exception) -> str:
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {(str(cause).strip().splitlines() or [''])[-1]}"
