"""Whether methods differ over data sets: Friedman for all, then Wilcoxon by pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Duel", "adjust_holm", "compare_pair", "count_duel", "friedman_p"]

TIE = 0.005


class Duel(NamedTuple):
    """Data sets on which a method is better, equal and worse than another."""

    wins: int
    ties: int
    losses: int


def count_duel(ours: np.ndarray, theirs: np.ndarray) -> Duel:
    """Count wins, ties and losses; less than .005 apart is a tie.

    >>> count_duel(np.array([0.9, 0.5, 0.2]), np.array([0.8, 0.501, 0.4]))
    Duel(wins=1, ties=1, losses=1)
    """
    difference = ours - theirs
    wins, losses = int((difference >= TIE).sum()), int((difference <= -TIE).sum())
    return Duel(wins, len(difference) - wins - losses, losses)


def friedman_p(scores: np.ndarray) -> float:
    """Return how likely so different ranks are if all methods are alike, (n_methods, n_sets)."""
    from scipy.stats import friedmanchisquare

    if len(scores) < 3 or scores.shape[1] < 2:
        return 1.0
    value = float(friedmanchisquare(*scores).pvalue)
    return 1.0 if np.isnan(value) else value


def compare_pair(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return Wilcoxon's two-sided p; sets without a difference count half for either side."""
    from scipy.stats import wilcoxon

    difference = np.round(ours - theirs, 6)
    if not difference.any():
        return 1.0
    return float(wilcoxon(difference, zero_method="zsplit", method="approx").pvalue)


def adjust_holm(values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p: the family's error stays below what each is compared with.

    >>> adjust_holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, least = [0.0] * len(values), 0.0
    for position, i in enumerate(np.argsort(values, kind="stable")):
        least = max(least, min(1.0, (len(values) - position) * values[i]))
        adjusted[i] = least
    return adjusted
