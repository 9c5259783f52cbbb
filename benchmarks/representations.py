"""Rank representations without labels, and hold the ranking against their accuracies.

Of every data set there are several representations: encoders, bags of words, pixels and what is
made of them; and of one of them fewer main directions, noise, and columns shuffled between rows.
`prcut.score_representation` ranks them, and so does the cut, as the paper proposes; accuracy and
NMI of a fast fit say how right that is. The score was chosen on the development half, the last
figure is that of the test half.

    python benchmarks/representations.py                    # of the committed records
    python benchmarks/representations.py --run development  # half an hour
    python benchmarks/representations.py --run test         # the same of the test half
    python benchmarks/representations.py --quick            # digits alone, about a minute
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from benchmarks.harness.contest.sets import CONTEST_SETS, HALVES, load_contest_set
from benchmarks.harness.contest.texts import (
    Texts,
    embed_minilm,
    embed_wordllama,
    read_emoji,
    read_text_set,
    read_wordnet,
)
from benchmarks.harness.datasets import Dataset, load_dataset
from benchmarks.harness.representations import represent
from benchmarks.harness.scores import hungarian_accuracy
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from _verdict import verdict
from contest import log_test_run
from prcut import PRCut, normalized_cut
from prcut.fit import score_representation
from prcut.graph.build import build_graph
from prcut.numerics.matching import max_nmi

RESULTS = Path(__file__).parent / "results"
RECORDS, TABLE = RESULTS / "representations.jsonl", RESULTS / "representations.md"
N_NEIGHBORS, MAX_ROWS, MIN_FEATURES, LEAST = 15, 4000, 16, 0.6
TEXTS: dict[str, Callable[[], Texts]] = {
    **{name: partial(read_text_set, name) for name in ("banking77", "clinc150", "stackoverflow")},
    "agnews": partial(read_text_set, "agnews8000"),
    "wordnet": read_wordnet,
    "emoji": read_emoji,
}
IMAGES = {"usps": "all", "coil20": "all", "cifar10": "test"}
PICTURED = ("thumbnail", "histogram", "gradients")
# of the development half, by which the score was chosen
DEVELOPMENT = ("usps", "cifar10", "coil20", "banking77", "stackoverflow", "clinc150")


def names_of(half: str) -> list[str]:
    """Return the sets to rank: of the test half all with many columns but variants of texts."""
    if half == "development":
        return [*DEVELOPMENT]
    return [
        name
        for name, one in CONTEST_SETS.items()
        if one.half == "test" and one.kind != "planted" and not name.endswith("_static")
    ]


def represent_all(name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the representations of a data set, and its classes."""
    if name in TEXTS:
        texts, classes = TEXTS[name]()
        rows, labels = embed_minilm(lambda: (texts, classes))
        dataset = Dataset(name, "all", texts, np.unique(classes, return_inverse=True)[1])
        found = {kind: represent(dataset, kind) for kind in ("tfidf-words", "tfidf-chars")}
        found["static vectors"] = embed_wordllama(lambda: (texts, classes))[0]
        labels = dataset.labels
    else:
        rows, labels = load_contest_set(name)
        found = {}
        if name in IMAGES:
            dataset = load_dataset(name, IMAGES[name])
            dataset = dataset._replace(items=dataset.items[: len(rows)])
            found = {kind: represent(dataset, kind) for kind in PICTURED}
    found |= dict(spoil(rows))
    chosen = np.random.default_rng(0).permutation(len(labels))[:MAX_ROWS]
    return {kind: np.ascontiguousarray(one[chosen]) for kind, one in found.items()}, labels[chosen]


def spoil(rows: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield rows as they are, and with less and less of what they hold."""
    rng, scale = np.random.default_rng(1), (rows - rows.mean(0)).std()
    yield "rows", rows
    n_features = rows.shape[1]
    for n_components in (4, 16, 64):
        if n_components < min(n_features, len(rows)):
            components = PCA(n_components, random_state=0).fit_transform(rows)
            yield f"{n_components} directions", components.astype(np.float32)
    for share in (0.5, 1.0, 2.0):
        noise = rng.normal(size=rows.shape) * (share * scale)
        yield f"noise of {share:g}", (rows + noise).astype(np.float32)
    for share in (0.5, 0.9):
        columns = rng.permutation(n_features)[: int(share * n_features)]
        shuffled = rows.copy()
        shuffled[:, columns] = rng.permuted(shuffled[:, columns], axis=0)
        yield f"{share:.0%} of the columns shuffled", shuffled


def measure(name: str, half: str) -> Iterator[dict[str, Any]]:
    """Score every representation of a data set."""
    representations, labels = represent_all(name)
    n_clusters = len(np.unique(labels))
    for kind, rows in representations.items():
        start = time.process_time()
        score = score_representation(rows, n_clusters, n_neighbors=N_NEIGHBORS)
        seconds = time.process_time() - start
        model = PRCut(n_clusters, effort="fast", n_neighbors=N_NEIGHBORS, random_state=0).fit(rows)
        graph = build_graph(rows, N_NEIGHBORS)
        cut = normalized_cut(graph.weight, torch.from_numpy(model.labels_), n_clusters)
        record = {
            "half": half,
            "dataset": name,
            "representation": kind,
            "agreement": round(score, 4),
            "cut": round(1 - 2 * float(cut) / (n_clusters - 1), 4),
            "acc": round(hungarian_accuracy(labels, model.labels_), 4),
            "nmi": round(max_nmi(labels, model.labels_), 4),
            "cpu_seconds": round(seconds, 2),
        }
        print(" ".join(f"{value}" for value in record.values()), flush=True)
        yield record


def run(half: str) -> None:
    """Measure what is missing of a half, data set by data set."""
    done = {record["dataset"] for record in read_records()}
    missing = [name for name in names_of(half) if name not in done]
    if half == "test" and missing:
        log_test_run(len(missing))
    for name in missing:
        if name not in TEXTS and load_contest_set(name)[0].shape[1] < MIN_FEATURES:
            continue  # little can be taken from them
        found = [*measure(name, half)]
        with RECORDS.open("a") as file:
            file.writelines(f"{json.dumps(record)}\n" for record in found)


def read_records() -> list[dict[str, Any]]:
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text("utf-8").splitlines()]


def correlate(records: list[dict[str, Any]], score: str, truth: str) -> float:
    values = [[record[column] for record in records] for column in (score, truth)]
    return float(spearmanr(*values).statistic)


def summarise(records: list[dict[str, Any]]) -> tuple[str, dict[str, float]]:
    """Return a table per half, and the mean correlation of the agreement with accuracy by half."""
    lines, means = [], {}
    columns = [(score, truth) for score in ("agreement", "cut") for truth in ("acc", "nmi")]
    for half in HALVES:
        of_half = [record for record in records if record["half"] == half]
        if not of_half:
            continue
        lines += [f"### {half.capitalize()} half", ""]
        lines += [
            "| data set | representations | best by agreement: ACC (best) | "
            + " | ".join(f"{score}, {truth.upper()}" for score, truth in columns)
            + " |",
            "|---" * 7 + "|",
        ]
        table = []
        for name in dict.fromkeys(record["dataset"] for record in of_half):
            of_set = [record for record in of_half if record["dataset"] == name]
            table.append([correlate(of_set, *both) for both in columns])
            best = max(of_set, key=lambda record: record["agreement"])
            most = max(record["acc"] for record in of_set)
            lines.append(
                f"| {name} | {len(of_set)} | {best['representation']}: {best['acc']:.3f} "
                f"({most:.3f}) | " + " | ".join(f"{value:.2f}" for value in table[-1]) + " |"
            )
        middle = [mean(column) for column in zip(*table, strict=True)]
        lines += ["| mean | | | " + " | ".join(f"**{value:.2f}**" for value in middle) + " |", ""]
        means[half] = middle[0]
    lines.append(
        "Spearman rank correlations over the representations of a data set, at most 4,000 rows. "
        "Agreement: `score_representation`; cut: `1 - 2 NC / (k - 1)`; both on 15 neighbours."
    )
    return "\n".join(lines) + "\n", means


def check_quick() -> list[str]:
    """Rank what is made of the digits."""
    found = [*measure("digits", "development")]
    value = correlate(found, "agreement", "acc")
    print(f"digits: rank correlation {value:.2f}")
    return [f"digits: rank correlation {value:.2f} < {LEAST}"] * (value < LEAST)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", choices=HALVES, help="first measure what is missing of a half")
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # constant columns
    torch.set_num_threads(1)
    if given.quick:
        return verdict(check_quick(), "the agreement ranks representations of the digits")
    if given.run:
        run(given.run)
    text, means = summarise(read_records())
    TABLE.write_text(text, "utf-8")
    print(text)
    value = means.get("test", float("nan"))
    short = [] if value >= LEAST else [f"test half: mean rank correlation {value:.2f} < {LEAST}"]
    return verdict(short, "the agreement ranks representations as accuracy does")


if __name__ == "__main__":
    sys.exit(main())
