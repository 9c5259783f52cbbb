"""Reports as readers use them: images, texts and a million rows, in headless Chromium.

    python benchmarks/report.py            # Fashion-MNIST, banking77, 1,000,000 rows
    python benchmarks/report.py --quick    # some digits, made-up texts, 1,000 rows

Every report is opened 1280 and 390 pixels wide, light and dark. A script hovers, clicks, searches,
zooms and presses keys. It fails if one of these does not do what it should, if the browser's
console has messages, if a page requests anything but itself, is wider than the window or larger
than 6 MB, if a text became markup, or if 100,000 points move at fewer than 30 frames per
second. ``--axe axe.min.js`` (npm package axe-core) adds a check of accessibility, ``--shots DIR``
keeps screenshots, ``--folder DIR`` keeps runs and pages. Without Chromium, or the package
playwright that drives it, the pages are written but not opened.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer

from _browser import SCHEMES, WIDTHS, browse, explore, find_chromium, look
from _data import banking77, fashion_mnist, fashion_mnist_labels
from _verdict import Table, keep, verdict
from prcut.fit.config import FitConfig
from prcut.runs.run import fit_run
from prcut.ui import inspect_run, write_report

MOST_BYTES = 6_000_000
LEAST_FRAMES = 30.0
MARKUP = "<script>document.title = 'stolen'</script><img src=https://example.org/x.png>"
WORDS = (
    ("card", "lost", "stolen", "block", "new", "wallet"),
    ("transfer", "money", "late", "bank", "account", "pending"),
    ("fee", "charged", "exchange", "rate", "extra", "why"),
    ("pin", "forgot", "unlock", "wrong", "change", "code"),
)


class Page(NamedTuple):
    """A report, how it was made, and a word that some of its rows match."""

    file: Path
    seconds: float
    n_rows: int
    n_clusters: int
    word: str


def images(folder: Path, quick: bool) -> dict[str, Any]:
    if quick:
        digits = load_digits()
        rows, labels, shape = digits.data[:400].astype(np.float32), digits.target[:400], "8x8"
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
        words, features, classes = made_up_texts(400)
    else:
        words, features, classes = banking77()
    words = [f"{word} {MARKUP}" for word in words]
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
    n_rows, n_features, n_clusters = (1000 if quick else 1_000_000), 16, 20
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


def name_clusters(texts: list[str], labels: np.ndarray, n_clusters: int) -> list[str]:
    """Name clusters by the three words that weigh most in them."""
    vectorizer = TfidfVectorizer(stop_words="english")
    weights = vectorizer.fit_transform([text.removesuffix(MARKUP) for text in texts])
    words = vectorizer.get_feature_names_out()
    means = [np.asarray(weights[labels == one].mean(0)).ravel() for one in range(n_clusters)]
    return [" ".join(words[mean.argsort()[:-4:-1]]) for mean in means]


def make(folder: Path, name: str, fit: Callable[[Path, bool], dict[str, Any]], quick: bool) -> Page:
    options, file = fit(folder, quick), folder / f"{name}.html"
    start = time.perf_counter()
    inspection = inspect_run(folder / name)
    word = "5"  # the number of a cluster
    if name == "texts":
        word = "card"
        words = pq.read_table(folder / "texts.parquet")["text"].to_pylist()
        options["names"] = name_clusters(words, inspection.labels, inspection.n_clusters)
    write_report(inspection, file, **options)
    seconds = time.perf_counter() - start
    return Page(file, seconds, len(inspection.rows), inspection.n_clusters, word)


def faults(page: Page, browser: Any, args: argparse.Namespace, table: Table) -> Iterator[str]:
    name, size = page.file.stem, page.file.stat().st_size
    if size > MOST_BYTES:
        yield f"{name}: {size:,} bytes, at most {MOST_BYTES:,}"
    if "<script>document" in page.file.read_text("utf-8"):
        yield f"{name}: a text became markup"
    cells = [name, f"{page.n_rows:,}", f"{page.n_clusters}", f"{size / 1e6:.2f}"]
    frames = {}
    views = [(width, scheme) for width in WIDTHS for scheme in SCHEMES]
    for view in (
        ()
        if browser is None
        else look(
            browser,
            page.file,
            views=views[::3] if args.quick else views,
            act=lambda opened: explore(opened, page.word, page.n_clusters),
            shots=args.shots,
            axe=args.axe,
            count_frames=not args.quick,
        )
    ):
        yield from (f"{name}, {view.width} px, {view.scheme}: {fault}" for fault in view.faults)
        if view.frames < LEAST_FRAMES:
            yield f"{name}, {view.width} px: {view.frames:.0f} frames/s, want {LEAST_FRAMES:.0f}"
        if not args.quick:
            frames[view.width] = f"{view.frames:.0f} ({view.drawn:,.0f})"
    table.add(*cells, f"{page.seconds:.0f}", *(frames.get(width, "–") for width in WIDTHS))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    parser.add_argument("--shots", type=Path, help="folder for pictures of the pages")
    parser.add_argument("--folder", type=Path, help="folder for runs and pages, kept")
    parser.add_argument("--axe", type=Path, help="axe.min.js of the npm package axe-core")
    args = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium, or no playwright: the pages are written but not opened")
    heads = ("report", "rows", "clusters", "MB", "seconds to write")
    table = Table(*heads, *(f"frames/s at {width} px (points in each)" for width in WIDTHS))
    short: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = args.folder or Path(name)
        kinds = {"images": images, "texts": texts, "rows": many_rows}
        pages = [make(folder, kind, fit, args.quick) for kind, fit in kinds.items()]
        with browse(chromium) if chromium else nullcontext() as browser:
            for page in pages:
                short += faults(page, browser, args, table)
    if not args.quick and args.axe is not None:
        n_serious = sum("axe" in fault for fault in short)
        table.say(f"axe-core: {n_serious} serious or critical findings.")
        keep("report", table)
    return verdict(short, "reports can be explored, are whole, quiet and small, wide and narrow")


if __name__ == "__main__":
    sys.exit(main())
