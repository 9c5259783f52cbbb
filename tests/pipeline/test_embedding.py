"""Embedding: chunks, cache and manifest, with an encoder that counts what it is given."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from prcut.errors import InvalidInputError, PRCutError
from prcut.pipeline import embedding
from prcut.pipeline.embedding import embed
from prcut.pipeline.encoders.base import Encoder
from prcut.pipeline.encoders.load import LOADERS
from prcut.runtime.progress import Progress

TEXTS = ["a cat", "the dog barks at a cat", "a", "the dog"]


def images(n_samples: int = 5, size: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n_samples, size, size, 3), np.uint8)


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


def test_default_cache(tmp_path: Path, counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path))
    embed(TEXTS, "counting:x")
    assert len(list((tmp_path / "embeddings").iterdir())) == 1
    assert counting.seen == [4]


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


def test_texts_that_run_together_are_distinguished() -> None:
    prints = [embedding._fingerprint_items(t) for t in (["ab", "c"], ["a", "bc"], ["abc"])]
    assert len(set(prints)) == 3
    flat = images(2, 4)
    assert embedding._fingerprint_items(flat) != embedding._fingerprint_items(
        flat.reshape(2, 2, 8, 3)
    )


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


@pytest.mark.parametrize("file", ["embeddings.npy", "manifest.json"])
def test_damaged_result_is_made_anew(tmp_path: Path, counting: Counting, file: str) -> None:
    rows = np.array(embed(images(), "counting:x", cache=tmp_path))
    (damaged,) = tmp_path.glob(f"*/{file}")
    damaged.write_bytes(damaged.read_bytes()[:-2])
    counting.seen.clear()
    np.testing.assert_array_equal(embed(images(), "counting:x", cache=tmp_path), rows)
    assert sum(counting.seen) == 5


def test_overflow_is_refused_by_row(tmp_path: Path, counting: Counting) -> None:
    with torch.no_grad():
        counting.weight[1] = 1e4
    given = np.zeros((6, 2, 2, 3), np.uint8)
    given[5] = 200
    with pytest.raises(PRCutError, match=r"1 of the items 4\.\.5, the first is item 5"):
        embed(given, "counting:x", cache=tmp_path)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (np.zeros((2, 3)), r"shape \(2, 3\) and dtype float64, expected uint8 images"),
        (["a", 3], "item 1 is a int, expected a text"),
        ([], "items are empty"),
    ],
)
def test_items_that_are_none_are_refused(items: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        embed(items, "minilm")


def test_wrong_kind_batch_size_and_device_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'minilm' takes texts, the items are images"):
        embed(images(), "minilm")
    with pytest.raises(InvalidInputError, match="batch_size=0 must be >= 1"):
        embed(TEXTS, "minilm", batch_size=0)
    with pytest.raises(InvalidInputError, match="device='tpu9' cannot be used"):
        embed(TEXTS, "minilm", device="tpu9")


def test_images_of_several_sizes_in_a_list(tmp_path: Path, counting: Counting) -> None:
    counting.forward = lambda batch: torch.tensor([[float(len(one))] for one in batch])  # type: ignore[method-assign]
    given = [np.zeros((size, 3, 3), np.uint8) for size in (4, 2, 7, 5, 1)]
    rows = embed(given, "counting:x", cache=tmp_path, batch_size=2)
    assert rows[:, 0].tolist() == [4, 2, 7, 5, 1]
    with pytest.raises(InvalidInputError, match="item 1 is no uint8 array"):
        embed([given[0], "text"], "counting:x", cache=tmp_path)


def test_batch_is_halved_where_memory_is_short(tmp_path: Path, counting: Counting) -> None:
    encode = counting.forward

    def short(batch: Any) -> Tensor:
        if len(batch) > 2:
            raise torch.cuda.OutOfMemoryError("no room")
        return encode(batch)

    counting.forward = short  # type: ignore[method-assign]
    rows = embed(TEXTS, "counting:x", cache=tmp_path)
    assert rows[:, 0].tolist() == [len(text) for text in TEXTS]
    assert counting.seen == [2, 2]
