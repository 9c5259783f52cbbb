"""The settings of training, each stated once: its default and what it means.

Only the standard library is imported here, so that the command line can list the settings in its
help without loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


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

    ``text`` says in one sentence what the setting means; ``option`` is its name on the command
    line, ``panel`` the heading of the help that lists it, ``choices`` what a shell completes,
    ``least`` the smallest value, and ``shown`` the default where it depends on another setting. A
    ``kw_only`` setting is newer than the order of the arguments.
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


@dataclass(frozen=True)
class TrainSettings:
    """The fields of :class:`prcut.training.state.TrainConfig`, which checks them."""

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
    descent: Literal["gradient", "proximal"] = "gradient"
    optimizer: Literal["adam", "rmsprop"] = "adam"
    weight_decay: float = 0.0
    balance_weight: float = 2.0
    first_balance: float = 0.0
    n_heads: int = 1
    mass_update_rate: float = 0.8
    patience: int | None = 200
    precision: Literal["float32", "bfloat16"] = "float32"
    n_streams: int = 8
    checkpoint_every: int = setting(
        100,
        "Training steps between checkpoints, a multiple of 10.",
        option="save-every",
        panel="Running",
    )
    seed: int = setting(0, "Seed of everything random.", panel="Running", least=0)
