"""Tiny encoders of real libraries, with random weights, and items for them."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
