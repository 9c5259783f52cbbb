"""A Ray cluster of several nodes on this machine, on loopback only, whose nodes can be killed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["LocalCluster", "local_cluster"]


class LocalCluster:
    """Nodes, each a raylet of its own; the head runs no tasks.

    Attributes
    ----------
    address : str
        For ``ray.init`` and ``RayEngine``.
    """

    def __init__(self, n_nodes: int, n_cpus: int) -> None:
        # before Ray is imported: it then takes 127.0.0.1 for the address of every node
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # workers yield to all else otherwise, and beside other jobs wait for minutes
        os.environ.setdefault("RAY_worker_niceness", "0")
        from ray.cluster_utils import Cluster

        self._n_cpus = n_cpus
        self._cluster: Any = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        self.address = str(self._cluster.address)
        self.nodes: list[Any] = []
        for _ in range(n_nodes):
            self.add_node()

    def add_node(self) -> None:
        """One more node."""
        self.nodes.append(self._cluster.add_node(num_cpus=self._n_cpus))

    def kill_node(self, number: int) -> None:
        """Kill a node and all its workers, as a power cut would."""
        self._cluster.remove_node(self.nodes.pop(number), allow_graceful=False)

    def worker_pids(self, stage: str) -> list[int]:
        """Return the processes of this machine that run tasks of a stage now."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes()
            except OSError:
                continue
            if command.startswith(f"ray::{stage}".encode()):
                found.append(int(path.parent.name))
        return sorted(found)

    def shutdown(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


@contextmanager
def local_cluster(
    n_nodes: int = 3, n_cpus: int = 1, *, connect: bool = True
) -> Iterator[LocalCluster]:
    """Start a cluster that stops with the block; connect this process to it where asked to."""
    cluster = LocalCluster(n_nodes, n_cpus)
    import ray

    if connect:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
