"""ONNX files, exported here with random weights and run by ONNX Runtime."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from encoder_samples import TEXTS, export_onnx, images, library, tiny_bert, tiny_onnx
from prcut.errors import InvalidInputError
from prcut.pipeline.embedding import embed
from prcut.pipeline.encoders.onnx_model import _pool, find_onnx

pytest.importorskip("onnxruntime", reason="needs onnxruntime")


def test_texts_are_mean_tokens_without_padding(tmp_path: Path) -> None:
    path, module = tiny_onnx(tmp_path / "model")
    rows = embed(TEXTS, str(path), cache=tmp_path / "cache")
    tokenizer = library("transformers").AutoTokenizer.from_pretrained(path)
    for row, text in zip(rows, TEXTS, strict=True):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.inference_mode():
            expected = module(ids, torch.ones_like(ids))[0].mean(0)
        np.testing.assert_allclose(row, expected, atol=2e-3)


class MeanColor(nn.Module):
    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.mean((2, 3))


def test_images_are_prepared_as_stated(tmp_path: Path) -> None:
    library("PIL")
    file, axes = tmp_path / "model.onnx", {"pixels": {0: "rows"}}
    export_onnx(MeanColor(), (torch.rand(1, 3, 8, 8),), file, ["pixels"], "rows", axes)
    given = images(3, 8)
    plain = embed(given, str(file), cache=tmp_path / "cache")
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(plain, (given.mean((1, 2)) / 255 - mean) / std, atol=2e-3)
    stated = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated))
    other = embed(given, str(file), cache=tmp_path / "cache")
    np.testing.assert_allclose(other, given.mean((1, 2)) / 127.5 - 1, atol=2e-3)


def test_outputs_are_pooled_by_their_shape() -> None:
    flat, tokens, planes = torch.rand(2, 5), torch.rand(2, 3, 5), torch.rand(2, 5, 4, 4)
    assert _pool(flat, None) is flat
    torch.testing.assert_close(_pool(tokens, None), tokens[:, 0])
    torch.testing.assert_close(_pool(tokens, torch.ones(2, 3)), tokens.mean(1))
    torch.testing.assert_close(_pool(planes, None), planes.mean((2, 3)))


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no protobuf")
    with pytest.raises(InvalidInputError, match=r"model\.onnx is not a model of ONNX Runtime"):
        embed(TEXTS, str(tmp_path), cache=tmp_path / "cache")
    with pytest.raises(InvalidInputError, match=r"holds no model\.onnx"):
        embed(TEXTS, f"onnx:{tiny_bert(tmp_path / 'bert')}", cache=tmp_path / "cache")
    assert find_onnx(tmp_path / "model.txt") is None


def test_text_model_without_tokenizer_is_refused(tmp_path: Path) -> None:
    path, _ = tiny_onnx(tmp_path / "model")
    (path / "tokenizer.json").unlink()
    with pytest.raises(InvalidInputError, match=r"has no tokenizer\.json beside it"):
        embed(TEXTS, str(path), cache=tmp_path / "cache")
