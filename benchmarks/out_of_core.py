"""From Parquet to blocks: memory, time per row, and three murders.

Makes a seeded Gaussian mixture (float32 lists and string ids) as Parquet files, one component for
every 5,000 rows so that neighbourhoods are as crowded at every size, then runs the whole
way in processes of their own, with 15 neighbours, blocks of 100,000 core rows and a tenth of the
rows as anchors:

1. once on a fifth of the rows, once on all: peak memory and time per row may grow by at most 1.3;
2. once more on all, killed by SIGKILL at three random moments and started again: no unfinished file
   may show after a kill, the final bytes must be those of the undisturbed run, and one more run
   must change nothing.

Exits with 1 when any of it falls short.

    python benchmarks/out_of_core.py --rows 5000000 --dim 64   # about 10 minutes, 25 GB of disk
    python benchmarks/out_of_core.py --quick                   # 400,000 rows, blocks of 20,000
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from _verdict import verdict

MAX_RATIO = 1.3
N_KILLS = 3
FILE_ROWS = 250_000


def write_parquet(folder: Path, rows: int, dim: int) -> None:
    """Write a mixture of ``rows / 5000`` Gaussians to files of 250,000 rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    centers = np.random.default_rng(0).standard_normal((rows // 5000, dim)).astype(np.float32)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        rng = np.random.default_rng([1, number])
        count = min(FILE_ROWS, rows - start)
        noise = rng.standard_normal((count, dim), dtype=np.float32)
        features = centers[rng.integers(len(centers), size=count)] + 0.5 * noise
        table = pa.table(
            {
                "id": [f"row-{start + i}" for i in range(count)],
                "embedding": pa.FixedSizeListArray.from_arrays(features.ravel(), dim),
            }
        )
        pq.write_table(table, folder / f"part-{number:04d}.parquet", row_group_size=2**16)


def work(data: str, folder: str, block_rows: int) -> None:
    """Run what is measured: all stages, in this process."""
    from benchmarks.harness.usage import peak_memory

    from prcut.pipeline.outofcore.build_blocks import BlockConfig, build_blocks
    from prcut.runtime.progress import Progress

    shown = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal shown
        if time.monotonic() - shown > 10 or progress.done == progress.total:
            shown = time.monotonic()
            print(
                f"  {progress.stage}: {progress.done:,} of {progress.total:,}, "
                f"{progress.rows_per_second:,.0f}/s, {progress.seconds_left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    config = BlockConfig(n_neighbors=15, block_rows=block_rows, anchors=0.1)
    start = time.perf_counter()
    blocks = build_blocks(data, f"{folder}/blocks", config, id_column="id", on_progress=show)
    built = time.perf_counter()
    report = {
        "blocks": len(blocks),
        "recall": float(np.mean([record["recall"] for record in blocks.records])),
        "seconds": built - start,
        "peak_rss_mb": (peak_memory() or 0) / 2**20,
    }
    print(json.dumps(report), flush=True)


def start(data: Path, folder: Path, block_rows: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", str(data), str(folder), str(block_rows)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run(data: Path, folder: Path, block_rows: int) -> dict[str, Any]:
    process = start(data, folder, block_rows)
    out, _ = process.communicate()
    if process.returncode:
        sys.exit(f"the run in {folder} failed with status {process.returncode}")
    found: dict[str, Any] = json.loads(out)
    return found


def tree(folder: Path) -> dict[str, str]:
    """Checksum of every file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while chunk := file.read(2**23):
                    digest.update(chunk)
            found[str(path.relative_to(folder))] = digest.hexdigest()
    return found


def unfinished(folder: Path) -> list[str]:
    """Files that show (no leading dot) and are not whole."""

    def is_whole(path: Path) -> bool:
        try:
            if path.suffix == ".npy":
                np.load(path, mmap_mode="r")
            elif path.suffix == ".json":
                json.loads(path.read_text())
        except ValueError:
            return False
        return True

    return [f"{path} is not whole" for path in folder.rglob("[!.]*") if not is_whole(path)]


def murders(data: Path, folder: Path, block_rows: int, seconds: float) -> list[str]:
    """Kill the run three times at random moments of its expected time; what was found wrong."""
    short = []
    rng = np.random.default_rng(0)
    for kill in range(N_KILLS):
        process = start(data, folder, block_rows)
        # each run finds what the ones before it finished, so moments are short
        moment = rng.uniform(0.05, 0.5) * seconds
        try:
            process.wait(moment)
            print(f"kill {kill + 1}: the run had ended before {moment:.1f} s")
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            files = sum(1 for path in folder.rglob("[!.]*") if path.is_file())
            print(f"kill {kill + 1}: SIGKILL after {moment:.1f} s, {files} files were there")
        if process.stdout:
            process.stdout.close()
        short += unfinished(folder)
    return short


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rows, block_rows = (400_000, 20_000) if options.quick else (options.rows, 100_000)
    folder = Path(tempfile.mkdtemp(prefix="prcut-", dir=options.folder))
    try:
        return measure(folder, rows, options.dim, block_rows)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, rows: int, dim: int, block_rows: int) -> int:
    print(f"Gaussian mixture, {rows:,} x {dim} float32, blocks of {block_rows:,}, seeds 0 and 1")
    sizes = [rows // 5, rows]
    for size in sizes:
        write_parquet(folder / f"data-{size}", size, dim)
    found = {size: run(folder / f"data-{size}", folder / f"{size}", block_rows) for size in sizes}
    shutil.rmtree(folder / f"{sizes[0]}")

    print("\n| rows | blocks | recall in block | us/row | peak MB |")
    print("|---|---|---|---|---|")
    per_row, memory = [], []
    for size, one in found.items():
        per_row.append(one["seconds"] / size)
        memory.append(one["peak_rss_mb"])
        print(
            f"| {size:,} | {one['blocks']} | {one['recall']:.3f} | {1e6 * per_row[-1]:.1f} "
            f"| {memory[-1]:.0f} |"
        )
    ratios = {"peak memory": memory[1] / memory[0], "time per row": per_row[1] / per_row[0]}
    print("\n" + ", ".join(f"{name} × {ratio:.2f}" for name, ratio in ratios.items()))
    short = [f"{name} × {r:.2f} > {MAX_RATIO}" for name, r in ratios.items() if r > MAX_RATIO]

    print()
    data, undisturbed, killed = folder / f"data-{rows}", folder / f"{rows}", folder / "killed"
    short += murders(data, killed, block_rows, per_row[1] * rows)
    run(data, killed, block_rows)
    whole, again = tree(undisturbed), tree(killed)
    if whole != again:
        different = sorted(name for name in {*whole, *again} if whole.get(name) != again.get(name))
        short.append(f"{len(different)} files differ after the kills: {different[:5]}")
    print(f"after the kills: {len(again)} files, {'the same' if whole == again else 'OTHER'} bytes")
    before = {path: path.stat().st_mtime_ns for path in killed.rglob("*")}
    began = time.perf_counter()
    run(data, killed, block_rows)
    after = {path: path.stat().st_mtime_ns for path in killed.rglob("*")}
    if before != after:
        short.append("a run on finished results changed files")
    print(f"one more run: {time.perf_counter() - began:.1f} s, {len(before)} paths untouched")
    return verdict(short, f"memory and time per row <= {MAX_RATIO} ×, the same bytes after kills")


if __name__ == "__main__":
    sys.exit(main())
