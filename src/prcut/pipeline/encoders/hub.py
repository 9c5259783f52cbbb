"""Encoders of transformers and sentence-transformers: a name, or local files."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from prcut.pipeline.encoders.base import (
    Encoder,
    mean_token,
    pillow_images,
    require,
    version,
)


def load_transformers(model: str, device: torch.device, kind: str) -> Encoder:
    """Load a model of transformers: first token of images, mean token of texts."""
    transformers = require("transformers", "transformers")
    module = transformers.AutoModel.from_pretrained(model).eval().to(device)
    is_image = kind == "images"
    preparer = transformers.AutoImageProcessor if is_image else transformers.AutoTokenizer
    prepare = preparer.from_pretrained(model)
    # a tokenizer without a limit has a huge one
    limit = getattr(module.config, "max_position_embeddings", None)
    most = min(limit or 512, getattr(prepare, "model_max_length", 512))

    def encode(items: Any) -> Tensor:
        if is_image:
            inputs = prepare(images=pillow_images(items), return_tensors="pt")
            return _pooled_image(module, inputs.to(device))
        cut = {"padding": True, "truncation": True, "max_length": most}
        inputs = prepare(items, **cut, return_tensors="pt").to(device)
        return mean_token(module(**inputs).last_hidden_state, inputs["attention_mask"])

    return Encoder(module, encode, version("transformers"), type(prepare).__name__)


def _pooled_image(module: Any, inputs: Any) -> Tensor:
    """Return the token for the whole image where the model has one, else its pooled output."""
    rows: Tensor
    if hasattr(module, "get_image_features"):
        found = module.get_image_features(**inputs)
        # a tensor, or an output that holds it since version 5
        rows = found if isinstance(found, Tensor) else found.pooler_output
        return rows
    output = module(**inputs)
    has_token = any(name.endswith("cls_token") for name, _ in module.named_parameters())
    rows = output.last_hidden_state[:, 0] if has_token else output.pooler_output.flatten(1)
    return rows


def load_sentence_transformers(model: str, device: torch.device, _: str) -> Encoder:
    """Load a model of sentence-transformers, with the pooling that it states."""
    library = require("sentence_transformers", "sentence-transformers")
    module = library.SentenceTransformer(model, device=str(device)).eval()

    def encode(texts: list[str]) -> Tensor:
        rows: Tensor = module.encode(
            texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
        )
        return rows

    layers = ", ".join(type(layer).__name__ for layer in module)
    return Encoder(module, encode, version("sentence-transformers"), layers)
