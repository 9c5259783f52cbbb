"""Reports as readers see them: images, texts and a million rows, in headless Chromium.

    python benchmarks/report.py            # Fashion-MNIST, banking77, 1,000,000 rows
    python benchmarks/report.py --quick    # the digits, made-up texts, 50,000 rows

Every report is opened 1280 and 390 pixels wide, light and dark. It fails if the browser's console
has messages, if a page requests anything but itself, is wider than the window or larger than 5 MB,
or if a text became markup. ``--shots DIR`` keeps screenshots. Without Chromium, or the package
playwright that drives it, the pages are written but not opened.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits

from _browser import find_chromium, look
from _data import banking77, fashion_mnist, fashion_mnist_labels
from _verdict import verdict
from prcut.pipeline.config import FitConfig
from prcut.pipeline.run import fit_run
from prcut.ui import write_report

MOST_BYTES = 5_000_000
MARKUP = "<script>document.title = 'stolen'</script><img src=https://example.org/x.png>"
WORDS = (
    ("card", "lost", "stolen", "block", "new", "wallet"),
    ("transfer", "money", "late", "bank", "account", "pending"),
    ("fee", "charged", "exchange", "rate", "extra", "why"),
    ("pin", "forgot", "unlock", "wrong", "change", "code"),
)


class Page(NamedTuple):
    """A report, and the seconds it took to write."""

    file: Path
    seconds: float


def images(folder: Path, quick: bool) -> dict[str, Any]:
    if quick:
        digits = load_digits()
        rows, labels, shape = digits.data.astype(np.float32), digits.target, "8x8"
        rows = rows + 1e-3 * np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    else:
        rows, labels, shape = fashion_mnist(), fashion_mnist_labels(), "28x28"
    np.save(folder / "rows.npy", rows)
    np.save(folder / "labels.npy", labels)
    data = str(folder / "rows.npy")
    fit_run(data, folder / "images", FitConfig.of("default", 10))
    return {"images": shape, "labels": str(folder / "labels.npy")}


def texts(folder: Path, quick: bool) -> dict[str, Any]:
    """Texts with their features, each of them an attack."""
    if quick:
        words, features, classes = made_up_texts(1500)
    else:
        words, features, classes = banking77()
    words = [f"{MARKUP} {word}" for word in words]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1])
    table = pa.table({"text": words, "class": classes, "vector": vectors})
    pq.write_table(table, folder / "texts.parquet")
    n_clusters = len(set(classes))
    config = FitConfig.of("default", n_clusters, metric="cosine")
    fit_run(str(folder / "texts.parquet"), folder / "texts", config)
    return {"texts": "text", "labels": "class"}


def made_up_texts(n_rows: int) -> tuple[list[str], np.ndarray, list[str]]:
    """Make sentences of four kinds; features are word counts plus noise."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(len(WORDS), size=n_rows)
    drawn = [[*rng.choice(WORDS[kind], 5).tolist(), "please"] for kind in kinds]
    every = sorted({word for one in drawn for word in one})
    counts = np.array([[one.count(word) for word in every] for one in drawn], np.float32)
    features = counts + 0.05 * rng.normal(size=counts.shape).astype(np.float32)
    return [" ".join(one) for one in drawn], features, [WORDS[kind][0] for kind in kinds]


def many_rows(folder: Path, quick: bool) -> dict[str, Any]:
    """Draw Gaussian clusters of different sizes, some of them close together."""
    n_rows, n_features, n_clusters = (50_000 if quick else 1_000_000), 16, 20
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 1, (n_clusters, n_features))
    label = rng.choice(n_clusters, n_rows, p=rng.dirichlet(np.full(n_clusters, 3.0)))
    rows = rng.standard_normal((n_rows, n_features), dtype=np.float32) * 0.7
    rows += centers.astype(np.float32)[label]
    np.save(folder / "million.npy", rows)
    np.save(folder / "million-labels.npy", label)
    config = FitConfig.of("default", n_clusters, n_neighbors=10)
    fit_run(str(folder / "million.npy"), folder / "rows", config)
    return {"labels": str(folder / "million-labels.npy")}


def make(folder: Path, name: str, fit: Callable[[Path, bool], dict[str, Any]], quick: bool) -> Page:
    options = fit(folder, quick)
    start = time.perf_counter()
    file = folder / f"{name}.html"
    write_report(folder / name, file, **options)
    return Page(file, time.perf_counter() - start)


def faults(page: Page, chromium: str | None, shots: Path | None) -> list[str]:
    name, size = page.file.stem, page.file.stat().st_size
    print(f"{name:<8} {size / 1e6:.2f} MB in {page.seconds:.0f} s")
    short = [] if size <= MOST_BYTES else [f"{name}: {size:,} bytes, at most {MOST_BYTES:,}"]
    if "<script>document" in page.file.read_text("utf-8"):
        short.append(f"{name}: a text became markup")
    for view in look(chromium, page.file, shots) if chromium else ():
        where = f"{name}, {view.width} px, {view.scheme}"
        short += [f"{where}: the console says {said}" for said in view.console]
        short += [f"{where}: asks for {url}" for url in view.requests]
        if view.overflow > 0:
            short.append(f"{where}: {view.overflow} px wider than the window")
    return short


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    parser.add_argument("--shots", type=Path, help="folder for pictures of the pages")
    args = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium, or no playwright: the pages are written but not opened")
    short = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, fit in (("images", images), ("texts", texts), ("rows", many_rows)):
            short += faults(make(folder, kind, fit, args.quick), chromium, args.shots)
    return verdict(short, "reports are whole, quiet and small, wide and narrow, light and dark")


if __name__ == "__main__":
    sys.exit(main())
