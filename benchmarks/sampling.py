"""Samples of a long-tailed collection: a classifier learns more from a balanced one.

    python benchmarks/sampling.py            # MNIST, class shares from 50 % to .5 %: ten minutes
    python benchmarks/sampling.py --quick    # USPS

Rows of ten classes: half are of one class, the others' shares fall to half a percent, and the order
of the classes is drawn by seed. Without labels, every method draws as many rows; then a classifier
(logistic regression, and the nearest neighbour) learns their classes and is tested on rows of all
classes alike: the mean recall of the classes, over seeds.

`prcut sample` draws from the clusters of `prcut fit`. Hierarchical k-means is that of FAISS in two
levels, as many clusters, equal quotas down its tree. Both have the same numbers of clusters in both
levels and the same quotas by water-filling, so that only the clusters differ.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import faiss
import numpy as np
import pyarrow.parquet as pq
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier

from _embedded import rows_of
from _verdict import Table, keep, verdict
from prcut.curate.sample import share_down, write_sample
from prcut.fit.config import FitConfig
from prcut.runs.labels import assign_parquet
from prcut.runs.row_labels import RowLabels
from prcut.runs.run import fit_run
from prcut.runtime.folder import Folder

# shares of the first and the last class, and what each has of the next one's
FIRST, LAST, FALL = 0.5, 0.005, 1.57
BALANCES = "tree", "uniform", "temperature:2"
CLASSIFIERS = "logistic regression", "nearest neighbour"


def draw_long_tail(classes: np.ndarray, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return rows with the shares of the long tail, as far as a class has them."""
    shares = np.array([FIRST, *(LAST * FALL**i for i in range(8, -1, -1))])
    wanted = np.round(n_rows * shares / shares.sum()).astype(int)
    order = rng.permutation(10)
    # the largest share to a class that has so many
    large = [one for one in order if (classes == one).sum() >= 1.02 * wanted[0]]
    order = [large[0], *(one for one in order if one != large[0])]
    rows = [
        rng.permutation(np.flatnonzero(classes == one))[:size]
        for one, size in zip(order, wanted, strict=True)
    ]
    return rng.permutation(np.concatenate(rows))


def prcut_samples(
    rows: np.ndarray, sizes: tuple[int, int, int], seed: int
) -> dict[str, np.ndarray]:
    """Return the samples of every balance, from one run."""
    n_clusters, n_groups, size = sizes
    found = {}
    with tempfile.TemporaryDirectory(prefix="prcut-") as folder:
        np.save(f"{folder}/rows.npy", rows)
        config = FitConfig.of("default", n_clusters, seed=seed, max_steps=100)
        result = fit_run(f"{folder}/rows.npy", f"{folder}/run", config, device="cpu")
        # as `prcut fit` does: the rows of the fit have the labels of its partition
        partition = RowLabels(Folder(f"{folder}/run/partition"))
        data, out = f"{folder}/rows.npy", f"{folder}/run/labels"
        assign_parquet(result.assigner, data, out, device="cpu", partition=partition)
        for balance in BALANCES:
            sample = Path(folder) / f"{balance.partition(':')[0]}.parquet"
            write_sample(f"{folder}/run", sample, size, balance, seed=seed)
            found[f"prcut sample --balance {balance}"] = pq.read_table(sample)["row"].to_numpy()
    assert round(n_clusters**0.5) == n_groups  # noqa: S101
    return found


def kmeans_sample(rows: np.ndarray, sizes: tuple[int, int, int], seed: int) -> np.ndarray:
    """Return equal quotas down two levels of k-means."""
    n_clusters, n_groups, size = sizes
    options = {"niter": 20, "nredo": 3, "seed": seed, "min_points_per_centroid": 1}
    fine = faiss.Kmeans(rows.shape[1], n_clusters, **options)
    fine.train(rows)
    labels = fine.index.search(rows, 1)[1][:, 0]
    coarse = faiss.Kmeans(rows.shape[1], n_groups, **options)
    coarse.train(fine.centroids)
    groups = np.unique(coarse.index.search(fine.centroids, 1)[1][:, 0], return_inverse=True)[1]
    quotas = share_down(size, np.bincount(labels, minlength=n_clusters), [groups])
    order = np.random.default_rng(seed).permutation(len(rows))
    return np.concatenate(
        [order[labels[order] == one][:quota] for one, quota in enumerate(quotas.tolist())]
    )


def learn(
    rows: np.ndarray, classes: np.ndarray, tested: tuple[np.ndarray, np.ndarray]
) -> tuple[float, float]:
    """Return the mean recall of the classes by both classifiers."""
    logistic = LogisticRegression(max_iter=300).fit(rows, classes)
    nearest = KNeighborsClassifier(1).fit(rows, classes)
    one, other = (
        balanced_accuracy_score(tested[1], model.predict(tested[0]))
        for model in (logistic, nearest)
    )
    return float(one), float(other)


def compare(
    name: str, n_rows: int, sizes: tuple[int, int, int], n_seeds: int
) -> tuple[Table, dict[str, np.ndarray]]:
    """Print the recall by every method, and return it, shape (n_seeds, 2) each."""
    pixels, classes = rows_of(name)
    pixels = pixels / np.abs(pixels).max()
    found: dict[str, list[tuple[float, float]]] = {}
    rare: dict[str, list[float]] = {}
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        chosen = draw_long_tail(classes, n_rows, rng)
        left = np.setdiff1d(np.arange(len(classes)), chosen)
        left = np.sort(rng.permutation(left)[:10_000])
        rows = np.ascontiguousarray(pixels[chosen], np.float32)
        samples = prcut_samples(rows, sizes, seed)
        samples["hierarchical k-means"] = kmeans_sample(rows, sizes, seed)
        samples["random"] = rng.permutation(len(rows))[: sizes[2]]
        for method, sample in samples.items():
            assert len(np.unique(sample)) == sizes[2]  # noqa: S101
            of_sample = classes[chosen[sample]]
            tested = pixels[left], classes[left]
            found.setdefault(method, []).append(learn(rows[sample], of_sample, tested))
            rare.setdefault(method, []).append(np.bincount(of_sample, minlength=10).min())
    about = f"{name}, {n_rows:,} rows, {sizes[2]} drawn, {sizes[0]} clusters"
    table = Table(about, *CLASSIFIERS, "rows of the rarest class")
    for method, scores in found.items():
        cells = [
            f"{mean:.3f} ± {deviation:.3f}"
            for mean, deviation in zip(np.mean(scores, 0), np.std(scores, 0), strict=True)
        ]
        table.add(method, *cells, f"{np.mean(rare[method]):.1f}")
    return table, {method: np.array(scores) for method, scores in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="USPS")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    faiss.omp_set_num_threads(1)
    setting = ("usps", 2_400, (49, 7, 200), 3) if quick else ("mnist", 12_000, (100, 10, 500), 5)
    table, found = compare(*setting)
    if not quick:
        keep("sampling", table)
    means = {method: scores.mean() for method, scores in found.items()}
    own = means["prcut sample --balance tree"]
    short = [
        f"mean of both classifiers: tree {own:.3f}, {other} {means[other]:.3f}"
        for other in ("random", *([] if quick else ["hierarchical k-means"]))
        if own <= means[other]
    ]
    rivals = "random sampling" if quick else "random sampling and hierarchical k-means"
    return verdict(short, f"classifiers learn more from the tree's sample than from {rivals}")


if __name__ == "__main__":
    sys.exit(main())
