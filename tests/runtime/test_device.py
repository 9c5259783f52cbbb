"""Devices by name."""

import pytest
import torch

from prcut.errors import InvalidInputError
from prcut.runtime.device import choose_device


def test_devices_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["meta", "nothing", "cpu:x"])
def test_devices_that_cannot_be_used_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"device='{name}' cannot be used: "):
        choose_device(name)
