"""The settings of a fit, each stated once: its default and its meaning.

Torch is not loaded here, so that the command line can list the settings in its help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, get_args

from prcut.errors import InvalidInputError, check_positive_int
from prcut.training.settings import TrainConfig, check_choice, setting

if TYPE_CHECKING:
    from prcut.graph.build import PairSimilarity, Similarity
    from prcut.graph.neighbors import Metric
    from prcut.search.limits import Limits

Preset = Literal["default", "paper-pixels", "paper-representations"]
Solver = Literal["search", "train"]
Effort = Literal["fast", "default", "best"]

# the same as graph.neighbors.Metric and graph.build.Similarity, whose modules load torch
_METRICS = "euclidean", "cosine", "inner_product"
_SIMILARITIES = "binary", "mean", "self_tuning", "cosine"
# the hidden layer of an assigner that distils a partition: clusters found by following edges are
# not linear in the features
_HIDDEN = (256,)
# distillation needs smaller batches than the estimate of a cut, and larger steps
_DISTILLING = TrainConfig(max_steps=450, batch_size=256, learning_rate=1e-2)
# training on pairs: the heads compete in place of restarts
_TRAINING = TrainConfig(
    max_steps=800, learning_rate=1e-2, n_heads=16, first_balance=4.0, patience=None
)
# logits of all heads together, at most
_MAX_LOGITS = 2048
# many clusters need more steps: at 150 clusters, twice the steps leave 2 % to the search, not 6 %
_STEPS_PER_CLUSTER = 10
_MAX_STEPS = 3200
# more restarts find lower objectives, in proportionally more time
_STARTS = {
    "search": {"fast": 0, "default": 4, "best": 16},
    "train": {"fast": 1, "default": 1, "best": 4},
}
# optimizer, neighbours and hidden layers of the paper: Table 2; Tables 3 and 4 with the appendix
_PUBLISHED: dict[str, tuple[Literal["adam", "rmsprop"], int, tuple[int, ...]]] = {
    "paper-pixels": ("rmsprop", 150, (512, 512, 512)),
    "paper-representations": ("adam", 100, ()),
}
# constraints are given by name only
_known = partial(setting, None, panel="Known", kw_only=True)


@dataclass(frozen=True)
class FitConfig:
    """Everything that decides a fit, besides the data.

    The command line shows the meaning of most fields: see the help text of each. The others are

    Parameters
    ----------
    pairs : {"walk", "uniform"}
        Both ends of walks along the edges, or the paper's two batches.
    n_components : int, optional
        Number of principal directions that training sees, folded into the assigner afterwards;
        None trains on the rows themselves.
    layer_sizes : tuple of int
        Decreasing numbers of clusters through which the clusters merge further.
    refine : bool
        Move single rows of a trained partition as long as its objective falls; the assigner stays
        as it was trained.
    standardize : bool
        Whether the assigner centres the rows and divides them by their deviation.
    train, distil : TrainConfig
        Training of ``solver="train"``, and of the distillation after ``solver="search"``, which
        takes at least one step per cluster.
    """

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
        "fast: few neighbours and no restarts; best: four times the restarts, and a trained one.",
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
        "Number of restarts; the one with the lowest objective is kept.",
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
        "Smallest size of a cluster: a number of rows, or a fraction of all below 1."
    )
    max_size: float | str | None = _known(
        "Largest size of a cluster: a number, a fraction below 1, or equal for equal sizes."
    )
    outliers: float | None = _known(
        "Label outliers -1, at most this fraction of usual rows; 0 labels none."
    )
    weight_column: str | None = _known(
        "Parquet column of weights: the number of times that a row counts."
    )
    label_column: str | None = _known(
        "Parquet column of known classes: whole numbers from 0, and -1 or null for unknown rows."
    )
    train: TrainConfig = _TRAINING
    distil: TrainConfig = _DISTILLING

    def __post_init__(self) -> None:
        for name in ("n_clusters", "walk_length"):
            check_positive_int(name, getattr(self, name))
        for name in ("n_neighbors", "n_init", "n_jobs", "bottleneck", "n_components"):
            if getattr(self, name) is not None:
                check_positive_int(name, getattr(self, name))
        for width in self.layers:
            check_positive_int("hidden", width)
        if not 0 <= self.training_balance < math.inf:
            raise InvalidInputError(f"balance_weight={self.balance_weight} must be >= 0.")
        check_fraction(self.outliers)
        check_choice("pairs", self.pairs, ("walk", "uniform"))
        check_choice("solver", self.solver, get_args(Solver))
        check_choice("effort", self.effort, get_args(Effort))

    def limits(self, total: float, *, is_whole: bool = True) -> Limits | None:
        """Return the limits of the cluster sizes for rows of this total weight, if there are any.

        Sizes are whole numbers where every row weighs 1.

        >>> FitConfig(3, min_size=0.2, max_size=6).limits(14)
        Limits(least=3, most=6)
        >>> FitConfig(3, max_size="equal").limits(14)
        Limits(least=4, most=5)
        """
        from prcut.search.limits import Limits

        if self.min_size is None and self.max_size is None:
            return None
        n_clusters, mean = self.n_clusters, total / self.n_clusters
        if self.max_size == "equal":
            if self.min_size is not None:
                raise InvalidInputError("max_size='equal' leaves no choice of a min_size.")
            return Limits(math.floor(mean), math.ceil(mean)) if is_whole else Limits(mean, mean)
        least = 0.0 if self.min_size is None else _read_size("min_size", self.min_size, total)
        most = total if self.max_size is None else _read_size("max_size", self.max_size, total)
        if is_whole:
            least, most = math.ceil(least - 1e-9), math.floor(most + 1e-9)
        if not (n_clusters * least <= total <= n_clusters * most and least <= most):
            raise InvalidInputError(
                f"{n_clusters} clusters of {least:g} to {most:g} cannot hold {total:g} rows: "
                f"min_size must be <= {mean:g} and max_size >= {mean:g}."
            )
        return Limits(least, most)

    @property
    def in_use(self) -> TrainConfig:
        """``distil`` where the partition is searched, else ``train``."""
        return self.distil if self.solver == "search" else self.train

    @property
    def seed(self) -> int:
        """The seed of everything random in a fit."""
        return self.train.seed

    @property
    def training_balance(self) -> float:
        """``balance_weight``, or the default of training."""
        return self.train.balance_weight if self.balance_weight is None else self.balance_weight

    @property
    def n_starts(self) -> int:
        """``n_init``, or the solver's default for the effort; 0 searches two resamples."""
        return self.n_init or _STARTS[self.solver][self.effort]

    @property
    def n_threads(self) -> int:
        """``n_jobs``, or the number of threads that torch uses."""
        import torch

        return self.n_jobs or torch.get_num_threads()

    @property
    def layers(self) -> tuple[int, ...]:
        """``hidden``, or its default: one layer, or none to train on rows without projection."""
        if self.hidden is not None:
            return self.hidden
        is_linear = self.solver == "train" and self.n_components is None
        return () if is_linear else _HIDDEN

    @classmethod
    def of(cls, preset: Preset, n_clusters: int, *, seed: int = 0, **given: Any) -> FitConfig:
        """Return a preset in which every given value that is not None replaces the preset's own.

        >>> config = FitConfig.of("paper-pixels", 10, max_steps=100, n_neighbors=None)
        >>> config.pairs, config.n_neighbors, config.train.learning_rate, config.train.max_steps
        ('uniform', 150, 0.0001, 100)
        """
        check_positive_int("n_clusters", n_clusters)
        check_choice("preset", preset, get_args(Preset))
        config = cls._default(n_clusters) if preset == "default" else cls._paper(preset, n_clusters)
        given = {name: value for name, value in given.items() if value is not None}
        own = {field.name for field in fields(cls)}
        steps = {"seed": seed} | {name: given.pop(name) for name in [*given] if name not in own}
        distil = replace(_DISTILLING, max_steps=max(_DISTILLING.max_steps, n_clusters))
        train, distil = replace(config.train, **steps), replace(distil, **steps)
        return replace(config, **given, train=train, distil=distil)

    @classmethod
    def _default(cls, n_clusters: int) -> FitConfig:
        n_heads = min(_TRAINING.n_heads, max(1, _MAX_LOGITS // n_clusters))
        max_steps = max(_TRAINING.max_steps, min(_STEPS_PER_CLUSTER * n_clusters, _MAX_STEPS))
        return cls(n_clusters, train=replace(_TRAINING, n_heads=n_heads, max_steps=max_steps))

    @classmethod
    def _paper(cls, preset: Preset, n_clusters: int) -> FitConfig:
        """Return the settings of the paper's experiments, with none of our additions."""
        optimizer, n_neighbors, hidden = _PUBLISHED[preset]
        return cls(
            n_clusters,
            n_neighbors=n_neighbors,
            similarity="binary",
            solver="train",
            pairs="uniform",
            hidden=hidden,
            standardize=False,
            n_components=None,
            refine=False,
            n_init=1,
            train=TrainConfig.paper(n_clusters, optimizer),
        )


def _read_size(name: str, size: Any, total: float) -> float:
    """Return a number of rows, given as such or as a fraction of all."""
    try:
        number = float(size)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf or isinstance(size, bool):
        raise InvalidInputError(
            f"{name}={size!r} must be a number of rows >= 1, or a fraction of all between 0 and 1"
            + (", or 'equal'." if name == "max_size" else ".")
        )
    return number if number >= 1 else number * total


def check_n_samples(n_samples: int, config: FitConfig) -> None:
    """Reject fewer rows than clusters."""
    if n_samples < config.n_clusters:
        raise InvalidInputError(f"{n_samples=} should be >= n_clusters={config.n_clusters}.")


def check_fraction(outliers: Any) -> None:
    """Reject anything but None and a fraction of the rows."""
    is_number = isinstance(outliers, Real) and not isinstance(outliers, bool)
    if outliers is not None and not (is_number and 0 <= float(outliers) < 1):
        raise InvalidInputError(
            f"{outliers=} must be a fraction of the rows, at least 0 and below 1, or None."
        )
