"""Tiny encoders of real libraries, with random weights, and items for them."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

TEXTS = ["a cat", "the dog barks at a cat", "a", "the dog"]


def library(name: str) -> Any:
    """A package, or a skip that says why it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported: {error}")


def images(n_samples: int = 5, size: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n_samples, size, size, 3), np.uint8)


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


class MeanOfWords(nn.Module):
    """Tokens from a table, padding and all, as an encoder in an ONNX file has them."""

    def __init__(self, n_words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, 8)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        rows: Tensor = self.words(input_ids) * (1 + 0 * attention_mask.unsqueeze(-1))
        return rows


def tiny_onnx(folder: Path) -> tuple[Path, nn.Module]:
    """A text model with its tokenizer."""
    tokenizer = tiny_bert(folder) / "tokenizer.json"
    assert tokenizer.exists()
    (folder / "model.safetensors").unlink()  # else it would be a model of transformers
    torch.manual_seed(0)
    module = MeanOfWords(11).eval()
    example = torch.ones(2, 3, dtype=torch.int64)
    names = ["input_ids", "attention_mask"]
    axes = {name: {0: "rows", 1: "tokens"} for name in (*names, "last_hidden_state")}
    export_onnx(module, (example, example), folder / "model.onnx", names, "last_hidden_state", axes)
    return folder, module


def export_onnx(
    module: nn.Module, example: Any, path: Path, names: list[str], output: str, axes: Any
) -> None:
    import warnings

    library("onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            module,
            example,
            str(path),
            input_names=names,
            output_names=[output],
            dynamic_axes=axes,
            dynamo=False,
        )
