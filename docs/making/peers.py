"""The peers side by side, from the committed results: for the README and the page that compares."""

import functools
import re
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks/results"

SHOWN = {
    "prcut": "PRCut",
    "leiden": "Leiden",
    "leiden_k": "Leiden at equal k",
    "metis": "METIS",
    "spectral_clustering": "SpectralClustering",
    "evoc": "EVoC",
    "faiss_kmeans": "k-means (FAISS)",
    "umap_hdbscan": "UMAP + HDBSCAN",
}
TITLES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "usps": "USPS",
    "coil20": "COIL-20",
    "cifar10": "CIFAR-10, EfficientNet-lite0",
    "banking77": "Banking77, MiniLM",
    "clinc150": "CLINC150, MiniLM",
    "stackoverflow": "StackOverflow, MiniLM",
}
# of the README's table, between these two lines
_BEGIN, _END = "<!-- peers table -->", "<!-- end of peers table -->"


@functools.cache
def peer_points() -> dict[str, dict[str, tuple[float, float]]]:
    """Seconds and ACC, medians over seeds, per data set and method, from the committed records."""
    from benchmarks.harness.mixing import newest_records
    from benchmarks.harness.records import read_records
    from benchmarks.harness.summary import run_seconds

    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for table in ("table3", "table4"):
        for record in newest_records(read_records(RESULTS / f"{table}.jsonl")):
            if record.result.status == "done" and record.result.acc is not None:
                key = record.spec.dataset, record.spec.method
                found.setdefault(key, []).append((run_seconds(record), record.result.acc))
    points: dict[str, dict[str, tuple[float, float]]] = {name: {} for name in TITLES}
    for (dataset, method), runs in found.items():
        seconds, acc = (median(values) for values in zip(*runs, strict=True))
        points[dataset][method] = round(seconds, 3), round(acc, 6)
    return points


def peers_table() -> str:
    """Accuracies, in bold the best of all methods that were run; a dash where one was not."""
    lines = [f"| | {' | '.join(SHOWN.values())} |", "|---" * (len(SHOWN) + 1) + "|"]
    for dataset, points in peer_points().items():
        acc = {method: point[1] for method, point in points.items()}
        best = f"{max(acc[method] for method in acc if not method.startswith('prcut_')):.3f}"
        cells = [f"{acc[method]:.3f}" if method in acc else "–" for method in SHOWN]
        cells = [f"**{cell}**" if cell == best else cell for cell in cells]
        lines.append(f"| {TITLES[dataset]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_readme_table() -> None:
    """Put the table where the README has it."""
    text = README.read_text("utf-8")
    part = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
    README.write_text(part.sub(f"{_BEGIN}\n{peers_table()}\n{_END}", text), "utf-8")
