"""The device that a name stands for."""

import torch
from torch import cuda

from prcut.errors import InvalidInputError


def choose_device(name: str) -> torch.device:
    """Return the device of a name; ``"auto"`` chooses CUDA or MPS where there is one."""
    if name == "auto":
        gpus = {"cuda": cuda, "mps": torch.backends.mps}
        return torch.device(next((name for name in gpus if gpus[name].is_available()), "cpu"))
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # fails for "meta", which holds no numbers
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"device={name!r} cannot be used: {reason}") from error
    return device


def widest_float(device: torch.device) -> torch.dtype:
    """Return the dtype to add up in on a device: MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64
