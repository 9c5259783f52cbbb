"""All names of npm's packages, or a million surnames, embedded and clustered on disk.

    python benchmarks/package_names.py --names names.json              # k = 1000 and 10,000: hours
    python benchmarks/package_names.py --names last_names.pkl.gz       # surnames: hours
    python benchmarks/package_names.py --names names.json --clusters 1000
    python benchmarks/package_names.py --quick                         # 3,000 names, k = 520

Real collections without planted clusters. The names of packages come with the npm package
all-the-package-names (`npm pack all-the-package-names`), surnames and their countries with the PyPI
package names-dataset, the vectors with the PyPI package wordllama. Printed: CPU-µs a row by stage,
the longest task, names of thirty clusters to look at, and how well clusters tell the country where
a surname is most frequent. Asked for: no cluster is empty, no task takes an hour. The quick version
clusters the names of the Python modules of this environment by their characters.
"""

import argparse
import gzip
import json
import os
import pickle
import re
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import normalized_mutual_info_score

from _disk_run import fit_on_disk, labels_of
from _verdict import verdict
from prcut import embed
from prcut.pipeline.config import FitConfig
from prcut.runtime.memory import readable_bytes

FILE_ROWS, N_SHOWN, N_NAMES = 100_000, 30, 6
MOST_SECONDS, MOST_BYTES = 3600.0, 4e9
QUICK_ROWS, QUICK_CLUSTERS, QUICK_MEMORY, QUICK_FEATURES = 3_000, 520, 10**6, 64


class Collection(NamedTuple):
    """Names, and the country of each where it is known."""

    names: list[str]
    countries: list[str] | None = None


def words(name: str) -> str:
    """Return a name as words: separators say nothing."""
    return re.sub(r"[\W_]+", " ", name).strip()


def encode(texts: list[str], *, quick: bool) -> np.ndarray:
    if quick:
        hashed = HashingVectorizer(
            analyzer="char_wb", ngram_range=(2, 3), n_features=QUICK_FEATURES
        )
        return hashed.transform(texts).toarray().astype(np.float16)
    return embed(texts, model="wordllama", batch_size=1024).astype(np.float16)


def write_vectors(folder: Path, names: list[str], *, quick: bool) -> None:
    """Write a Parquet file of every so many names: columns ``name`` and ``vector``."""
    folder.mkdir(exist_ok=True)
    for start in range(0, len(names), FILE_ROWS):
        path = folder / f"part-{start // FILE_ROWS:04d}.parquet"
        if path.exists():
            continue
        some = names[start : start + FILE_ROWS]
        rows = encode([words(name) for name in some], quick=quick)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        unfinished = path.with_suffix(".unfinished")
        pq.write_table(pa.table({"name": some, "vector": vectors}), unfinished)
        unfinished.rename(path)


def show_clusters(names: list[str], labels: np.ndarray, n_clusters: int) -> None:
    """Print some names of clusters of all sizes."""
    rng, sizes = np.random.default_rng(0), np.bincount(labels, minlength=n_clusters)
    print(f"sizes {sizes.min()} to {sizes.max()}, median {np.median(sizes):.0f}")
    order = np.argsort(-sizes)[np.linspace(0, n_clusters - 1, N_SHOWN).astype(int)]
    for cluster in order.tolist():
        rows = np.flatnonzero(labels == cluster)
        chosen = rng.choice(rows, min(N_NAMES, len(rows)), replace=False)
        print(f"  {len(rows):>7,}  {', '.join(names[row] for row in chosen)}")


def tell_countries(countries: list[str], labels: np.ndarray) -> None:
    """Print what clusters say of countries, which took no part."""
    nmi = normalized_mutual_info_score(countries, labels, average_method="max")
    _, numbers = np.unique(countries, return_inverse=True)
    table = np.zeros((labels.max() + 1, numbers.max() + 1), np.int64)
    np.add.at(table, (labels, numbers), 1)
    share, most = table.max(1).sum() / len(labels), table.sum(0).max() / len(labels)
    print(f"countries: NMI {nmi:.3f}; {share:.3f} have that of most in their cluster ({most:.3f})")


def run(
    known: Collection, n_clusters: int, data: Path, run_folder: Path, memory: int | None
) -> list[str]:
    """Cluster the names; return what falls short."""
    names = known.names
    print(f"{len(names):,} names, k = {n_clusters:,}", flush=True)
    config = FitConfig.of("default", n_clusters, metric="cosine", n_jobs=1)
    columns = {"column": "vector", "id_column": "name"}
    found = fit_on_disk(data, run_folder, config, **columns, memory=memory)
    found.show(len(names))
    labels = labels_of(run_folder, len(names))
    show_clusters(names, labels, n_clusters)
    if known.countries is not None:
        tell_countries(known.countries, labels)
    short = []
    if found.used_clusters < n_clusters:
        short.append(f"{n_clusters - found.used_clusters} of {n_clusters} clusters are empty")
    if found.longest_seconds > MOST_SECONDS:
        short.append(f"a task took {found.longest_seconds:.0f} CPU-seconds > {MOST_SECONDS:.0f}")
    if found.peak_bytes > MOST_BYTES:
        short.append(f"a process had {readable_bytes(found.peak_bytes)}")
    return short


class PlainUnpickler(pickle.Unpickler):
    """Reads numbers, strings, lists and dictionaries, and nothing that could run."""

    def find_class(self, module: str, name: str) -> type:
        """Refuse it, whatever it is."""
        raise pickle.UnpicklingError(f"{module}.{name} is neither a name nor a number.")


def read_names(path: str | None) -> Collection:
    if path is None:
        folder = Path(os.environ.get("PRCUT_DATA", "."))
        path = str(folder / "names.json")
    if not Path(path).exists():
        print(f"{path} is not there: npm pack all-the-package-names.\nNothing was measured.")
        sys.exit(0 if os.environ.get("CI") else 2)
    # the order of the alphabet would put neighbours side by side
    rng = np.random.default_rng(0)
    if not path.endswith(".gz"):
        names = np.array(json.loads(Path(path).read_text()), object)
        return Collection(rng.permutation(names).tolist())
    with gzip.open(path) as file:
        found = PlainUnpickler(file).load()
    names = [name for name in found if words(name) and found[name]["country"]]
    names = rng.permutation(np.array(names, object)).tolist()
    shares = (found[name]["country"] for name in names)
    return Collection(names, [max(share, key=share.get) for share in shares])


def module_names() -> list[str]:
    """Return names of modules of this environment."""
    found = {path.stem for path in Path(sysconfig.get_paths()["purelib"]).rglob("*.py")}
    return sorted(found)[:QUICK_ROWS]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    parser.add_argument("--names", help="the names as JSON; by default names.json of the data")
    parser.add_argument("--clusters", type=int, help="instead of 1000 and 10,000")
    parser.add_argument("--memory", type=float, default=2e9, help="bytes of data and graph")
    parser.add_argument("--folder", help="folder for the files; vectors in it are used again")
    args = parser.parse_args()
    known = Collection(module_names()) if args.quick else read_names(args.names)
    numbers = [args.clusters] if args.clusters else [1000, 10_000]
    numbers, memory = ([QUICK_CLUSTERS], QUICK_MEMORY) if args.quick else (numbers, args.memory)
    short = []
    with tempfile.TemporaryDirectory(dir=args.folder) as place:
        data = Path(args.folder or place) / "vectors"
        write_vectors(data, known.names, quick=args.quick)
        for n_clusters in numbers:
            run_folder = Path(place) / f"run-{n_clusters}"
            short += run(known, n_clusters, data, run_folder, int(memory))
    return verdict(short, "a collection without classes is clustered on one machine")


if __name__ == "__main__":
    sys.exit(main())
