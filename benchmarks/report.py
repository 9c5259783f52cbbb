"""Reports as readers use them: images, texts and a million rows, in headless Chromium.

    python benchmarks/report.py            # Fashion-MNIST, banking77, 1,000,000 rows
    python benchmarks/report.py --quick    # some digits, made-up texts, 1,000 rows

Every report is opened 1280 and 390 pixels wide, light and dark. A script hovers, clicks, searches,
zooms and presses keys. It fails if one of these does not do what it should, if the browser's
console has messages, if a page requests anything but itself, is wider than the window or larger
than 6 MB, if a text became markup, or if 50,000 points move at fewer than 30 frames per
second. Without Chromium, or the package playwright that drives it, the pages are written but not
opened.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.harness.datasets import load_dataset
from sklearn.datasets import load_digits

from _browser import SCHEMES, WIDTHS, browse, explore, find_chromium, look
from _shared import Table, keep, options_of, rows_of, verdict
from prcut.fit.config import FitConfig
from prcut.runs.run import fit_run
from prcut.ui import inspect_run, write_report

MOST_BYTES = 6_000_000
LEAST_FRAMES = 30.0
MARKUP = "<script>document.title = 'stolen'</script><img src=https://example.org/x.png>"
SENTENCES = "my card is lost", "the transfer is late", "an extra fee", "I forgot the pin"


class Page(NamedTuple):
    """A report, how it was made, and a word that some of its rows match."""

    file: Path
    seconds: float
    n_rows: int
    n_clusters: int
    word: str


def write_images(folder: Path, quick: bool) -> Page:
    """Report images; a number of a cluster is searched for."""
    if quick:
        digits = load_digits()
        rows, labels, shape = digits.data[:400].astype(np.float32), digits.target[:400], "8x8"
        rows = rows + 1e-3 * np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    else:
        (rows, labels), shape = rows_of("fashion_mnist", "train"), "28x28"
    np.save(folder / "rows.npy", rows)
    np.save(folder / "labels.npy", labels)
    config = FitConfig.of("default", 10)
    options = {"images": shape, "labels": str(folder / "labels.npy")}
    return fit_and_write(folder / "rows.npy", folder / "images", config, "5", options)


def write_texts(folder: Path, quick: bool) -> Page:
    """Report texts with their features, each of them an attack."""
    if quick:
        kinds = np.arange(400) % len(SENTENCES)
        words, classes = ([SENTENCES[kind] for kind in kinds] for _ in range(2))
        noise = np.random.default_rng(0).normal(size=(400, len(SENTENCES)))
        rows = (np.eye(len(SENTENCES))[kinds] + 0.05 * noise).astype(np.float32)
    else:
        rows, _ = rows_of("banking77")
        texts = load_dataset("banking77", "all")
        words, classes = list(texts.items), [texts.classes[one] for one in texts.labels]
    words = [f"{word} {MARKUP}" for word in words]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    table = pa.table({"text": words, "class": classes, "vector": vectors})
    pq.write_table(table, folder / "texts.parquet")
    config = FitConfig.of("default", len(set(classes)), metric="cosine")
    names = [f"cluster {number} {MARKUP}" for number in range(config.n_clusters)]
    options = {"texts": "text", "labels": "class", "names": names}
    return fit_and_write(folder / "texts.parquet", folder / "texts", config, "card", options)


def write_many(folder: Path, quick: bool) -> Page:
    """Report Gaussian clusters of different sizes, some of them close together."""
    n_rows, n_features, n_clusters = (1000 if quick else 1_000_000), 16, 20
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 1, (n_clusters, n_features))
    label = rng.choice(n_clusters, n_rows, p=rng.dirichlet(np.full(n_clusters, 3.0)))
    rows = rng.standard_normal((n_rows, n_features), dtype=np.float32) * 0.7
    rows += centers.astype(np.float32)[label]
    np.save(folder / "million.npy", rows)
    config = FitConfig.of("default", n_clusters, n_neighbors=10)
    return fit_and_write(folder / "million.npy", folder / "rows", config, "5", {})


def fit_and_write(
    data: Path, run: Path, config: FitConfig, word: str, options: dict[str, Any]
) -> Page:
    """Fit a run and write its report."""
    fit_run(str(data), run, config)
    start = time.perf_counter()
    inspection = inspect_run(run)
    page = run.with_suffix(".html")
    write_report(inspection, page, **options)
    seconds = time.perf_counter() - start
    return Page(page, seconds, len(inspection.rows), inspection.n_clusters, word)


def faults(page: Page, browser: Any, quick: bool, table: Table) -> Iterator[str]:
    """Yield what is wrong with a page, and add a line to the table."""
    name, size = page.file.stem, page.file.stat().st_size
    if size > MOST_BYTES:
        yield f"{name}: {size:,} bytes, at most {MOST_BYTES:,}"
    if "<script>document" in page.file.read_text("utf-8"):
        yield f"{name}: a text became markup"
    frames = {}
    views = [(width, scheme) for width in WIDTHS for scheme in SCHEMES]
    for view in (
        ()
        if browser is None
        else look(
            browser,
            page.file,
            views=views[::3] if quick else views,
            act=lambda opened: explore(opened, page.word, page.n_clusters),
            count_frames=not quick,
        )
    ):
        yield from (f"{name}, {view.width} px, {view.scheme}: {fault}" for fault in view.faults)
        if view.frames < LEAST_FRAMES:
            yield f"{name}, {view.width} px: {view.frames:.0f} frames/s, want {LEAST_FRAMES:.0f}"
        if not quick:
            frames[view.width] = f"{view.frames:.0f} ({view.drawn:,.0f})"
    cells = f"{page.n_rows:,}", f"{page.n_clusters}", f"{size / 1e6:.2f}", f"{page.seconds:.0f}"
    table.add(name, *cells, *(frames.get(width, "–") for width in WIDTHS))


def main() -> int:
    quick = options_of(__doc__).parse_args().quick
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium, or no playwright: the pages are written but not opened")
    heads = ("report", "rows", "clusters", "MB", "seconds to write")
    table = Table(*heads, *(f"frames/s at {width} px (points in each)" for width in WIDTHS))
    short: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        kinds = (write_images, write_texts, write_many)
        pages = [write(Path(folder), quick) for write in kinds]
        with browse(chromium) if chromium else nullcontext() as browser:
            for page in pages:
                short += faults(page, browser, quick, table)
    if not quick and chromium:
        keep("report", table)
    return verdict(short, "reports can be explored, are whole, quiet and small, wide and narrow")


if __name__ == "__main__":
    sys.exit(main())
