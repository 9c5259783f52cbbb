"""Encoders of other libraries: what each is asked for, and tiny weights of real ones."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from encoder_samples import TEXTS, images, library, tiny_bert, tiny_image_model
from prcut.pipeline.embedding import embed
from prcut.pipeline.encoders import hub


@pytest.mark.costly("imports transformers")
def test_transformers_texts_are_mean_tokens_without_padding(tmp_path: Path) -> None:
    path = tiny_bert(tmp_path / "bert")
    transformers = library("transformers")
    texts = [*TEXTS, "cat " * 50]  # longer than the model can read
    rows = embed(texts, f"transformers:{path}", cache=tmp_path / "cache", device="cpu")
    model = transformers.AutoModel.from_pretrained(path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    for row, text in zip(rows, texts, strict=True):
        tokens = tokenizer(text, return_tensors="pt", truncation=True, max_length=12)
        with torch.inference_mode():
            expected = model(**tokens).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(row, expected, atol=2e-3)


@pytest.mark.parametrize("family", ["dinov2", "vit"])
def test_transformers_images_are_first_tokens(tmp_path: Path, family: str) -> None:
    path = tiny_image_model(tmp_path / family, family)
    transformers = library("transformers")
    given = images(5, 28)  # of the size of the model: nothing is resized
    rows = embed(given, f"transformers:{path}", cache=tmp_path / "cache", batch_size=2)
    model = transformers.AutoModel.from_pretrained(path).eval()
    pixels = torch.from_numpy(given).permute(0, 3, 1, 2).float() / 127.5 - 1
    with torch.inference_mode():
        expected = model(pixel_values=pixels).last_hidden_state[:, 0]
    np.testing.assert_allclose(rows, expected, atol=5e-3)
    grey = embed(given[..., 0], f"transformers:{path}", cache=tmp_path / "cache")
    assert grey.shape == (5, 16)


def test_image_models_without_a_first_token_pool_themselves() -> None:
    class Pools(nn.Module):
        def forward(self, pixel_values: Tensor) -> Any:
            return SimpleNamespace(pooler_output=pixel_values.mean((2, 3), keepdim=True))

    class Clip(nn.Module):
        def get_image_features(self, pixel_values: Tensor) -> Tensor:
            return pixel_values.amax((2, 3))

    batch = {"pixel_values": torch.rand(2, 3, 4, 4)}
    assert hub._pooled_image(Pools(), batch).shape == (2, 3)
    found = hub._pooled_image(Clip(), batch)
    torch.testing.assert_close(found, batch["pixel_values"].amax((2, 3)))


def test_sentence_transformers_folder(tmp_path: Path) -> None:
    sentence_transformers = library("sentence_transformers")
    path = tiny_bert(tmp_path / "bert")
    # a plain folder of transformers: the library itself adds mean pooling
    rows = embed(TEXTS, f"sentence-transformers:{path}", cache=tmp_path / "cache", batch_size=2)
    model = sentence_transformers.SentenceTransformer(str(path), device="cpu")
    expected = model.encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(rows, expected, atol=2e-3)


# -- the same, with a stand-in for timm, which cannot be imported without torchvision ------------


class MeanColor(nn.Module):
    """Stands in for a network."""

    def forward(self, batch: Tensor) -> Tensor:
        return batch.mean((2, 3))


@pytest.fixture
def fake_timm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Notes how networks are asked for. Shows our side only: the test above shows timm's."""
    asked: list[tuple[Any, ...]] = []
    timm, data = ModuleType("timm"), ModuleType("timm.data")

    def create_model(arch: str, **options: Any) -> nn.Module:
        asked.append((arch, options))
        return MeanColor()

    def to_tensor(image: Any) -> Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255

    timm.create_model = create_model  # type: ignore[attr-defined]
    data.resolve_model_data_config = lambda module: {}  # type: ignore[attr-defined]
    data.create_transform = lambda is_training: to_tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    monkeypatch.setattr(hub, "version", lambda package: f"{package} 0")
    library("PIL")
    return asked


def test_timm_is_asked_for_features(fake_timm: list[tuple[Any, ...]], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for model in ("vit_base_patch14_dinov2", "resnet10t@/w.safetensors", f"{tmp_path}/folder"):
        assert embed(images(), f"timm:{model}", cache=tmp_path / "cache").shape == (5, 3)
    plain = {"pretrained": True, "num_classes": 0}
    from_file = {**plain, "pretrained_cfg_overlay": {"file": "/w.safetensors"}}
    assert fake_timm == [
        ("vit_base_patch14_dinov2", plain),
        ("resnet10t", from_file),
        (f"local-dir:{tmp_path}/folder", plain),
    ]
