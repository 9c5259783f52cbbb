"""What the contest must show: every sentence that does not hold, in words."""

from __future__ import annotations

import numpy as np
from benchmarks.harness.contest.scoreboard import Scoreboard, mean_ranks
from benchmarks.harness.contest.sets import CONTEST_SETS, KINDS
from benchmarks.harness.contest.significance import adjust_holm, compare_pair
from benchmarks.harness.contest.tails import LONG_TAILED

__all__ = ["check_claims", "compare_peers"]

OURS = "prcut"
_SURPASSED = (
    *("faiss_kmeans", "kmeans_restarts", "spectral_clustering"),
    *("hdbscan", "umap_hdbscan", "evoc"),
)
_LEVEL = 0.05
_KMEANS, _MAX_LOSS, _MAX_LOST = "kmeans_restarts", 0.05, 0.1
_GRAPH_PEERS, _MIN_AHEAD = ("igraph_leiden_k", "metis"), 2 / 3


def check_claims(board: Scoreboard, half: str) -> list[str]:
    """Return what falls short on a half; missing runs fall short too."""
    missing = [
        one.name for one in CONTEST_SETS.values() if one.half == half and one.name not in board.sets
    ]
    short = [f"not run by all methods yet: {', '.join(missing)}"] if missing else []
    needed = {OURS, *_SURPASSED, *_GRAPH_PEERS}
    if absent := sorted(needed - set(board.methods)):
        return [*short, f"no records of {', '.join(absent)}"]
    short += _check_ranks(board)
    short += _check_significance(board)
    short += _check_kmeans(board)
    short += _check_graph_peers(board)
    return short + _check_tails(board)


def compare_peers(board: Scoreboard) -> dict[str, float]:
    """Return Holm's adjusted p of PRCut's NMI against every peer's."""
    ours = board.row("nmi", OURS)
    peers = [method for method in board.methods if method != OURS]
    values = [compare_pair(ours, board.row("nmi", method)) for method in peers]
    return dict(zip(peers, adjust_holm(values), strict=True))


def _check_ranks(board: Scoreboard) -> list[str]:
    short = []
    for kind, score in (("all", "nmi"), ("all", "acc"), *((kind, "nmi") for kind in KINDS)):
        part = board if kind == "all" else board.of_kind(kind)
        if not part.sets:
            continue
        ranks = dict(zip(part.methods, mean_ranks(part.scores[score]), strict=True))
        best = min(ranks, key=lambda method: (ranks[method], method != OURS))
        if best != OURS:
            against = f"{ranks[OURS]:.2f}, {best} has {ranks[best]:.2f}"
            sets = f"{kind} ({len(part.sets)} sets)"
            short.append(f"mean rank over {sets} by {score.upper()}: {against}")
    return short


def _check_significance(board: Scoreboard) -> list[str]:
    adjusted, ours = compare_peers(board), board.row("nmi", OURS)
    return [
        f"not significantly better than {method}: p = {adjusted[method]:.3g} (Holm)"
        for method in _SURPASSED
        if adjusted[method] >= _LEVEL or ours.mean() <= board.row("nmi", method).mean()
    ]


def _check_kmeans(board: Scoreboard) -> list[str]:
    loss = board.row("nmi", _KMEANS) - board.row("nmi", OURS)
    lost = [name for name, value in zip(board.sets, loss, strict=True) if value > _MAX_LOSS]
    if len(lost) <= _MAX_LOST * len(board.sets):
        return []
    return [f"behind k-means by more than {_MAX_LOSS} NMI on {', '.join(lost)}"]


def _check_graph_peers(board: Scoreboard) -> list[str]:
    best = np.max([board.row("acc", method) for method in _GRAPH_PEERS], axis=0)
    ahead = int((board.row("acc", OURS) >= best).sum())
    if ahead >= _MIN_AHEAD * len(board.sets):
        return []
    return [f"accuracy of the best of Leiden and METIS reached on {ahead} of {len(board.sets)}"]


def _check_tails(board: Scoreboard) -> list[str]:
    """Compare with the best of k-means, Leiden and METIS where sizes are unequal, and elsewhere."""
    short = []
    best = np.max([board.row("nmi", method) for method in (_KMEANS, *_GRAPH_PEERS)], axis=0)
    is_ahead = board.row("nmi", OURS) >= best
    is_tail = np.array([name in LONG_TAILED for name in board.sets])
    for words, part in (("long-tailed", is_ahead[is_tail]), ("other", is_ahead[~is_tail])):
        if part.sum() < _MIN_AHEAD * len(part):
            ahead = f"{part.sum()} of {len(part)} {words} sets"
            short.append(f"NMI of the best of k-means, Leiden and METIS reached on {ahead}")
    return short
