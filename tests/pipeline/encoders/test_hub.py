"""Encoders of other libraries, with tiny random weights."""

from pathlib import Path

import numpy as np
import pytest
import torch

from encoder_samples import TEXTS, library, tiny_bert
from prcut.pipeline.embedding import embed


@pytest.mark.costly("imports transformers")
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
