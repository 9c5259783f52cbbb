"""Whether a probability means something: calibrated, and low where rows are wrong or unseen.

    python benchmarks/confidence.py            # five data sets, two seeds, unseen intents: minutes
    python benchmarks/confidence.py --quick    # the digits

1. The largest probability of a row is the chance that another seed's fit puts it in the same
   cluster (matched one to one): expected calibration error, ten bins of equal numbers of rows.
2. Rows with a high probability are more often right: AUROC against their classes, which nobody but
   this script sees.
3. A fit knows 60 intents of Banking77, or CLINC150: scores of ``score_outliers`` on texts of the
   17 others, and on TREC's questions, against those on held-out texts of known intents.
   ``outliers=.1`` is the threshold. (The copy of CLINC150 at hand has no out-of-scope texts.)
"""

import sys

import numpy as np
from benchmarks.harness.scores import match_clusters
from sklearn.metrics import roc_auc_score

from _shared import Table, keep, options_of, rows_of, verdict
from prcut import PRCut

SETS = ("coil20", "usps", "cifar10", "banking77", "clinc150")
N_BINS, FRACTION = 10, 0.1
MOST_ERROR, LEAST_RIGHT, LEAST_SAME = 0.05, 0.75, 0.99
LEAST_UNSEEN, LEAST_CAUGHT, MOST_REFUSED = 0.9, 0.8, 0.1


def calibration_error(confidence: np.ndarray, is_true: np.ndarray) -> float:
    """Compare mean confidence and truth in bins of equal numbers of rows."""
    bins = np.array_split(np.argsort(confidence, kind="stable"), N_BINS)
    gaps = [abs(confidence[rows].mean() - is_true[rows].mean()) for rows in bins]
    return float(np.average(gaps, weights=[len(rows) for rows in bins]))


def matched(labels: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Rename clusters by the labels they match."""
    names = match_clusters(labels, clusters)
    return np.array([names.get(cluster, -1) for cluster in clusters.tolist()])


def measure_set(name: str, seeds: range, table: Table) -> list[str]:
    """Return what is short of the claims on one data set."""
    rows, classes = rows_of(name)
    n_clusters = len(np.unique(classes))
    models = [PRCut(n_clusters, random_state=seed).fit(rows) for seed in seeds]
    errors, right, same = [], [], []
    for model in models:
        probs = model.predict_proba(rows)
        clusters, confidence = probs.argmax(1), probs.max(1)
        same.append((clusters == model.labels_).mean())
        is_right = matched(classes, clusters) == classes
        right.append(roc_auc_score(is_right, confidence))
        others = [matched(clusters, one.labels_) for one in models if one is not model]
        errors += [calibration_error(confidence, other == clusters) for other in others]
    error, auroc, agreed = np.median(errors), np.median(right), np.min(same)
    table.add(name, f"{error:.3f}", f"{auroc:.3f}", f"{agreed:.4f}")
    found = [
        (error <= MOST_ERROR, f"{name}: calibration error {error:.3f} > {MOST_ERROR}"),
        (auroc >= LEAST_RIGHT, f"{name}: AUROC of right rows {auroc:.3f} < {LEAST_RIGHT}"),
        (agreed >= LEAST_SAME, f"{name}: predict gives labels_ to {agreed:.4f} < {LEAST_SAME}"),
    ]
    return [text for holds, text in found if not holds]


def measure_unseen(
    name: str, known: np.ndarray, n_known: int, unseen: np.ndarray, table: Table
) -> list[str]:
    """Return what is short of the claims on rows of classes that a fit has not seen."""
    order = np.random.default_rng(0).permutation(len(known))
    held, fitted = np.split(order, [len(order) // 5])
    model = PRCut(n_known, outliers=FRACTION, random_state=0).fit(known[fitted])
    rows = np.vstack([known[held], unseen])
    is_unseen = np.arange(len(rows)) >= len(held)
    scores, confidence = model.score_outliers(rows), model.predict_proba(rows).max(1)
    auroc = {
        "stray": roc_auc_score(is_unseen, scores.stray),
        "between": roc_auc_score(is_unseen, scores.between),
        "1 - p": roc_auc_score(is_unseen, 1 - scores.p_value),
        "1 - probability": roc_auc_score(is_unseen, 1 - confidence),
    }
    refused = model.predict(rows) == -1
    caught, lost = refused[is_unseen].mean(), refused[~is_unseen].mean()
    figures = ", ".join(f"{what} {value:.3f}" for what, value in auroc.items())
    table.say(
        f"Unseen, {name}: AUROC {figures}; `outliers={FRACTION}` refuses {caught:.3f} of them, and "
        f"{lost:.3f} of new known rows."
    )
    found = [
        (auroc["stray"] >= LEAST_UNSEEN, f"{name}: AUROC of unseen {auroc['stray']:.3f}"),
        (caught >= LEAST_CAUGHT, f"{name}: {caught:.3f} of unseen rows caught"),
        (lost <= MOST_REFUSED, f"{name}: {lost:.3f} of known rows refused"),
    ]
    return [f"unseen, {text}" for holds, text in found if not holds]


def main() -> int:
    quick = options_of(__doc__, "the digits, no unseen classes").parse_args().quick
    table = Table("data", "calibration error", "AUROC of right rows", "`predict` gives `labels_`")
    short: list[str] = []
    for name in ("digits",) if quick else SETS:
        short += measure_set(name, range(2), table)
    if not quick:
        rows, classes = rows_of("banking77")
        is_unseen = np.isin(classes, np.random.default_rng(0).permutation(77)[:17])
        seen, unseen = rows[~is_unseen], rows[is_unseen]
        short += measure_unseen("17 intents of Banking77", seen, 60, unseen, table)
        rows, _ = rows_of("clinc150")
        unseen, _ = rows_of("trec")
        short += measure_unseen("TREC's questions beside CLINC150", rows, 150, unseen, table)
        keep("confidence", table)
    return verdict(short, "a probability is calibrated, and low where rows are wrong")


if __name__ == "__main__":
    sys.exit(main())
