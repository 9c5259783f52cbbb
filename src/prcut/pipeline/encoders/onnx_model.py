"""Encoders in ONNX files, run by ONNX Runtime.

A text model stands beside its ``tokenizer.json``, and an image model may stand beside its
``preprocessor_config.json``, as models of the Hugging Face Hub do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prcut.errors import InvalidInputError
from prcut.pipeline.encoders.base import (
    Encoder,
    Images,
    mean_token,
    require,
    resize,
    to_planes,
    version,
)

# of ImageNet, with which most image models are trained
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MAX_TOKENS = 512


def find_onnx(path: Path) -> Path | None:
    """Return the ONNX file at a path, or in a folder as the Hub's models have it."""
    if path.is_file():
        return path if path.suffix == ".onnx" else None
    return next((p for p in (path / "model.onnx", path / "onnx/model.onnx") if p.exists()), None)


def load_onnx(model: str, device: torch.device, kind: str) -> Encoder:
    """Load an ONNX file, or the one in a folder.

    Of its outputs, ``sentence_embedding`` or the first is used: rows as they are, the mean token of
    texts, the first token or the mean of the feature map of images.
    """
    if (path := find_onnx(Path(model))) is None:
        raise InvalidInputError(f"{model} holds no model.onnx; give the path of an .onnx file.")
    session = _open_session(path, device)
    prepare, preparation = (_prepare_texts if kind == "texts" else _prepare_images)(session, path)
    names = [one.name for one in session.get_outputs()]
    wanted = "sentence_embedding" if "sentence_embedding" in names else names[0]

    def encode(items: Any) -> Tensor:
        inputs, mask = prepare(items)
        return _pool(torch.from_numpy(session.run([wanted], inputs)[0]), mask)

    # the weights are in no module, so that the file stands for them
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Encoder(nn.Module(), encode, version("onnxruntime"), f"{preparation}, {digest}")


def _open_session(path: Path, device: torch.device) -> Any:
    runtime = require("onnxruntime", "onnxruntime")
    wanted = {"cuda": "CUDAExecutionProvider", "mps": "CoreMLExecutionProvider"}.get(device.type)
    providers = [one for one in (wanted,) if one in runtime.get_available_providers()]
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    # it would keep what the largest batch needed
    options.enable_cpu_mem_arena = False
    try:
        providers += ["CPUExecutionProvider"]
        return runtime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # its own kinds, of no common class
        raise InvalidInputError(f"{path} is not a model of ONNX Runtime: {error}") from error


_Prepare = Callable[[Any], tuple[dict[str, np.ndarray], Tensor | None]]


def _prepare_texts(session: Any, path: Path) -> tuple[_Prepare, str]:
    """Return what makes a model's inputs of texts, and its description."""
    folders = path.parent, path.parent.parent
    file = next((f / "tokenizer.json" for f in folders if (f / "tokenizer.json").exists()), None)
    if file is None:
        raise InvalidInputError(f"{path} has no tokenizer.json beside it; put it there.")
    tokenizer = require("tokenizers", "tokenizers").Tokenizer.from_file(str(file))
    limit = (tokenizer.truncation or {}).get("max_length", _MAX_TOKENS)
    tokenizer.enable_truncation(limit)
    padding = tokenizer.padding or {}
    # to the longest of a batch, whatever the file says
    tokenizer.enable_padding(**{**padding, "length": None})
    names = [one.name for one in session.get_inputs()]

    def prepare(texts: list[str]) -> tuple[dict[str, np.ndarray], Tensor | None]:
        encoded = tokenizer.encode_batch(texts)
        found = {
            "input_ids": np.array([one.ids for one in encoded], np.int64),
            "attention_mask": np.array([one.attention_mask for one in encoded], np.int64),
            "token_type_ids": np.array([one.type_ids for one in encoded], np.int64),
        }
        mask = torch.from_numpy(found["attention_mask"])
        return {name: found[name] for name in names}, mask

    return prepare, f"{limit} tokens, {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _prepare_images(session: Any, path: Path) -> tuple[_Prepare, str]:
    """Return what makes a model's input of images, and its description."""
    (one, *_) = session.get_inputs()
    shape, beside = one.shape, path.parent / "preprocessor_config.json"
    stated = json.loads(beside.read_text("utf-8")) if beside.exists() else {}
    size = stated.get("size", {})
    side = size if isinstance(size, int) else size.get("height") or size.get("shortest_edge")
    side = side or shape[-1]
    if not isinstance(side, int) or len(shape) != 4:
        raise InvalidInputError(
            f"{path} takes an input of shape {shape}, expected planes (n, 3, height, width) of a "
            "fixed size, or the size in preprocessor_config.json beside it."
        )
    colors = stated.get("image_mean", _MEAN), stated.get("image_std", _STD)
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in colors)

    def prepare(images: Images) -> tuple[dict[str, np.ndarray], Tensor | None]:
        planes = to_planes(resize(images, side), torch.device("cpu")) / 255
        return {one.name: ((planes - mean) / std).numpy()}, None

    return prepare, f"{side} bicubic, {colors}"


def _pool(rows: Tensor, mask: Tensor | None) -> Tensor:
    if rows.ndim == 3:
        return rows[:, 0] if mask is None else mean_token(rows, mask)
    return rows.mean((2, 3)) if rows.ndim == 4 else rows
