"""Assigning rows to clusters against bare loops: time, memory, and ONNX Runtime's labels.

Random rows of 128 features, 1,000 clusters, a linear assigner. `PRCut.predict` over a memory map
against torch's product and argmax over the same map; the command `prcut assign` from Parquet to
Parquet, called as a function so that no import is timed, against pyarrow's reader, product, argmax
and softmax, pyarrow's writer. Runs alternate; the ratio is the median of neighbours in time. Peak
memory of `prcut assign` in a process of its own, at all rows and at a quarter. Exits with 1 when
`predict` exceeds 1.15, `prcut assign` 1.25, the memory at all rows 1.10 times that at a quarter
(and 150 MB more), or one of ONNX Runtime's labels differs that is not a tie.

    python benchmarks/assign.py           # 2,000,000 rows, about 5 minutes on 2 cores
    python benchmarks/assign.py --quick   # 200,000 rows, about a minute
"""

import argparse
import contextlib
import io
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from benchmarks.harness.usage import peak_memory

from _verdict import verdict
from prcut.estimator import PRCut
from prcut.training.assigner.onnx_export import export_onnx
from prcut.training.assigner.saved import save_model
from prcut.ui.cli.commands import main as prcut

MAX_PREDICT, MAX_ASSIGN, MAX_MEMORY = 1.15, 1.25, 1.10
N_FEATURES, N_CLUSTERS, N_FILES = 128, 1000, 4
# what the allocators of a short (--quick) run have not yet taken
SLACK_MB = 150
# rows at a time: of 2,048 to 32,768, 2,048 to 8,192 were the fastest for the bare loop
CHUNK, BATCH = 4096, 2**15
# logits nearer than this, relative to the larger, are a tie
TIE = 1e-5


class Files(NamedTuple):
    """The folders of a benchmark's files."""

    rows: Path
    parts: Path
    few_parts: Path
    model: Path


def write_rows(folder: Path, n_rows: int) -> Files:
    """Write the same rows as a .npy file, as Parquet files, and a quarter of those."""
    place = Files(folder / "rows.npy", folder / "parts", folder / "few", folder / "model")
    rng = np.random.default_rng(0)
    shape = (n_rows, N_FEATURES)
    rows = np.lib.format.open_memmap(place.rows, "w+", np.float32, shape)
    place.parts.mkdir()
    place.few_parts.mkdir()
    for number, start in enumerate(range(0, n_rows, n_rows // N_FILES)):
        stop = start + n_rows // N_FILES
        rows[start:stop] = rng.standard_normal((stop - start, N_FEATURES), dtype=np.float32)
        values = pa.array(rows[start:stop].ravel())
        lists = pa.FixedSizeListArray.from_arrays(values, N_FEATURES)
        table = pa.table({"id": np.arange(start, stop), "embedding": lists})
        pq.write_table(table, place.parts / f"{number}.parquet", compression="none")
    shutil.copy(place.parts / "0.parquet", place.few_parts)
    return place


def fitted(rows: np.ndarray) -> PRCut:
    """Return an estimator whose assigner has the given sizes; its quality does not matter here."""
    model = PRCut(
        N_CLUSTERS,
        solver="train",
        hidden=(),
        refine=False,
        n_neighbors=10,
        max_steps=10,
        n_init=1,
        random_state=0,
        device="cpu",
    )
    return model.fit(rows)


def as_tensor(rows: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch fears that it could write to the map
        return torch.from_numpy(rows)


def bare_predict(rows: np.ndarray, weight: torch.Tensor, bias: torch.Tensor) -> np.ndarray:
    """Assign rows as one would with torch alone."""
    labels = np.empty(len(rows), np.int64)
    with torch.inference_mode():
        for start in range(0, len(rows), CHUNK):
            chunk = as_tensor(rows[start : start + CHUNK])
            logits = torch.nn.functional.linear(chunk, weight, bias)
            labels[start : start + CHUNK] = logits.argmax(1).numpy()
    return labels


def bare_assign(parts: Path, out: Path, weight: torch.Tensor, bias: torch.Tensor) -> None:
    """Assign rows as one would with pyarrow and torch alone."""
    kinds = [("id", pa.int64()), ("label", pa.int32()), ("confidence", pa.float32())]
    schema = pa.schema(kinds)
    out.mkdir()
    for file in sorted(parts.glob("*.parquet")):
        with pq.ParquetWriter(out / file.name, schema) as writer, torch.inference_mode():
            for batch in pq.ParquetFile(file).iter_batches(BATCH, columns=["id", "embedding"]):
                values = batch.column(1).flatten().to_numpy()
                features = torch.tensor(values).view(-1, N_FEATURES)
                found = []
                for chunk in features.split(CHUNK):
                    logits = torch.nn.functional.linear(chunk, weight, bias)
                    found.append(logits.softmax(1).max(1))
                confidence = torch.cat([one.values for one in found]).numpy()
                label = torch.cat([one.indices for one in found]).int().numpy()
                writer.write_table(pa.table([batch.column(0), label, confidence], schema=schema))


def assign_command(model: Path, data: Path, out: Path) -> None:
    """``prcut assign`` without the start of a process."""
    arguments = ["assign", str(model), str(data), "--out", str(out), "--id-column", "id"]
    with contextlib.redirect_stdout(io.StringIO()):
        if code := prcut([*arguments, "--device", "cpu", "--quiet"]):
            sys.exit(f"prcut assign ended with {code}")


def ratio_of(ours: Callable[[], object], bare: Callable[[], object], rounds: int) -> list[float]:
    """Median times of both in turns, and the median ratio."""
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        start = time.perf_counter()
        bare()
        middle = time.perf_counter()
        ours()
        times.append((time.perf_counter() - middle, middle - start))
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return [*medians, statistics.median(mine / its for mine, its in times)]


def speed(place: Files, model: PRCut, folder: Path, rounds: int) -> Iterator[str]:
    rows = np.load(place.rows, mmap_mode="r")
    layer = model.assigner_.head
    with torch.no_grad():
        weight = layer.weight / layer.scale
        bias = layer.bias - weight @ layer.origin
    outs = iter(range(2 * rounds))

    def fresh() -> Path:
        """Return a new folder; the last one is removed, so that the disk does not fill."""
        number = next(outs)
        shutil.rmtree(folder / f"out-{number - 2}", ignore_errors=True)
        return folder / f"out-{number}"

    cases = (
        (
            "predict",
            MAX_PREDICT,
            lambda: model.predict(rows),
            lambda: bare_predict(rows, weight, bias),
        ),
        (
            "prcut assign",
            MAX_ASSIGN,
            lambda: assign_command(place.model, place.parts, fresh()),
            lambda: bare_assign(place.parts, fresh(), weight, bias),
        ),
    )
    for name, limit, ours, bare in cases:
        mine, its, ratio = ratio_of(ours, bare, rounds)
        print(f"| {name} | {mine:.1f} s | {its:.1f} s | {ratio:.2f} | {limit} |", flush=True)
        if ratio > limit:
            yield f"{name}: {ratio:.2f} × the bare loop > {limit}"


def peak_of_assign(model: Path, data: Path, out: Path) -> float:
    """MB, of a process that does nothing else."""
    command = [sys.executable, __file__, "--work", str(model), str(data), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def memory(place: Files, folder: Path, n_rows: int, slack_mb: int) -> Iterator[str]:
    few = peak_of_assign(place.model, place.few_parts, folder / "few-out")
    many = peak_of_assign(place.model, place.parts, folder / "many-out")
    print(
        f"\n`prcut assign`, peak memory: {few:.0f} MB at {n_rows // N_FILES:,} rows, {many:.0f} MB "
        f"at {n_rows:,}: {many / few:.3f}"
    )
    if many > max(MAX_MEMORY * few, few + slack_mb):
        yield f"memory grows {many / few:.2f} × from {n_rows // N_FILES:,} to {n_rows:,} rows"


def onnx_labels(place: Files, model: PRCut, folder: Path, n_rows: int) -> Iterator[str]:
    import onnxruntime

    rows = np.load(place.rows, mmap_mode="r")[:n_rows]
    export_onnx(folder / "model.onnx", model.assigner_)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    parts = [session.run(["labels"], {"features": part})[0] for part in np.array_split(rows, 20)]
    differs = np.flatnonzero(np.concatenate(parts) != model.predict(rows))
    with torch.inference_mode():
        two = model.assigner_(torch.from_numpy(np.array(rows[differs]))).topk(2, 1).values
    ties = int(((two[:, 0] - two[:, 1]) <= TIE * two[:, 0].abs()).sum())
    same = 1 - len(differs) / len(rows)
    print(f"\nONNX Runtime: {same:.6f} of {len(rows):,} labels equal, {ties} ties aside")
    if len(differs) > ties:
        yield f"ONNX Runtime gives {len(differs) - ties} other labels"


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        assign_command(*(Path(argument) for argument in sys.argv[2:5]))
        print((peak_memory() or 0) / 2**20)
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    quick = parser.parse_args().quick
    n_rows, rounds = (200_000, 5) if quick else (2_000_000, 5)
    print(
        f"{n_rows:,} × {N_FEATURES} float32, {N_CLUSTERS:,} clusters, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads, {os.cpu_count()} {platform.machine()} cores, medians "
        f"of {rounds}\n"
    )
    short: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        place = write_rows(folder, n_rows)
        model = fitted(np.array(np.load(place.rows, mmap_mode="r")[:20_000]))
        save_model(place.model, model.assigner_, {})
        print("| what | ours | bare loop | ratio | limit |\n|---|---|---|---|---|")
        short += speed(place, model, folder, rounds)
        short += memory(place, folder, n_rows, SLACK_MB if quick else 0)
        short += onnx_labels(place, model, folder, min(n_rows, 100_000))
    return verdict(
        short,
        f"predict <= {MAX_PREDICT} and prcut assign <= {MAX_ASSIGN} × the bare loops, memory <= "
        f"{MAX_MEMORY} × that of a quarter of the rows, ONNX Runtime's labels equal",
    )


if __name__ == "__main__":
    sys.exit(main())
