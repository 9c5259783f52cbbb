"""The settings of a fit, each stated once: its default and what it means.

Like :mod:`prcut.training.settings`, this imports only the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from prcut.training.settings import setting

if TYPE_CHECKING:
    from prcut.graph.build import PairSimilarity, Similarity
    from prcut.graph.neighbors import Metric

Preset = Literal["default", "paper-pixels", "paper-representations"]
Solver = Literal["search", "train"]
Effort = Literal["fast", "default", "best"]

# those of graph.neighbors.Metric and graph.build.Similarity, whose modules load torch
_METRICS = "euclidean", "cosine", "inner_product"
_SIMILARITIES = "binary", "mean", "self_tuning", "cosine"
# what is known of the rows is given by name only
_known = partial(setting, None, panel="Known", kw_only=True)


@dataclass(frozen=True)
class FitSettings:
    """The fields of :class:`prcut.fit.config.FitConfig`, which checks them."""

    n_clusters: int
    n_neighbors: int | None = setting(
        None, "Neighbours per row.", option="neighbors", panel="Graph", shown="chosen from the data"
    )
    metric: Metric = setting(  # noqa: RUF009
        "euclidean",
        "How rows are compared: euclidean, cosine or inner_product.",
        panel="Graph",
        choices=_METRICS,
    )
    similarity: Similarity | PairSimilarity = setting(  # noqa: RUF009
        "mean",
        "Weight of an edge: mean, binary, self_tuning or cosine.",
        panel="Graph",
        choices=_SIMILARITIES,
    )
    solver: Solver = setting(  # noqa: RUF009
        "search",
        "search: find the clusters by a search on the graph and distil them into the assigner; "
        "train: train the assigner on pairs.",
        choices=get_args(Solver),
    )
    effort: Effort = setting(  # noqa: RUF009
        "default",
        "fast: few neighbours and no starts; best: four times the starts, and one that is trained.",
        choices=get_args(Effort),
    )
    pairs: Literal["walk", "uniform"] = "walk"
    walk_length: int = setting(
        8, "Steps along the edges from one end of a pair to the other, at first; later fewer."
    )
    n_components: int | None = 64
    layer_sizes: tuple[int, ...] = ()
    refine: bool = True
    hidden: tuple[int, ...] | None = setting(
        None, "Widths of the hidden layers, such as 512,512.", shown="256"
    )
    standardize: bool = True
    bottleneck: int | None = setting(None, "Width of an extra layer before the last.")
    n_init: int | None = setting(
        None,
        "Number of starts; the one with the lowest objective is kept.",
        shown="4 to search, 1 to train",
    )
    n_jobs: int | None = setting(
        None,
        "Threads of the search.",
        option="jobs",
        panel="Running",
        shown="as many as torch uses",
    )
    balance_weight: float | None = setting(
        None,
        "Cost of an empty cluster; 0 leaves the sizes free.",
        option="balance",
        shown="chosen from the graph to search, 2 to train",
    )
    min_size: float | str | None = _known(
        "Rows of every cluster at least: a number of them, or a fraction of all below 1."
    )
    max_size: float | str | None = _known(
        "Rows of every cluster at most: a number, a fraction below 1, or equal for equal sizes."
    )
    outliers: float | None = _known(
        "Label rows that belong nowhere -1, at most this fraction of usual rows; 0 labels none."
    )
    weight_column: str | None = _known("Parquet column of weights: how often a row counts.")
    label_column: str | None = _known(
        "Parquet column of known classes: whole numbers from 0, and -1 or null for unknown rows."
    )
