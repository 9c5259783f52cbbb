"""A whole run on disk in a process of its own, each stage measured, and its graph."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from benchmarks.harness.usage import MeasuredEngine, Usage, peak_memory

from prcut.fit.config import FitConfig
from prcut.graph.blocks.read import open_joined
from prcut.numerics.objective import ClusterCost
from prcut.runs.labels import RowLabels, assign_parquet
from prcut.runs.run import fit_run
from prcut.runtime.device import readable_bytes
from prcut.runtime.engine import Engine, LocalEngine
from prcut.runtime.folder import Folder
from prcut.search.fragments import CoarseGraph
from prcut.search.sweep import cluster_sums


class DiskRun(NamedTuple):
    """What a run found and used; ``rest`` is all CPU time outside of tasks, as of distillation."""

    objective: float
    usage: dict[str, Usage]
    rest: float
    peak_bytes: int

    @property
    def longest_seconds(self) -> float:
        """CPU-seconds of the longest task."""
        return max(self.rest, *(used.longest_seconds for used in self.usage.values()))

    def show(self, n_rows: int) -> None:
        """Print what each stage used."""
        cpu_seconds = self.rest
        for stage, used in self.usage.items():
            cpu_seconds += used.cpu_seconds
            print(
                f"  {stage:<14} {used.tasks:>5} tasks, {1e6 * used.cpu_seconds / n_rows:>7.1f} "
                f"CPU-µs a row, the longest {used.longest_seconds:>6.1f} CPU-s"
            )
        print(
            f"  in all {1e6 * cpu_seconds / n_rows:.1f} CPU-µs a row, objective "
            f"{self.objective:.4f}, a process had {readable_bytes(self.peak_bytes)} at most",
            flush=True,
        )


def fit_on_disk(
    data: Path,
    run: Path,
    config: FitConfig,
    *,
    column: str,
    memory: int | None = None,
    address: str | None = None,
) -> DiskRun:
    """Fit and assign rows with a column ``id``, here or on the Ray cluster at an address."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_fit, data, run, config, column, memory, address).result()


def _fit(
    data: Path, run: Path, config: FitConfig, column: str, memory: int | None, address: str | None
) -> DiskRun:
    os.environ["OMP_NUM_THREADS"] = "1"
    import faiss
    import torch

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    engine: Engine = LocalEngine()
    if address is not None:
        from prcut.runtime.ray_engine import RayEngine

        engine = RayEngine(address)
    measured, start = MeasuredEngine(engine), sum(os.times()[:2])
    how = {"column": column, "id_column": "id", "engine": measured, "device": "cpu"}
    found = fit_run(data, run, config, memory=memory, **how)
    if found.mode != "disk":
        raise RuntimeError("the rows fit in memory")
    assign_parquet(found.assigner, data, run / "assigned", **how)
    rest = sum(os.times()[:2]) - start
    if address is None:  # tasks ran in this process
        rest -= sum(used.cpu_seconds for used in measured.usage.values())
    peak = max(peak_memory() or 0, *(used.peak_bytes for used in measured.usage.values()))
    return DiskRun(found.objective, measured.usage, rest, peak)


def labels_of(run: Path, n_rows: int) -> np.ndarray:
    """Return the clusters of all rows: of the partition, or the assigner's where a row has none."""
    labels = RowLabels(Folder(run / "partition")).read(0, n_rows)
    assigned = pq.read_table(run / "assigned", columns=["label"])["label"].to_numpy()
    return np.where(labels < 0, assigned, labels)


class RunGraph(NamedTuple):
    """The graph of a run on disk, and the rows of its nodes."""

    graph: CoarseGraph
    rows: np.ndarray

    @classmethod
    def open(cls, run: Path) -> "RunGraph":
        """Read it."""
        joined = open_joined(Folder(run / "graph"))
        graph = CoarseGraph.of_arrays(*joined[1:])
        links = graph.links.astype(np.float64)
        return cls(graph._replace(links=links), np.asarray(joined.rows))

    def objective(self, labels: np.ndarray, n_clusters: int, balance_weight: float) -> float:
        """Return J of labels of all rows."""
        own, total = labels[self.rows], float(self.graph.links.data.sum())
        cost = ClusterCost.of(len(own), total, n_clusters, balance_weight=balance_weight)
        return cost.objective(*cluster_sums(self.graph, own, n_clusters))
