"""Which runs the contest is made of: small sets first, and first the peers of the claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.harness.contest.peers import CONTEST_PEERS
from benchmarks.harness.contest.sets import CONTEST_SETS
from benchmarks.harness.inputs import CONTEST_SPLIT
from benchmarks.harness.records import RunSpec

__all__ = ["CLAIMED_PEERS", "CONTESTANTS", "contest_specs", "is_left_out"]

TIME_LIMIT = 300.0
N_NEIGHBORS = 15
CLAIMED_PEERS = (
    *("faiss_kmeans", "spectral_clustering", "igraph_leiden_k", "metis"),
    *("hdbscan", "umap_hdbscan", "evoc"),
)
# leidenalg's runs of the development half count until igraph's replace them
CONTESTANTS = ("prcut", *CLAIMED_PEERS, "leiden_k", *CONTEST_PEERS)
_SEEDS, _FEW_SEEDS = range(5), range(3)
_SLOW = ("umap_hdbscan", "evoc", "kmeans_constrained", "gaussian_mixture")
_UNSEEDED = ("hdbscan", "ward", "finch")
# 20,000 rows or more: distances of all pairs do not fit, flows do not end
_LARGE = (
    *("clinc150", "stackoverflow", "stackoverflow_static", "mnist", "fashion_mnist"),
    *("shuttle", "zipf", "blobs_many", "letter", "biomedical", "biomedical_static"),
    *("newsgroups20", "newsgroups20_static", "dblp", "dblp_static"),
)
_SMALL_ONLY = ("ward", "kmeans_constrained")
_QUICK_METHODS = ("prcut", "kmeans_restarts", "igraph_leiden_k", "ward")
_QUICK_SETS = ("wine", "breast_cancer", "digits")
_QUICK_ROWS = 2000


def is_left_out(dataset: str, method: str) -> bool:
    """Return whether a method is not asked for so many rows; it then counts as the last."""
    return dataset in _LARGE and method in _SMALL_ONLY


def contest_specs(half: str, *, quick: bool = False) -> list[RunSpec]:
    """Return the runs of a half; quick ones are of three small sets of development."""
    if quick:
        return _specs("contest", _QUICK_SETS, _QUICK_METHODS, quick=True)
    table = "contest" if half == "development" else "contest_test"
    names = [one.name for one in CONTEST_SETS.values() if one.half == half]
    names.sort(key=lambda name: _LARGE.index(name) + 1 if name in _LARGE else 0)
    claimed = ("prcut", *CLAIMED_PEERS)
    return [
        *_specs(table, names, claimed),
        *_specs(table, names, CONTEST_PEERS),
    ]


def _specs(
    table: str, names: Iterable[str], methods: Iterable[str], *, quick: bool = False
) -> list[RunSpec]:
    n_rows = _QUICK_ROWS if quick else None
    return [
        RunSpec(table, name, CONTEST_SPLIT, "raw", N_NEIGHBORS, method, seed, n_rows, TIME_LIMIT)
        for name in names
        for method in methods
        if not is_left_out(name, method)
        for seed in ((0,) if quick else _seeds(method))
    ]


def _seeds(method: str) -> Sequence[int]:
    if method in _UNSEEDED:
        return (0,)
    return _FEW_SEEDS if method in _SLOW else _SEEDS
