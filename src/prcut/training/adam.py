"""Adam, with the state and the fused step of ``torch.optim.Adam``.

``torch.optim`` imports torch's compiler with its first optimizer, longer than many a training.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

_OPTIONS: Any = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False, "maximize": False}


class Adam:
    """Optimizer; ``state`` has a slot for every parameter that ever had a gradient.

    >>> parameter = torch.nn.Parameter(torch.zeros(2))
    >>> parameter.sum().backward()
    >>> Adam([parameter]).step(0.1)
    >>> parameter.data
    tensor([-0.1000, -0.1000])
    """

    def __init__(self, parameters: Iterable[Tensor], weight_decay: float = 0.0) -> None:
        self.parameters, self.weight_decay = list(parameters), weight_decay
        self.state: dict[int, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Change the parameters by their gradients, which are then forgotten."""
        for number, one in enumerate(self.parameters):
            if one.grad is None:
                continue
            if number not in self.state:
                new = {name: torch.zeros_like(one) for name in ("exp_avg", "exp_avg_sq")}
                self.state[number] = {"step": torch.zeros((), device=one.device), **new}
            slot = self.state[number]
            slot["step"] += 1
            # one pass over the weights, a third of the time of several at 768 × 1000
            torch._fused_adam_(
                [one],
                [one.grad],
                [slot["exp_avg"]],
                [slot["exp_avg_sq"]],
                [],
                [slot["step"]],
                lr=learning_rate,
                weight_decay=self.weight_decay,
                **_OPTIONS,
            )
            one.grad = None
