"""Everything that decides a fit, besides the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, Literal, get_args

import torch

from prcut.errors import InvalidInputError
from prcut.fit.settings import Effort, FitSettings, Preset, Solver
from prcut.numerics.validation import check_positive_int
from prcut.search.limits import Limits
from prcut.training.settings import TrainConfig

# the layer that learns a partition by default: what walks found is not linear in the features
_HIDDEN = (256,)
# labels are learned from smaller batches than cuts are estimated from, and in larger steps
_DISTILLING = TrainConfig(max_steps=450, batch_size=256, learning_rate=1e-2)
# optimizer, neighbours and hidden layers: Table 2, and Tables 3 and 4 with the appendix
_PUBLISHED: dict[str, tuple[Literal["adam", "rmsprop"], int, tuple[int, ...]]] = {
    "paper-pixels": ("rmsprop", 150, (512, 512, 512)),
    "paper-representations": ("adam", 100, ()),
}
# heads that compete stand for starts; all their logits together are at most so many
_TRAINING = TrainConfig(
    max_steps=800, learning_rate=1e-2, n_heads=16, first_balance=4.0, patience=None
)
_MAX_LOGITS = 2048
# many clusters need more steps: with 150 of them, twice as many leave 2 % to the search, not 6
_STEPS_PER_CLUSTER, _MAX_STEPS = 10, 3200
# more starts find lower objectives, in a time that grows with them
_STARTS = {
    "search": {"fast": 0, "default": 4, "best": 16},
    "train": {"fast": 1, "default": 1, "best": 4},
}


@dataclass(frozen=True)
class FitConfig(FitSettings):
    """Everything that decides a fit, besides the data.

    Parameters
    ----------
    n_clusters, n_neighbors, metric, similarity, solver, walk_length, hidden, bottleneck, n_init
        See :class:`prcut.fit.settings.FitSettings`, which says what each means.
    balance_weight : float, optional
        Of the search, by default what suits the graph; training has its own in ``train``.
    pairs : {"walk", "uniform"}
        Both ends of walks along the edges, or the paper's two batches.
    standardize : bool
        Whether the assigner reads rows from their mean, in units of their deviation.
    n_components : int, optional
        Main directions of the rows that training sees, folded into the assigner after it; None
        trains on the rows themselves.
    layer_sizes : tuple of int
        Numbers of clusters, from large to small, through which the clusters merge further.
    refine : bool
        Move single rows of a trained partition as long as its objective falls; the assigner stays
        as it was trained.
    min_size, max_size : float, optional
        Rows of every cluster: numbers of them, fractions of all below 1, or a ``max_size`` of
        ``"equal"``; see :meth:`limits`.
    outliers : float, optional
        Fraction of usual rows that may be labelled −1; None keeps no rows to compare with.
    weight_column, label_column : str, optional
        Of the data of a run.
    train, distil : TrainConfig
        Of the one solver and of the other, which takes at least a step per cluster.
    """

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
        for name, known in (
            ("pairs", ("walk", "uniform")),
            ("solver", get_args(Solver)),
            ("effort", get_args(Effort)),
        ):
            if getattr(self, name) not in known:
                *others, last = map(repr, known)
                raise InvalidInputError(
                    f"{name}={getattr(self, name)!r} must be {', '.join(others)} or {last}."
                )

    def limits(self, total: float, *, is_whole: bool = True) -> Limits | None:
        """Return the limits of the sizes of rows that weigh so much together, if there are any.

        Sizes are whole numbers where all rows weigh 1.

        >>> FitConfig(3, min_size=0.2, max_size=6).limits(14)
        Limits(least=3, most=6)
        >>> FitConfig(3, max_size="equal").limits(14)
        Limits(least=4, most=5)
        """
        if self.min_size is None and self.max_size is None:
            return None
        n_clusters, mean = self.n_clusters, total / self.n_clusters
        if self.max_size == "equal":
            if self.min_size is not None:
                raise InvalidInputError("max_size='equal' leaves no choice of a min_size.")
            return Limits(math.floor(mean), math.ceil(mean)) if is_whole else Limits(mean, mean)
        least, most = (
            default if size is None else _read_size(name, size, total)
            for name, size, default in (
                ("min_size", self.min_size, 0.0),
                ("max_size", self.max_size, total),
            )
        )
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
        """``balance_weight``, or the one that training uses where none is given."""
        return self.train.balance_weight if self.balance_weight is None else self.balance_weight

    @property
    def n_starts(self) -> int:
        """``n_init``, or the solver's default for the effort; 0 searches two resamples."""
        return self.n_init or _STARTS[self.solver][self.effort]

    @property
    def n_threads(self) -> int:
        """``n_jobs``, or as many threads as torch was given."""
        return self.n_jobs or torch.get_num_threads()

    @property
    def layers(self) -> tuple[int, ...]:
        """``hidden``, or one layer, or none to train on rows that are not projected."""
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
        distil = replace(_DISTILLING, max_steps=max(_DISTILLING.max_steps, n_clusters))
        config = _read_preset(preset, n_clusters)
        given = {name: value for name, value in given.items() if value is not None}
        own = {field.name for field in fields(cls)}
        steps = {"seed": seed} | {name: given.pop(name) for name in [*given] if name not in own}
        train, distil = replace(config.train, **steps), replace(distil, **steps)
        return replace(config, **given, train=train, distil=distil)


def _read_size(name: str, size: Any, total: float) -> float:
    """Return a number of rows that was given as such or as a fraction of all."""
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


def _read_preset(preset: Preset, n_clusters: int) -> FitConfig:
    """Return our settings, or those of the paper's experiments and nothing beside them."""
    if preset == "default":
        n_heads = min(_TRAINING.n_heads, max(1, _MAX_LOGITS // n_clusters))
        max_steps = max(_TRAINING.max_steps, min(_STEPS_PER_CLUSTER * n_clusters, _MAX_STEPS))
        return FitConfig(n_clusters, train=replace(_TRAINING, n_heads=n_heads, max_steps=max_steps))
    if preset not in _PUBLISHED:
        *others, last = map(repr, get_args(Preset))
        raise InvalidInputError(f"{preset=} must be {', '.join(others)} or {last}.")
    optimizer, n_neighbors, hidden = _PUBLISHED[preset]
    return FitConfig(
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


def check_n_samples(n_samples: int, config: FitConfig) -> None:
    """Refuse fewer rows than clusters."""
    if n_samples < config.n_clusters:
        raise InvalidInputError(f"{n_samples=} should be >= n_clusters={config.n_clusters}.")


def check_fraction(outliers: Any) -> None:
    """Refuse what is neither None nor a fraction of the rows."""
    if outliers is None:
        return
    if isinstance(outliers, bool) or not isinstance(outliers, Real):
        raise InvalidInputError(f"{outliers=} must be a fraction of the rows, or None.")
    if not 0 <= float(outliers) < 1:
        raise InvalidInputError(f"{outliers=} must be at least 0 and below 1.")
