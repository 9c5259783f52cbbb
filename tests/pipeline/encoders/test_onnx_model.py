"""ONNX files, exported here with random weights and run by ONNX Runtime."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from encoder_samples import images, library
from prcut.errors import InvalidInputError
from prcut.pipeline.embedding import embed

pytest.importorskip("onnxruntime", reason="needs onnxruntime")


class MeanColor(nn.Module):
    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.mean((2, 3))


def test_images_are_prepared_as_stated(tmp_path: Path) -> None:
    library("PIL")
    library("onnx")
    file = tmp_path / "model.onnx"
    named: dict[str, Any] = {"input_names": ["pixels"], "output_names": ["rows"]}
    named |= {"dynamic_axes": {"pixels": {0: "rows"}}, "dynamo": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(MeanColor(), (torch.rand(1, 3, 8, 8),), str(file), **named)
    given = images(3, 8)
    plain = embed(given, str(file), cache=tmp_path / "cache")
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(plain, (given.mean((1, 2)) / 255 - mean) / std, atol=2e-3)
    stated = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated))
    other = embed(given, str(file), cache=tmp_path / "cache")
    np.testing.assert_allclose(other, given.mean((1, 2)) / 127.5 - 1, atol=2e-3)


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no protobuf")
    with pytest.raises(InvalidInputError, match=r"model\.onnx is not a model of ONNX Runtime"):
        embed(["a text"], str(tmp_path), cache=tmp_path / "cache")
