"""Cost per row as rows grow, on Ray, and what `prcut plan` says of it.

    python benchmarks/growth.py            # 1, 3 and 10 million rows of 32 features
    python benchmarks/growth.py --quick    # 100,000 and 300,000 rows, here

Blocks (a tenth of the rows look for neighbours), the search of their joined graph, and labels of
100 clusters. Flat: the CPU-seconds per row, and the memory of a worker; the process that holds the
graph takes what `prcut plan` says. Bytes that went through files are held to the formulas of
`prcut.runs.plan`. Two raylets of one CPU each, one
thread; their workers have done a small job before, so that none is measured while it loads its
code.
"""

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness.local_cluster import local_cluster
from benchmarks.harness.usage import MeasuredEngine, Usage

from _shared import options_of, verdict, write_planted
from prcut import Assigner
from prcut.fit.config import FitConfig
from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.runs.folder import RunPlan
from prcut.runs.labels import assign_parquet
from prcut.runs.plan import StageCost, Workload, leader_memory, plan_stages
from prcut.runs.run import search_run
from prcut.runtime.device import readable_bytes
from prcut.runtime.engine import LocalEngine
from prcut.runtime.ray_engine import RayEngine
from prcut.runtime.sources import open_source

N_FEATURES, N_CLUSTERS, ANCHORS = 32, 100, 0.1
# rows that a run on disk distils
KEPT = 450 * 256
PLANNED = ("scatter", "gather", "assign")
# stages of many tasks, whose memory does not grow, and those of one task with the whole graph
SPREAD, LEADER = ("scatter", "gather", "assign"), ("join", "search", "lesson")
MOST_GROWTH, MOST_ERROR = 1.3, 0.15
# what the plan may be wrong by for the memory of the process with the graph
MOST_MEMORY_ERROR = 0.2
# rows of a planted cluster: a block has as many clusters whatever the number of rows
PLANTED_ROWS = 10_000
# files of a block's rows: tasks of the same size whatever the number of rows
FILES_PER_BLOCK = 0.5
# rows, and those of a block: some tasks of every stage for every worker
SMALL_JOB = 200_000, 10_000
QUICK_JOB = 20_000, 5_000


def run(engine: MeasuredEngine, place: Path, n_rows: int, block_rows: int) -> dict[str, Usage]:
    """Run all stages but the distillation, whose cost does not grow with the rows."""
    data = place / "data"
    n_files = int(FILES_PER_BLOCK * n_rows / block_rows)
    write_planted(data, n_rows, N_FEATURES, n_rows // PLANTED_ROWS, n_files)
    config = BlockConfig(anchors=ANCHORS, block_rows=block_rows, kept=KEPT)
    blocks = build_blocks(data, place / "blocks", config, column="embedding", engine=engine)
    fit = FitConfig.of("default", N_CLUSTERS, n_jobs=1, n_init=1)
    source = open_source(data, column="embedding")
    plan = RunPlan(str(place / "run"), source, fit, "cpu", "disk", block_rows)
    search_run(plan, blocks, engine, None)
    assigner = Assigner(N_FEATURES, N_CLUSTERS)
    options = {"column": "embedding", "id_column": "id", "device": "cpu"}
    assign_parquet(assigner, data, place / "labels", **options, engine=engine)
    return engine.usage


def errors(n_rows: int, used: dict[str, Usage], planned: dict[str, StageCost]) -> list[str]:
    """Return the stages whose bytes are not those of the formulas."""
    wrong = []
    for stage in PLANNED:
        usage = used[stage]
        for name in ("read", "written"):
            measured, model = (getattr(one, name) / n_rows for one in (usage, planned[stage]))
            print(f"  {stage:<14} {name:<8} {measured:>8.1f} bytes a row, planned {model:.1f}")
            if abs(measured - model) > MOST_ERROR * model:
                wrong.append(
                    f"{n_rows:,} rows, {stage}: {name} {measured:.1f} a row, planned {model:.1f}"
                )
    return wrong


def main() -> int:
    args = options_of(__doc__).parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import faiss
    import torch

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    sizes = [100_000, 300_000] if args.quick else [10**6, 3 * 10**6, 10**7]
    block_rows = 25_000 if args.quick else 100_000
    short, cpu, memory = [], [], []
    with ExitStack() as stack:
        if not args.quick:
            stack.enter_context(local_cluster(2, 1))
        small = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = MeasuredEngine(LocalEngine() if args.quick else RayEngine())
        run(engine, small, *(QUICK_JOB if args.quick else SMALL_JOB))
        for n_rows in sizes:
            with tempfile.TemporaryDirectory() as folder:
                engine = MeasuredEngine(LocalEngine() if args.quick else RayEngine())
                used = run(engine, Path(folder), n_rows, block_rows)
            cpu.append(1e6 * sum(one.cpu_seconds for one in used.values()) / n_rows)
            memory.append(max(used[stage].peak_bytes for stage in SPREAD))
            leader = max(used[stage].peak_bytes for stage in LEADER)
            print(f"{n_rows:,} rows: {cpu[-1]:.1f} CPU-µs a row, a worker has ", end="")
            print(f"{readable_bytes(memory[-1])} at most", flush=True)
            work = Workload(n_rows, N_FEATURES, N_CLUSTERS, anchors=ANCHORS, block_rows=block_rows)
            stages = plan_stages(work)
            short += errors(n_rows, used, {one.stage: one for one in stages})
            planned = leader_memory(stages)
            figures = f"{readable_bytes(leader)} at most, planned {readable_bytes(planned)}"
            print(f"  the process with the graph: {figures}")
            if not args.quick and abs(leader - planned) > MOST_MEMORY_ERROR * planned:
                short.append(
                    f"{n_rows:,} rows: the process with the graph has {readable_bytes(leader)}, "
                    f"planned {readable_bytes(planned)}"
                )
    for name, values in (("CPU-time a row", cpu), ("memory of a worker", memory)):
        growth = max(value / values[0] for value in values)
        print(f"{name} grows by {growth:.2f}")
        if growth > MOST_GROWTH:
            short.append(f"{name} grows by {growth:.2f} > {MOST_GROWTH}")
    return verdict(short, "cost per row is flat, and bytes are those of the plan")


if __name__ == "__main__":
    sys.exit(main())
