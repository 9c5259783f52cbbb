"""Long-tailed samples of data sets whose classes are of similar size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from benchmarks.harness.contest.sources import Rows

__all__ = ["LONG_TAILED", "TAILS", "take_tail"]

Shape = Literal["rank", "exponential"]
TAILS = (
    *("banking77", "clinc150", "stackoverflow", "snips", "newsgroups20", "search_snippets"),
    *("agnews", "agnews_static", "biomedical", "biomedical_static", "bbc_news"),
    *("mnist", "fashion_mnist", "usps", "digits", "cifar10", "glyphs", "penbased"),
    *("letter", "texture", "segment"),
)
"""Sets of real data with at least four classes and a thousand rows, none with a long tail."""
_FEW_CLASSES = "snips", "search_snippets", "agnews", "agnews_static", "bbc_news", "segment"
LONG_TAILED = (
    *("trec", "trec_static", "fortunes", "wordnet", "wordnet_static"),
    *("tweet", "tweet_static", "massive_intent", "massive_intent_static"),
    *("google_news_t", "google_news_s", "google_news_ts"),
    *("google_news_t_static", "google_news_s_static", "google_news_ts_static"),
    *("mnist_long_tail", "indian_pines", "shuttle", "human_genomes", "pbmc"),
    *("blobs_unequal", "zipf"),
    *(f"{name}_exponential" for name in TAILS),
    *(f"{name}_rank" for name in TAILS if name not in _FEW_CLASSES),
)
"""Sets whose largest class has at least ten times the rows of the smallest."""
_RATIO = 50
"""How many times larger the first class is than the last, where sizes fall exponentially."""
_MIN_ROWS, _MAX_ROWS = 3, 500
"""Rows of a class."""


def take_tail(load: Callable[[], Rows], shape: Shape) -> Rows:
    """Draw rows so that the classes, in random order, have sizes that fall.

    The sizes are proportional to 1/rank, or fall exponentially to a fiftieth.
    """
    rows, labels = load()
    rng = np.random.default_rng(0)
    classes, counts = np.unique(labels, return_counts=True)
    order = rng.permutation(len(classes))
    rank = np.arange(len(classes))
    fall = 1 / (1 + rank) if shape == "rank" else _RATIO ** -(rank / max(1, len(classes) - 1))
    wanted = np.maximum(_MIN_ROWS, np.rint(min(_MAX_ROWS, np.median(counts)) * fall)).astype(int)
    kept = [
        rng.permutation(np.flatnonzero(labels == classes[one]))[:size]
        for one, size in zip(order, wanted, strict=True)
    ]
    chosen = np.sort(np.concatenate(kept))
    return rows[chosen], labels[chosen]
