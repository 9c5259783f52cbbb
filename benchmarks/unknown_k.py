"""How many clusters: ``n_clusters="auto"`` beside tools that choose a number themselves.

    python benchmarks/unknown_k.py             # checks the committed records
    python benchmarks/unknown_k.py --run       # first runs what is missing: an hour
    python benchmarks/unknown_k.py --quick     # digits, blobs and a Gaussian, one seed

The eight data sets of the tables, 30 blobs, 20 blobs with a long tail of sizes and a structureless
Gaussian, seeds 0 to 4. Leiden, EVoC, HDBSCAN and UMAP + HDBSCAN are those of tables 3 and 4; PLSCAN
and FINCH have records of release 0.2, one a data set, with their own defaults; FINCH's is its
partition with the highest mean silhouette. The best ARI over k is that of fits with .5, .75, 1, 1.5
and 2 times the number of classes, and of the number found. No number is chosen by labels. The rule
of ``prcut.search.count`` was changed after all data sets had been seen: see the research log.
"""

import json
import sys
import warnings
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from benchmarks.harness.records import RunResult, read_records
from sklearn.datasets import make_blobs
from sklearn.metrics import (
    adjusted_rand_score,
    normalized_mutual_info_score,
)

from _shared import options_of, rows_of, timed, verdict
from prcut import PRCut
from prcut.errors import DataWarning

RESULTS = Path(__file__).parent / "results"
REAL = ("coil20", "usps", "cifar10", "banking77", "stackoverflow", "mnist", "clinc150")
REAL += ("fashion_mnist",)
PLANTED = ("blobs30", "tail20", "gaussian")
TABLE_PEERS = ("leiden", "evoc", "hdbscan", "umap_hdbscan")
PEERS = (*TABLE_PEERS, "finch", "plscan")
FRACTIONS = (0.5, 0.75, 1.0, 1.5, 2.0)
MOST_OFF, LEAST_OF_BEST, MOST_TIME, LEAST_SETS = 0.15, 0.95, 2.0, 6


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and classes; of the Gaussian, one class."""
    if name == "blobs30":
        return make_blobs(3000, 16, centers=30, cluster_std=2.5, random_state=0)
    if name == "tail20":
        sizes = (1000 / np.arange(1, 21)).astype(int) + 20
        return make_blobs(sizes.tolist(), 16, cluster_std=2.5, random_state=0)
    if name == "gaussian":
        return np.random.default_rng(0).normal(size=(3000, 16)), np.zeros(3000, np.int64)
    if name in ("mnist", "fashion_mnist"):
        rows, classes = rows_of(name)
        return rows[:60_000], classes[:60_000]
    return rows_of(name)


def run(name: str, seed: int) -> dict[str, Any]:
    """Find the number, and fit with other numbers beside it where the seed is the first."""
    rows, classes = load(name)
    n_classes = len(np.unique(classes))
    model, with_count = timed(partial(PRCut("auto", random_state=seed).fit, rows))
    given, alone = timed(partial(PRCut(max(2, model.n_clusters_), random_state=seed).fit, rows))
    ari = {given.n_clusters_: adjusted_rand_score(classes, given.labels_)}
    if seed == 0 and n_classes > 1:
        for number in {max(2, round(fraction * n_classes)) for fraction in FRACTIONS} - set(ari):
            other = PRCut(number, random_state=seed).fit(rows)
            ari[number] = adjusted_rand_score(classes, other.labels_)
    return {
        "dataset": name,
        "seed": seed,
        "n_classes": n_classes,
        "n_found": model.n_clusters_,
        "layers": model.layer_sizes_,
        "ari": adjusted_rand_score(classes, model.labels_),
        "nmi": normalized_mutual_info_score(classes, model.labels_),
        "cpu_seconds": with_count,
        "fit_seconds": alone,
        "ari_over_k": ari,
    }


def run_missing(path: Path) -> None:
    done = {(one["dataset"], one.get("seed")) for one in read(path)}
    for seed in range(5):
        for name in (*PLANTED, *REAL):
            if (name, seed) not in done:
                with path.open("a") as file:
                    file.write(json.dumps(run(name, seed)) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_peers(own: list[dict[str, Any]]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return number and ARI of peers, by data set: medians over their seeds."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for one in own:
        if "peer" in one:
            found.setdefault(one["dataset"], {})[one["peer"]] = one["n_found"], one["ari"]
    runs: dict[tuple[str, str], list[RunResult]] = {}
    for table in ("table3", "table4"):
        for record in read_records(RESULTS / f"{table}.jsonl"):
            if record.spec.method in TABLE_PEERS and record.result.status == "done":
                runs.setdefault((record.spec.dataset, record.spec.method), []).append(record.result)
    for (name, peer), results in runs.items():
        found.setdefault(name, {})[peer] = (
            median(one.used_clusters or 0 for one in results),
            median(one.ari or 0.0 for one in results),
        )
    return found


def check(
    records: list[dict[str, Any]], peers: dict[str, dict[str, tuple[float, float]]]
) -> list[str]:
    """Print the table; return what is short of the claims."""
    print(f"| data | classes | found | ARI | of best | CPU / fit | {' | '.join(PEERS)} |")
    print("|---|" + "---|" * (5 + len(PEERS)))
    off, near_best, leading, times, clustered = [], 0, 0, [], 0
    for name in (*REAL, *PLANTED):
        own = [one for one in records if one["dataset"] == name and "peer" not in one]
        if not own:
            continue
        numbers, classes = [one["n_found"] for one in own], own[0]["n_classes"]
        ari, ratio = (median(one[key] for one in own) for key in ("ari", "cpu_seconds"))
        ratio /= median(one["fit_seconds"] for one in own)
        best = max([ari, *(value for one in own for value in one["ari_over_k"].values())])
        times.append(ratio)
        others = peers.get(name, {})
        if name == "gaussian":
            clustered = sum(number > 1 for number in numbers)
        if name in REAL:
            off += [abs(number - classes) / classes for number in numbers]
            near_best += ari >= LEAST_OF_BEST * best
            leading += sum(value > ari for _, value in others.values()) < 2
        cells = (f"{others[p][0]:.0f}, {others[p][1]:.3f}" if p in others else "" for p in PEERS)
        found = f"{', '.join(map(str, numbers))} | {ari:.3f} | {ari / best if best else 1:.2f}"
        print(f"| {name} | {classes} | {found} | {ratio:.1f} | {' | '.join(cells)} |")
    claims = [
        (median(off or [0]) <= MOST_OFF, f"the number is off by {median(off or [0]):.0%}"),
        (near_best >= LEAST_SETS, f"ARI near the best over k on {near_best} of {len(REAL)}"),
        (leading >= LEAST_SETS, f"first or second in ARI on {leading} of {len(REAL)}"),
        (clustered == 0, f"{clustered} clusterings of the Gaussian"),
        (max(times) <= MOST_TIME, f"up to {max(times):.1f} times the fit's CPU"),
    ]
    for _, text in claims:
        print(text)
    return [text for holds, text in claims if not holds]


def run_quick() -> int:
    from sklearn.datasets import load_digits

    found = {name: PRCut("auto", random_state=0).fit(load(name)[0]).n_clusters_ for name in PLANTED}
    found["digits"] = PRCut("auto", random_state=0).fit(load_digits().data).n_clusters_
    print(found)
    limits = {"blobs30": (28, 32), "tail20": (18, 22), "gaussian": (1, 1), "digits": (9, 15)}
    short = [
        f"{name}: {found[name]} clusters, expected {least} to {most}"
        for name, (least, most) in limits.items()
        if not least <= found[name] <= most
    ]
    return verdict(short, "planted clusters are counted, and a Gaussian is none")


def main() -> int:
    parser = options_of(__doc__, "planted sets and the digits")
    parser.add_argument("--run", action="store_true", help="first run what is missing")
    given = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    if given.quick:
        return run_quick()
    path = RESULTS / "unknown_k.jsonl"
    if given.run:
        run_missing(path)
    records = read(path)
    if not records:
        print("no records; --run makes them")
        return 1
    return verdict(check(records, read_peers(records)), "the number is found, at little cost")


if __name__ == "__main__":
    sys.exit(main())
