"""Embedding: chunks, cache and manifest, with an encoder that counts what it is given."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from encoder_samples import images
from prcut.errors import PRCutError
from prcut.pipeline import embedding
from prcut.pipeline.embedding import embed
from prcut.pipeline.encoders.base import Encoder
from prcut.pipeline.encoders.load import LOADERS
from prcut.runtime.progress import Progress


class Counting(nn.Module):
    """Mean colour times a weight; or the length of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.seen: list[int] = []
        self.dies_after = 10**9

    def forward(self, batch: Any) -> Tensor:
        if sum(self.seen) >= self.dies_after:
            raise KeyboardInterrupt
        self.seen.append(len(batch))
        if isinstance(batch, list):
            return torch.tensor([len(text) for text in batch])[:, None] * self.weight
        return torch.from_numpy(batch).float().mean((1, 2)) * self.weight


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    module = Counting()

    def load(model: str, device: torch.device, kind: str) -> Encoder:
        del model, device, kind
        return Encoder(module, module, "counting 1", "none")

    monkeypatch.setitem(LOADERS, "counting", (("images", "texts"), load))
    monkeypatch.setattr(embedding, "_CHUNK_ROWS", 4)
    return module


def test_rows_are_half_precision_mapped_and_described(tmp_path: Path, counting: Counting) -> None:
    given = images(10)
    rows = embed(given, "counting:a/b", batch_size=3, cache=tmp_path)
    assert isinstance(rows, np.memmap)
    assert rows.dtype == np.float16
    expected = given.mean((1, 2)) * [1, 2, 3]
    np.testing.assert_allclose(rows, expected, rtol=1e-3)
    assert counting.seen == [3, 1, 3, 1, 2]
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("counting-a-b-")
    assert sorted(f.name for f in folder.iterdir()) == [
        "embeddings.npy",
        "manifest.json",
        "plan.json",
    ]
    plan = json.loads((folder / "manifest.json").read_text())["plan"]
    assert plan["encoder"] == "counting:a/b"
    assert plan["library"] == "counting 1"
    assert plan["n_samples"] == 10
    assert len(plan["weights"]) == len(plan["items"]) == 64
    np.testing.assert_array_equal(np.load(folder / "embeddings.npy"), rows)


def test_other_weights_items_or_encoders_are_computed_anew(
    tmp_path: Path, counting: Counting
) -> None:
    embed(images(), "counting:x", cache=tmp_path)
    embed(images(seed=1), "counting:x", cache=tmp_path)
    embed(images(), "counting:y", cache=tmp_path)
    with torch.no_grad():
        counting.weight[0] = 7
    changed = embed(images(), "counting:x", cache=tmp_path)
    np.testing.assert_allclose(changed[:, 0], images().mean((1, 2))[:, 0] * 7, rtol=1e-3)
    assert len(list(tmp_path.iterdir())) == 4


def test_interrupted_run_is_resumed(tmp_path: Path, counting: Counting) -> None:
    given = images(11)
    counting.dies_after = 6
    with pytest.raises(KeyboardInterrupt):
        embed(given, "counting:x", batch_size=2, cache=tmp_path)
    counting.seen, counting.dies_after = [], 10**9
    seen: list[Progress] = []
    rows = embed(given, "counting:x", batch_size=2, cache=tmp_path, on_progress=seen.append)
    assert sum(counting.seen) == 7  # the first chunk of 4 was sealed
    np.testing.assert_allclose(rows, given.mean((1, 2)) * [1, 2, 3], rtol=1e-3)
    assert [p.done for p in seen] == [4, 6, 8, 10, 11]
    assert {(p.stage, p.total) for p in seen} == {("embed", 11)}


def test_overflow_is_refused_by_row(tmp_path: Path, counting: Counting) -> None:
    with torch.no_grad():
        counting.weight[1] = 1e4
    given = np.zeros((6, 2, 2, 3), np.uint8)
    given[5] = 200
    with pytest.raises(PRCutError, match=r"1 of the items 4\.\.5, the first is item 5"):
        embed(given, "counting:x", cache=tmp_path)
