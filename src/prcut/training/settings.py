"""The settings of training, each stated once: its default and its meaning.

Torch is not loaded here, so that the command line can list the settings in its help.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from prcut.errors import InvalidInputError, check_positive_int

# steps between two records of the history; a record holds their mean
RECORD_EVERY = 10
# fraction of the steps in which the learning rate rises from 0
_WARM_UP = 0.05
# fractions of the steps after which a quarter of the heads is left, and one
_FEW_HEADS = 0.5
_ONE_HEAD = 0.8


def setting(
    default: Any,
    text: str,
    *,
    option: str | None = None,
    panel: str = "Training",
    choices: tuple[str, ...] = (),
    least: int | None = None,
    shown: str | None = None,
    kw_only: bool = False,
) -> Any:
    """Return a dataclass field that the command line offers as an option.

    ``text`` is one sentence of help; ``option`` is the name on the command line, ``panel`` the
    heading of the help, ``choices`` the values that a shell completes, ``least`` the smallest
    value, and ``shown`` the default where it depends on another setting. A ``kw_only`` setting has
    no place in the order of the arguments.
    """
    metadata = {
        "help": text,
        "option": option,
        "panel": panel,
        "choices": choices,
        "least": least,
        "shown": shown,
    }
    return field(default=default, metadata=metadata, kw_only=kw_only)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Reject a value that is none of the choices."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise InvalidInputError(f"{name}={value!r} must be {', '.join(others)} or {last}.")


@dataclass(frozen=True)
class TrainConfig:
    """How an assigner is trained.

    Parameters
    ----------
    max_steps : int
    batch_size : int
        Pairs per step, or rows while distilling.
    learning_rate : float
    schedule : {"cosine", "constant"}
        ``"cosine"`` warms up over the first steps and falls to 0 at ``max_steps``.
    optimizer : {"adam", "rmsprop"}
    weight_decay : float
        The optimizer's L2 term.
    balance_weight : float
        Penalty for an empty cluster, in units of what a cluster of random rows adds to the cut:
        see :func:`prcut.numerics.objective.balance_factor`.
    first_balance : float
        Balance weight of the first step, if larger: it then falls to ``balance_weight``.
    n_heads : int
        Output layers that share one body. During training, the heads with the highest objective
        of hard labels on a held-out sample are dropped until one is left.
    mass_update_rate : float
        Weight of the newest batch in the running cluster mass.
    patience : int, optional
        Stop when the mean objective of this many steps (for distillation, the cross-entropy) is no
        lower than that of as many steps before them; None never stops early.
    precision : {"float32", "bfloat16"}
        Precision of the assigner's matrix products; softmax and loss are float32.
    checkpoint_every : int
        Steps between checkpoints, a multiple of 10.
    seed : int
    """

    max_steps: int = setting(
        600,
        "Maximum number of training steps per start.",
        option="steps",
        shown="450 or k to distil, else 800",
    )
    batch_size: int = setting(
        2048, "Pairs per training step; rows to distil.", shown="256 to distil, else 2048"
    )
    learning_rate: float = setting(3e-3, "Learning rate.", shown="0.01")
    schedule: Literal["cosine", "constant"] = "cosine"
    optimizer: Literal["adam", "rmsprop"] = "adam"
    weight_decay: float = 0.0
    balance_weight: float = 2.0
    first_balance: float = 0.0
    n_heads: int = 1
    mass_update_rate: float = 0.8
    patience: int | None = 200
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpoint_every: int = setting(
        100,
        "Training steps between checkpoints, a multiple of 10.",
        option="save-every",
        panel="Running",
    )
    seed: int = setting(0, "Seed of everything random.", panel="Running", least=0)

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "checkpoint_every", "n_heads"):
            check_positive_int(name, getattr(self, name))
        if self.patience is not None:
            check_positive_int("patience", self.patience)
        if not self.learning_rate > 0:
            raise InvalidInputError(f"learning_rate={self.learning_rate} must be > 0.")
        for name in ("weight_decay", "balance_weight", "first_balance"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidInputError(f"{name}={getattr(self, name)} must be >= 0.")
        check_choice("schedule", self.schedule, ("cosine", "constant"))
        check_choice("optimizer", self.optimizer, ("adam", "rmsprop"))
        check_choice("precision", self.precision, ("float32", "bfloat16"))
        if self.checkpoint_every % RECORD_EVERY:
            raise InvalidInputError(
                f"checkpoint_every={self.checkpoint_every} must be a multiple of {RECORD_EVERY}."
            )

    @classmethod
    def paper(
        cls, n_clusters: int, optimizer: Literal["adam", "rmsprop"], seed: int = 0
    ) -> TrainConfig:
        """Return the settings of the paper's experiments, whose pairs are ``UniformPairs``.

        The paper's entropy weight of 100 is added to a sum without the definition's ½: 50 here.
        """
        from prcut.numerics.objective import balance_factor  # loads torch

        return cls(
            optimizer=optimizer,
            max_steps=25_000,
            batch_size=2048,
            learning_rate=1e-4,
            schedule="constant",
            weight_decay=1e-7,
            balance_weight=50 / balance_factor(1.0, n_clusters) if n_clusters > 1 else 0.0,
            patience=None,
            seed=seed,
        )

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0: a rise, then half a cosine to 0."""
        if self.schedule == "constant":
            return self.learning_rate
        warm = min(1.0, (step + 1) / (_WARM_UP * self.max_steps))
        fall = 0.5 * (1 + math.cos(math.pi * step / self.max_steps))
        return self.learning_rate * (warm * fall)

    def n_heads_at(self, step: int) -> int:
        """Return the heads that are left at a step, counted from 0.

        >>> [TrainConfig(n_heads=16, max_steps=100).n_heads_at(step) for step in (0, 50, 99)]
        [16, 4, 1]
        """
        # they change with a record, which is a mean over the same heads
        done = (step - step % RECORD_EVERY) / self.max_steps
        if done < _FEW_HEADS:
            return self.n_heads
        return max(1, self.n_heads // 4) if done < _ONE_HEAD else 1

    def balance_weight_at(self, step: int) -> float:
        """Return the balance weight of a step, counted from 0."""
        return relax_balance(step / self.max_steps, self.balance_weight, self.first_balance)


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
