"""What the scripts share: options, verdicts, tables, rows of the data sets, planted rows."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

T = TypeVar("T")
Rows = tuple[np.ndarray, np.ndarray]
"""float32 rows and their classes, which only score."""

_ENCODERS = {"images": "efficientnet-lite0", "texts": "minilm"}
_PIXELS = ("digits", "usps", "coil20", "mnist", "fashion_mnist")
_N_CIFAR10 = 5000
# embeddings that may lie beside the data sets, so that no encoder is needed
_KEPT = {"banking77": "banking77_minilm.npz", "cifar10": "cifar10_test5k_efflite0_224.npz"}


# -- how a script begins and ends ------------------------------------------------------------------


def options_of(doc: str | None, quick: str = "a bounded version") -> argparse.ArgumentParser:
    """Return a parser with the docstring of a script as its help, and ``--quick``."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def verdict(short: list[str], promise: str) -> int:
    """Print what fell short, or that ``promise`` holds; return the exit status."""
    print("\n" + "\n".join(["short:", *short] if short else [f"holds: {promise}"]))
    return 1 if short else 0


def give_up(error: object) -> int:
    """Print why nothing could be measured; return the exit status, which CI accepts."""
    print(f"{error}\nNothing was measured.")
    return 0 if os.environ.get("CI") else 2


class Table:
    """Lines of Markdown that are printed as they come and, after a full run, kept for the docs."""

    def __init__(self, *columns: str) -> None:
        self.lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
        print("\n".join(self.lines), flush=True)

    def add(self, *cells: str) -> None:
        self.lines.append(f"| {' | '.join(cells)} |")
        print(self.lines[-1], flush=True)

    def say(self, text: str) -> None:
        self.lines += ["", text]
        print(text, flush=True)


def keep(name: str, *tables: Table) -> None:
    """Write tables where the docs look for them."""
    text = "\n\n".join("\n".join(table.lines) for table in tables)
    (Path(__file__).parent / "results" / f"{name}.md").write_text(text + "\n", "utf-8")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return a result, and the CPU-seconds of this process that it took."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


# -- data ------------------------------------------------------------------------------------------


def find_rows(name: str, split: str = "all") -> Rows | None:
    """Return pixels or embeddings with their classes, or None, saying why, without the data."""
    # the mutants must find no module of prcut imported
    from benchmarks.harness.contest.sets import load_contest_set
    from benchmarks.harness.encoders import embed_once
    from benchmarks.harness.inputs import load_bench_dataset

    from prcut.errors import PRCutError

    try:
        if name in _PIXELS:
            data = load_bench_dataset(name, split)
            return data.pixels(), data.labels
        kept = Path(os.environ.get("PRCUT_DATA", ".")) / _KEPT.get(name, "none")
        if kept.is_file():
            with np.load(kept) as file:
                return file["features"].astype(np.float32), file["y"].astype(np.int64)
        if name == "trec":
            return load_contest_set(name)
        is_cifar = name == "cifar10"
        data = load_bench_dataset(
            name, "test" if is_cifar else "all", _N_CIFAR10 if is_cifar else None
        )
        return embed_once(data.items, _ENCODERS[data.kind]), data.labels
    except PRCutError as error:
        print(f"{name} is left out: {error}")
        return None


def rows_of(name: str, split: str = "all") -> Rows:
    """Return pixels or embeddings with their classes; end the script without the data."""
    found = find_rows(name, split)
    if found is None:
        sys.exit(give_up(f"{name} is needed."))
    return found


def write_planted(
    folder: Path, n_rows: int, n_features: int, n_clusters: int, n_files: int, *, noise: float = 0.5
) -> None:
    """Write Gaussian rows around random centres: columns ``id``, ``embedding``, ``planted``."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1, (n_clusters, n_features)).astype(np.float32)
    starts = np.linspace(0, n_rows, n_files + 1).astype(int)
    for number, (start, stop) in enumerate(pairwise(starts)):
        planted = rng.integers(n_clusters, size=stop - start)
        rows = rng.standard_normal((stop - start, n_features), dtype=np.float32)
        rows = noise * rows + centres[planted]
        table = pa.table(
            {
                "id": pa.array(np.arange(start, stop)),
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), n_features),
                "planted": pa.array(planted),
            }
        )
        pq.write_table(table, folder / f"part-{number:04d}.parquet")
