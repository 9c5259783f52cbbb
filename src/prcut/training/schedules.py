"""What changes in the course of training, as functions of the steps made.

Early steps decide which rows end together: long walks and strong balance then show the coarse shape
of the data, and short walks with the weight that was asked for settle the borders. Heads compete
until the shape is found.
"""

from __future__ import annotations

import math

# fraction of the steps in which the learning rate rises from 0
_WARM_UP = 0.05
# fractions of the steps after which a quarter of the heads is left, and one
_FEW_HEADS, _ONE_HEAD = 0.5, 0.8


def cosine(step: int, max_steps: int) -> float:
    """Return the learning rate as a fraction of the largest: a rise, then half a cosine to 0."""
    warm = min(1.0, (step + 1) / (_WARM_UP * max_steps))
    return warm * 0.5 * (1 + math.cos(math.pi * step / max_steps))


def count_heads(done: float, n_heads: int) -> int:
    """Return how many heads are left.

    >>> [count_heads(done, 16) for done in (0.0, 0.5, 1.0)]
    [16, 4, 1]
    """
    if done < _FEW_HEADS:
        return n_heads
    return max(1, n_heads // 4) if done < _ONE_HEAD else 1


def halve_walk(done: float, n_steps: int) -> int:
    """Return the length of the walks, which is halved after every quarter of the steps.

    >>> [halve_walk(done, 8) for done in (0.0, 0.25, 0.5, 0.75)]
    [8, 4, 2, 1]
    """
    return max(1, n_steps >> int(4 * done))


def relax_balance(done: float, weight: float, first: float) -> float:
    """Return the balance weight, which falls from ``first``, if that is more, by equal ratios.

    >>> [round(relax_balance(done, 0.1, 1.6), 2) for done in (0.0, 0.25, 0.5, 1.0)]
    [1.6, 0.8, 0.4, 0.1]
    """
    if not 0 < weight < first:
        return weight
    return float(weight * (first / weight) ** (1 - min(1.0, done)))
