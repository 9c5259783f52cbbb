"""Ray against none: a whole run on three nodes, and what the engine costs.

    python benchmarks/cluster.py            # 5,000,000 rows of 64 features, k = 1000
    python benchmarks/cluster.py --quick    # 100,000 rows, k = 50; only the block stage's ratio

Three raylets of one CPU each on this machine, on loopback. Compared in this run, one thread each:
assignment by two workers and by a bare loop (rows per second); scatter and gather on Ray and
without it (CPU-seconds, on the first million rows, by workers that have done the same before).
"""

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from benchmarks.harness.local_cluster import LocalCluster, local_cluster
from benchmarks.harness.usage import MeasuredEngine
from sklearn.metrics import normalized_mutual_info_score

from _parquet import write_planted
from _verdict import verdict
from prcut.fit.config import FitConfig
from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.runs.folder import RunResult
from prcut.runs.labels import assign_parquet
from prcut.runs.run import fit_run
from prcut.runtime.device import readable_bytes
from prcut.runtime.engine import Engine, LocalEngine
from prcut.runtime.ray_engine import RayEngine

N_FEATURES = 64
# of the bare loop's rows per second; of the CPU-seconds without Ray
LEAST_ROWS, MOST_CPU = 1.5, 1.1
# rows that blocks are made of with and without Ray
COMPARED_ROWS = 1_000_000
# with few rows, handing out tasks outweighs the work
QUICK_CPU = 1.5


def whole_run(data: Path, work: Path, n_clusters: int) -> tuple[RunResult, list[str]]:
    """Fit and assign; what went wrong."""
    engine = MeasuredEngine(RayEngine())
    config = FitConfig.of("default", n_clusters)
    start = time.perf_counter()
    options = {"column": "embedding", "id_column": "id"}
    found = fit_run(data, work / "run", config, **options, engine=engine, device="cpu")
    assign_parquet(found.assigner, data, work / "labels", **options, engine=engine, device="cpu")
    took = time.perf_counter() - start
    print(f"whole run: {took:.0f} s, objective {found.objective:.3f}, ", end="")
    print(f"{found.used_clusters} of {n_clusters} clusters in use")
    for stage, used in engine.usage.items():
        print(
            f"  {stage:<14} {used.tasks:>4} tasks, {used.cpu_seconds:>6.0f} CPU-s, "
            f"reads {readable_bytes(used.read):>8}, writes {readable_bytes(used.written):>8}, "
            f"a worker has {readable_bytes(used.peak_bytes)} at most"
        )
    labels = pq.read_table(work / "labels")
    truth = pq.read_table(data, columns=["id", "planted"])
    order = np.argsort(labels["id"].to_numpy())
    short = []
    if not np.array_equal(labels["id"].to_numpy()[order], truth["id"].to_numpy()):
        short.append("not every row has one label")
    else:
        nmi = normalized_mutual_info_score(truth["planted"], labels["label"].to_numpy()[order])
        print(f"  NMI with what was planted: {nmi:.4f}")
    return found, short


def rows_ratio(found: RunResult, data: Path, work: Path, cluster: LocalCluster) -> float:
    """Rows per second that two workers assign, over those of a bare loop."""
    while len(cluster.nodes) > 2:
        cluster.kill_node(0)
    engines: dict[str, Engine] = {"bare": LocalEngine(), "ray": RayEngine()}
    seconds = {}
    for name, engine in engines.items():
        start = time.perf_counter()
        assign_parquet(
            found.assigner,
            data,
            work / f"assigned-{name}",
            column="embedding",
            id_column="id",
            engine=engine,
            device="cpu",
        )
        seconds[name] = time.perf_counter() - start
    print(
        f"assignment: {seconds['bare']:.0f} s by a bare loop, {seconds['ray']:.0f} by two workers"
    )
    return seconds["bare"] / seconds["ray"]


def cpu_ratio(data: Path, work: Path, n_files: int) -> float:
    """CPU-seconds of scatter and gather on Ray, over those without."""
    some = work / "some"
    some.mkdir()
    for path in sorted(data.iterdir())[:n_files]:
        os.link(path, some / path.name)
    engines: dict[str, Engine] = {"bare": LocalEngine(), "ray": RayEngine()}
    cpu = {}
    for name, engine in ((name, MeasuredEngine(engine)) for name, engine in engines.items()):
        build = partial(build_blocks, some, config=BlockConfig(), column="embedding", engine=engine)
        # workers load their code in a first run that is not counted
        build(work / f"first-{name}")
        engine.usage.clear()
        build(work / f"blocks-{name}")
        cpu[name] = sum(used.cpu_seconds for used in engine.usage.values())
    print(f"blocks: {cpu['bare']:.0f} CPU-s without Ray, {cpu['ray']:.0f} with it")
    return cpu["ray"] / cpu["bare"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    parser.add_argument("--rows", type=float, default=5e6, help="instead of five million")
    parser.add_argument("--folder", help="folder for the files, some 20 GB; by default a new one")
    args = parser.parse_args()
    n_rows, n_clusters, n_files = (100_000, 50, 10) if args.quick else (int(args.rows), 1000, 50)
    os.environ["OMP_NUM_THREADS"] = "1"
    import faiss
    import torch

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, local_cluster(3, 1) as cluster:
        work = Path(folder)
        data = work / "data"
        write_planted(data, n_rows, N_FEATURES, n_clusters, n_files)
        print(f"{n_rows:,} rows, k = {n_clusters}, three nodes", flush=True)
        most = QUICK_CPU if args.quick else MOST_CPU
        cpu = cpu_ratio(data, work, min(n_files, int(COMPARED_ROWS * n_files / n_rows)))
        print(f"block stage: {cpu:.2f} times the CPU-seconds without Ray", flush=True)
        short = [f"block stage {cpu:.2f} > {most}"] if cpu > most else []
        if not args.quick:
            found, wrong = whole_run(data, work, n_clusters)
            short += wrong
            rows = rows_ratio(found, data, work, cluster)
            print(f"assignment: {rows:.2f} times the bare loop")
            if rows < LEAST_ROWS:
                short.append(f"assignment {rows:.2f} < {LEAST_ROWS}")
    return verdict(short, "a whole run on Ray, at next to no cost")


if __name__ == "__main__":
    sys.exit(main())
