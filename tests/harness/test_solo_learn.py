"""Checkpoints of solo-learn: the stem, the weights that are read, and what is refused."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.harness import solo_learn
from torch import Tensor, nn

from prcut.errors import InvalidInputError
from prcut.pipeline.embedding import embed
from prcut.pipeline.encoders import base, load
from prcut.pipeline.encoders.load import load_encoder


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "LOADERS", dict(load.LOADERS))
    solo_learn.register_solo_learn()


def library(name: str) -> Any:
    """A package, or a skip that says why it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported: {error}")


def images(n_samples: int = 5, size: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n_samples, size, size, 3), np.uint8)


def test_solo_learn_in_a_network_of_timm(tmp_path: Path) -> None:
    timm = library("timm")
    model = timm.create_model("resnet10t", pretrained=False, num_classes=0).eval()
    state = {f"backbone.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "last.ckpt")
    encoder = f"solo-learn:{tmp_path}/last.ckpt@resnet10t"
    assert embed(images(2, 32), encoder, cache=tmp_path / "cache").shape == (2, 512)


# -- with a stand-in for timm, which cannot be imported without torchvision ----------------------


class ResNet(nn.Module):
    """What solo-learn's small networks and timm's have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False)
        self.maxpool: nn.Module = nn.MaxPool2d(2)
        self.sizes: list[tuple[int, ...]] = []

    def forward(self, batch: Tensor) -> Tensor:
        self.sizes.append(tuple(batch.shape[2:]))
        rows: Tensor = self.maxpool(self.conv1(batch)).mean((2, 3))
        return rows


@pytest.fixture
def fake_timm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Notes how networks are asked for. Shows our side only: the test above shows timm's."""
    asked: list[tuple[Any, ...]] = []
    timm = ModuleType("timm")

    def create_model(arch: str, **options: Any) -> nn.Module:
        asked.append((arch, options))
        return ResNet()

    timm.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setattr(base, "version", lambda package: f"{package} 0")
    library("PIL")
    return asked


@pytest.mark.parametrize(("kernel_size", "seen"), [(3, (32, 32)), (7, (224, 224))])
@pytest.mark.parametrize("prefix", ["backbone", "encoder"])
def test_solo_learn_stem_follows_the_weights(
    fake_timm: list[tuple[Any, ...]], tmp_path: Path, kernel_size: int, seen: Any, prefix: str
) -> None:
    weight = torch.rand(8, 3, kernel_size, kernel_size)
    state = {f"{prefix}.conv1.weight": weight, f"momentum_{prefix}.conv1.weight": weight + 1}
    torch.save({"state_dict": state}, tmp_path / "last.ckpt")
    name = f"solo-learn:{tmp_path}/last.ckpt@resnet18"
    loaded = load_encoder(name, torch.device("cpu"), "images")
    rows = loaded.encode(images(2, 32))
    assert fake_timm == [("resnet18", {"pretrained": False, "num_classes": 0})]
    module = loaded.module
    assert isinstance(module, ResNet)
    torch.testing.assert_close(module.conv1.weight, nn.Parameter(weight))
    assert module.sizes == [seen]
    assert isinstance(module.maxpool, nn.Identity) == (kernel_size == 3)
    assert rows.shape == (2, 8)


class RunsCode:
    """What a forged checkpoint holds."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("forged",)


def test_checkpoints_run_no_code(
    fake_timm: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {}, "hyper_parameters": RunsCode()}, "forged.ckpt")
    with pytest.raises(InvalidInputError, match=r"forged\.ckpt holds more than tensors"):
        embed(images(), "solo-learn:forged.ckpt@resnet18")
    assert not Path("forged").exists()
    assert fake_timm == []


def test_checkpoints_that_are_none_are_refused(
    fake_timm: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    torch.save({"state_dict": {"head.weight": torch.zeros(1)}}, tmp_path / "head.ckpt")
    with pytest.raises(InvalidInputError, match=r"head\.ckpt has no weights called state_dict: ba"):
        embed(images(), f"solo-learn:{tmp_path}/head.ckpt@resnet18")
    with pytest.raises(InvalidInputError, match=r"does not say which network it is; write"):
        embed(images(), f"solo-learn:{tmp_path}/head.ckpt")
    with pytest.raises(InvalidInputError, match=r"none\.ckpt@resnet18' cannot be loaded"):
        embed(images(), f"solo-learn:{tmp_path}/none.ckpt@resnet18")
    torch.save({"state_dict": {"backbone.other": torch.zeros(1)}}, tmp_path / "other.ckpt")
    with pytest.raises(InvalidInputError, match=r"cannot be loaded: Error.* in loading state_dict"):
        embed(images(), f"solo-learn:{tmp_path}/other.ckpt@resnet18")
    assert len(fake_timm) == 1


def test_middle_of_an_image() -> None:
    library("PIL")
    wide = np.zeros((1, 10, 30, 3), np.uint8)
    wide[:, :, 10:20] = 255
    middle = solo_learn._crop_center(wide, 20, 16)
    assert middle.shape == (1, 16, 16, 3)
    assert middle.mean() > 240


def test_weights_of_strangers_need_a_torch_that_reads_them_safely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(InvalidInputError, match=r"upgrade to 2\.6"):
        solo_learn._backbone_weights(tmp_path / "weights.ckpt")
