"""Rows that belong nowhere: two scores and their union, beside other tools, and what they refuse.

    python benchmarks/outliers.py            # USPS, COIL-20, CIFAR-10's embeddings, CLINC150
    python benchmarks/outliers.py --quick    # the digits

Five rows in a hundred are put in: *strays*, whose every column comes from another row, or rows
*half-way* between two others; CLINC150's are TREC's questions (its own out-of-scope texts are not
in the copy at hand). AUROC of ``score_outliers`` beside LOF, IsolationForest and HDBSCAN.
Then nothing is put in, a fifth is held out, and no more of it may be refused than promised.
"""

import sys
import warnings

import numpy as np
from sklearn.cluster import HDBSCAN
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor

from _shared import Table, keep, options_of, rows_of, verdict
from prcut import PRCut
from prcut.errors import DataWarning

SETS = ("usps", "coil20", "cifar10")
SHARE, FRACTIONS, MARGIN = 0.05, (0.01, 0.05, 0.1), 0.01
# of the score that is meant for them
LEAST_STRAY, LEAST_BETWEEN = 0.93, 0.79
COLUMNS = ("stray", "between", "union", "LOF", "IsolationForest", "HDBSCAN")
# of more rows it takes minutes
MOST_HDBSCAN = 10_000


def make_strays(rows: np.ndarray, n_made: int, rng: np.random.Generator) -> np.ndarray:
    return np.take_along_axis(rows, rng.integers(len(rows), size=(n_made, rows.shape[1])), 0)


def make_half_way(rows: np.ndarray, n_made: int, rng: np.random.Generator) -> np.ndarray:
    first, second = rng.integers(len(rows), size=(2, n_made))
    made = (rows[first] + rows[second]) / 2
    norms = np.linalg.norm(rows, axis=1)
    if np.allclose(norms, 1, atol=0.01):  # embeddings of length 1: so are these
        made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made


def compare(
    table: Table, name: str, kind: str, rows: np.ndarray, n_clusters: int, put_in: np.ndarray
) -> float:
    """Print the AUROC of every score; return that of the one that is meant for this kind."""
    everything = np.vstack([rows, put_in]).astype(np.float32)
    is_outlier = np.arange(len(everything)) >= len(rows)
    found = PRCut(n_clusters, outliers=0, random_state=0).fit(everything).score_outliers(everything)
    scores = {
        "stray": found.stray,
        "between": found.between,
        "union": 1 - found.p_value,
        "LOF": -LocalOutlierFactor().fit(everything).negative_outlier_factor_,
    }
    forest = IsolationForest(random_state=0).fit(everything)
    scores["IsolationForest"] = -forest.score_samples(everything)
    if len(everything) <= MOST_HDBSCAN:
        density = HDBSCAN(min_cluster_size=10, copy=True).fit(everything)
        scores["HDBSCAN"] = 1 - density.probabilities_
    auroc = {what: float(roc_auc_score(is_outlier, score)) for what, score in scores.items()}
    table.add(f"{name}, {kind}", *(f"{auroc[w]:.3f}" if w in auroc else "" for w in COLUMNS))
    return auroc["between" if kind == "half-way" else "stray"]


def refusals(table: Table, name: str, rows: np.ndarray, n_clusters: int) -> list[str]:
    """Refuse rows of a clean fit and of what it has not seen."""
    order = np.random.default_rng(1).permutation(len(rows))
    held, fitted = np.split(order, [len(order) // 5])
    model = PRCut(n_clusters, outliers=0, random_state=0).fit(rows[fitted])
    short, cells = [], []
    for what, some in (("fit", fitted), ("new", held)):
        p_value = model.score_outliers(rows[some]).p_value
        for fraction in FRACTIONS:
            share = (p_value <= fraction).mean()
            cells.append(f"{share:.3f}")
            if share > fraction + MARGIN:
                short.append(f"{name}: {share:.3f} of {what} rows refused at {fraction}")
    table.add(name, *cells)
    return short


def main() -> int:
    quick = options_of(__doc__, "the digits").parse_args().quick
    warnings.simplefilter("ignore", DataWarning)
    names = ("digits",) if quick else SETS
    short: list[str] = []
    table = Table("AUROC", *COLUMNS)
    for name in names:
        rows, classes = rows_of(name)
        n_clusters, rng = len(np.unique(classes)), np.random.default_rng(0)
        n_made = round(SHARE * len(rows))
        for kind, make, least in (
            ("strays", make_strays, LEAST_STRAY),
            ("half-way", make_half_way, LEAST_BETWEEN),
        ):
            auroc = compare(table, name, kind, rows, n_clusters, make(rows, n_made, rng))
            if auroc < least:
                short.append(f"{name}, {kind}: AUROC {auroc:.3f} < {least}")
    if not quick:
        rows, _ = rows_of("clinc150")
        unseen = rows_of("trec")[0][: round(SHARE * len(rows))]
        compare(table, "clinc150", "TREC", rows, 150, unseen)
    refused = Table("refused", *(f"{what} {one}" for what in ("fit", "new") for one in FRACTIONS))
    for name in names:
        rows, classes = rows_of(name)
        short += refusals(refused, name, rows, len(np.unique(classes)))
    if not quick:
        keep("outliers", table, refused)
    return verdict(short, "strays and rows between are told, and no more refused than promised")


if __name__ == "__main__":
    sys.exit(main())
