"""Near-duplicates planted in real texts and images: what `prcut dedup` finds, and what it costs.

    python benchmarks/dedup.py                  # a million rows: half an hour
    python benchmarks/dedup.py --rows 200000    # fewer
    python benchmarks/dedup.py --quick          # 20,000 rows

Base rows are the texts of three data sets, pairs of these one after the other until there are
enough, and CIFAR-10's images. A tenth of all rows is planted: copies and case variants (the encoder
lowers case: their vectors are the same bytes), typos of one letter in longer texts, and images
encoded again as JPEG. Texts become vectors by hashed trigrams, images by their pixels, both in 256
columns, so no model decides.

A planted row counts if its exact distance from its original is at most ε, whatever a method says.
Of a group of m rows that count, m − 1 are to be removed: recall is the fraction of them that are,
precision the fraction of what a method removes that they are. What it removes besides, but within
ε of the row it keeps by the exact distance, are natural duplicates; they are counted apart.
SemDeDup is written anew (k-means, all pairs within a cluster).
"""

import io
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import pyarrow.parquet as pq
from benchmarks.harness.datasets import load_dataset
from sklearn.feature_extraction.text import HashingVectorizer

from _shared import Table, give_up, keep, options_of, timed, verdict
from prcut.errors import PRCutError

EPSILON, N_COLUMNS = 0.1, 256
PLANTED = 0.1
TEXTS = ("banking77", "clinc150", "stackoverflow")
# letters of a text in which one may be wrong, and it still is the same
LONG = 60
LEAST_PRECISION, LEAST_RECALL = 0.99, 0.97
# hashed trigrams, and texts that are encoded at a time
N_HASHED, CHUNK = 2**15, 10_000
# rows of the mean cluster of SemDeDup
CLUSTER_ROWS = 1_000
Removed = dict[int, int]  # a row that is removed, and the row that is kept instead


# -- rows ------------------------------------------------------------------------------------------


def load_texts() -> list[str]:
    """Return the texts of all sets without repeats."""
    texts = [text for name in TEXTS for text in load_dataset(name, "all").items]
    return list({text.lower(): text for text in texts}.values())


def more_texts(texts: list[str], wanted: int, rng: np.random.Generator) -> list[str]:
    """Return texts, then pairs of them one after the other, each once."""
    found = dict.fromkeys(texts[:wanted])
    while len(found) < wanted:
        for one, other in rng.integers(len(texts), size=(wanted, 2)):
            found[f"{texts[one]} {texts[other]}"] = None
            if len(found) == wanted:
                break
    return list(found)


def add_typo(text: str, rng: np.random.Generator) -> str:
    """Drop, double or swap one letter."""
    place = int(rng.integers(1, max(2, len(text) - 2)))
    swapped = text[place : place + 2][::-1]
    return text[:place] + ("", 2 * text[place], swapped)[rng.integers(3)] + text[place + 1 + 1 :]


def encode_texts(texts: list[str], rng: np.random.Generator) -> np.ndarray:
    """Return vectors of hashed trigrams of lower case, projected at random."""
    hashing = HashingVectorizer(
        analyzer="char", ngram_range=(3, 3), n_features=N_HASHED, norm=None, alternate_sign=False
    )
    projection = rng.standard_normal((N_HASHED, N_COLUMNS)).astype(np.float32)
    chunks = (texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK))
    return np.concatenate([hashing.transform(chunk) @ projection for chunk in chunks])


def encode_images(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return pixels without their mean and without the image's own, projected at random."""
    projection = rng.standard_normal((images[0].size, N_COLUMNS)).astype(np.float32)
    rows = images.reshape(len(images), -1).astype(np.float32)
    rows -= rows.mean(0)
    rows -= rows.mean(1, keepdims=True)
    return rows @ projection


def encode_again(image: np.ndarray) -> np.ndarray:
    """Return what JPEG leaves of an image."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=90)
    return np.asarray(Image.open(file))


class Collection:
    """Rows in random order, and of every row its original and how it was planted."""

    def __init__(self, n_rows: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        n_images = min(60_000, n_rows // 10)
        images = np.asarray(load_dataset("cifar10", "all").items[:n_images])
        n_texts = n_rows - len(images)
        n_base = n_texts - int(PLANTED * n_texts)
        texts = more_texts(load_texts(), n_base, rng)
        original, kinds = [np.arange(n_base)], [np.zeros(n_base, np.int64)]
        for kind, make in ((1, str), (2, str.swapcase), (3, lambda text: add_typo(text, rng))):
            able = [row for row in range(n_base) if kind < 3 or len(texts[row]) >= LONG]
            chosen = rng.choice(able, (n_texts - n_base) // 3)
            texts += [make(texts[row]) for row in chosen]
            original.append(chosen)
            kinds.append(np.full(len(chosen), kind))
        n_kept = len(images) - int(PLANTED * len(images))
        again = [encode_again(image) for image in images[: len(images) - n_kept]]
        images = np.concatenate([images[:n_kept], again]) if again else images
        original.append(len(texts) + np.r_[np.arange(n_kept), np.arange(len(again))])
        kinds.append(np.r_[np.zeros(n_kept, np.int64), np.full(len(again), 4)])
        vectors = np.concatenate([encode_texts(texts, rng), encode_images(images, rng)])
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        order = rng.permutation(len(vectors))
        place = np.argsort(order)
        self.rows = vectors[order]
        self.original = place[np.concatenate(original)[order]]
        self.kind = np.concatenate(kinds)[order]

    def count(self, epsilon: float) -> tuple[np.ndarray, str]:
        """Return which rows are to count, and say how many of each kind do."""
        counts = self.distance(np.arange(len(self.rows)), self.original) <= epsilon
        names = "copies", "case variants", "typos", "images encoded again"
        parts = [
            f"{int((counts & (self.kind == kind)).sum()):,} of {int((self.kind == kind).sum()):,} "
            f"{name}"
            for kind, name in enumerate(names, 1)
        ]
        return counts, ", ".join(parts)

    def distance(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return exact distances of pairs of rows."""
        chunks = [slice(start, start + CHUNK) for start in range(0, len(one), CHUNK)]
        near = [(self.rows[one[c]] * self.rows[other[c]]).sum(1, dtype=np.float64) for c in chunks]
        return 1 - np.concatenate(near) if near else np.empty(0)


# -- methods ---------------------------------------------------------------------------------------


def run_prcut(data: Path, memory: str) -> tuple[Removed, float]:
    """Return what the command removes, and its CPU seconds in a process of its own."""
    out = data.with_suffix(".unique")
    words = ["dedup", str(data), "--out", str(out), "--epsilon", str(EPSILON), "--memory", memory]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "prcut", *words, "-q"], check=True, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    groups = pq.read_table(out / "groups").to_pandas()
    lost = groups[~groups["kept"]]
    return dict(zip(lost["row"].tolist(), lost["group"].tolist(), strict=True)), seconds


def run_semdedup(rows: np.ndarray) -> Removed:
    """Remove what has an earlier row within ε in its cluster of k-means (Abbas et al. 2023)."""
    n_clusters = max(2, len(rows) // CLUSTER_ROWS)
    points = 64 * n_clusters
    means = faiss.Kmeans(rows.shape[1], n_clusters, niter=10, spherical=True, seed=0)
    means.cp.max_points_per_centroid, means.cp.min_points_per_centroid = 64, 1
    means.train(rows[np.random.default_rng(0).permutation(len(rows))[:points]])
    labels = means.index.search(rows, 1)[1][:, 0]
    removed: Removed = {}
    order = np.argsort(labels, kind="stable")
    for inside in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        near = np.triu(rows[inside] @ rows[inside].T, 1)
        best = near.argmax(0)
        lost = np.flatnonzero(near[best, np.arange(len(inside))] >= 1 - EPSILON)
        removed |= dict(zip(inside[lost].tolist(), inside[best[lost]].tolist(), strict=True))
    return removed


# -- figures ---------------------------------------------------------------------------------------


def score(removed: Removed, data: Collection, counts: np.ndarray) -> tuple[float, float, int]:
    """Return precision, recall, and the number of natural duplicates."""
    group = np.where(counts, data.original, np.arange(len(counts)))
    wanted = np.maximum(np.bincount(group, minlength=len(group)) - 1, 0)
    gone = np.fromiter(removed, np.int64, len(removed))
    kept = np.fromiter(removed.values(), np.int64, len(removed))
    # of rows in one planted group at most all but one are rightly gone
    inside = group[gone] == group[kept]
    in_group = np.bincount(group[gone[inside]], minlength=len(group))
    right = int(np.minimum(in_group, wanted).sum())
    natural = int((data.distance(gone[~inside], kept[~inside]) <= EPSILON * (1 + 1e-4)).sum())
    # a planted row that is gone for another natural duplicate of its original is gone all the same
    all_gone = np.minimum(np.bincount(group[gone], minlength=len(group)), wanted).sum()
    return right / max(1, len(gone) - natural), int(all_gone) / max(1, wanted.sum()), natural


def compare(n_rows: int, memory: str) -> tuple[Table, list[str]]:
    """Print a line for each method, and return what falls short."""
    data = Collection(n_rows)
    counts, what = data.count(EPSILON)
    table = Table(f"{n_rows:,} rows", "precision", "recall", "natural", "CPU a row, µs")
    with tempfile.TemporaryDirectory(prefix="prcut-") as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, data.rows)
        ours = run_prcut(path, memory)
    theirs = timed(partial(run_semdedup, data.rows))
    for name, (removed, seconds) in {
        f"`prcut dedup --memory {memory}`": ours,
        "SemDeDup": theirs,
    }.items():
        precision, recall, natural = score(removed, data, counts)
        micros = f"{1e6 * seconds / n_rows:,.0f}"
        table.add(name, f"{precision:.4f}", f"{recall:.4f}", f"{natural:,}", micros)
    table.say(f"Planted and within ε: {what}.")
    precision, recall, _ = score(ours[0], data, counts)
    short = []
    if precision < LEAST_PRECISION:
        short.append(f"precision {precision:.4f} < {LEAST_PRECISION}")
    if recall < LEAST_RECALL:
        short.append(f"recall {recall:.4f} < {LEAST_RECALL}")
    return table, short


def main() -> int:
    parser = options_of(__doc__, "20,000 rows")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    n_rows = 20_000 if options.quick else options.rows
    try:
        table, short = compare(n_rows, "16M" if options.quick else "1G")
    except PRCutError as error:
        return give_up(error)
    if n_rows >= 1_000_000:
        keep("dedup", table)
    return verdict(short, f"precision ≥ {LEAST_PRECISION} and recall ≥ {LEAST_RECALL}")


if __name__ == "__main__":
    sys.exit(main())
