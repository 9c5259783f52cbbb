"""Embedding lists and files: order, resuming, and what is refused."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from killed import contents, kill_after, needs_fork
from prcut.curate import embed as embedding
from prcut.curate.embed import embed, embed_file
from prcut.errors import InvalidInputError, PRCutError
from prcut.runtime.folder import Folder


class Counting:
    """The length of a text, or the mean colour of an image, times a weight."""

    def __init__(self) -> None:
        self.weight = 1.0
        self.seen: list[int] = []

    def __call__(self, batch: list[Any]) -> np.ndarray:
        self.seen.append(len(batch))
        sizes = [len(one) if isinstance(one, str) else float(one.mean()) for one in batch]
        return np.array([[size * self.weight, 1.0] for size in sizes])


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """An encoder by the name ``counting:…``, and chunks of four rows."""
    module = Counting()
    load = (("images", "texts"), lambda *_: module)
    monkeypatch.setitem(embedding.LOADERS, "counting", load)
    monkeypatch.setattr(embedding, "_CHUNK_ROWS", 4)
    return module


TEXTS = ["abc", "", "ab", "a" * 7, "abcd"]


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        np.array,
        pd.Series,
        pl.Series,
        pa.array,
        lambda texts: pl.DataFrame({"t": texts}),
    ],
)
def test_texts_of_any_container_keep_their_order(make: Callable[[list[str]], Any]) -> None:
    given = make(TEXTS)
    rows = embed(given, Counting(), column="t" if hasattr(given, "columns") else None, batch_size=2)
    assert rows.dtype == np.float16
    assert rows.tolist() == [[len(text), 1] for text in TEXTS]


def test_images_may_have_several_sizes_and_be_encoded() -> None:
    image = pytest.importorskip("PIL.Image")
    content = io.BytesIO()
    image.fromarray(np.full((4, 3, 3), 7, np.uint8)).save(content, "PNG")
    stack = np.full((2, 5, 5), 3, np.uint8)
    assert embed(stack, Counting())[:, 0].tolist() == [3, 3]
    assert embed([stack[0], content.getvalue()], Counting())[:, 0].tolist() == [3, 7]


def test_overflow_is_refused_by_row(counting: Counting) -> None:
    counting.weight = 1e4
    with pytest.raises(PRCutError, match=r"1 of the items 4\.\.5, the first is item 5"):
        embed(["a"] * 5 + ["a" * 9], "counting:x")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "items must be"),
        (["a", None], "item 1 is a NoneType, expected a text"),
        (np.zeros((2, 4, 4)), "item 0 is a ndarray, expected a uint8 image"),
        ("nowhere.parquet", "cannot be read"),
    ],
)
def test_what_is_no_text_or_image_is_named(items: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        embed(items, Counting())
    with pytest.raises(InvalidInputError, match="gave shape"):
        embed(["a", "b"], lambda texts: [1.0, 2.0])


# -- files -----------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three files of texts, the second without rows."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number, (start, stop) in enumerate([(0, 50), (50, 50), (50, 90)]):
        texts = pa.array(["x" * (row * row % 89) for row in range(start, stop)], pa.string())
        ids = pa.array([f"<b>{row}" for row in range(start, stop)], pa.string())
        table = pa.table({"key": ids, "body": texts})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=11)
    return folder


@pytest.mark.usefixtures("counting")
def test_a_file_gets_the_columns_of_the_data_and_their_vectors(data: Path, tmp_path: Path) -> None:
    made = embed_file(data, "counting:x", tmp_path / "out.parquet", column="body")
    assert (made.n_samples, made.n_features) == (90, 2)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.schema.names == ["key", "body", "vector"]
    assert table.schema.field("vector").type == pa.list_(pa.float16(), 2)
    assert table["key"].to_pylist() == [f"<b>{row}" for row in range(90)]
    rows = np.stack(table["vector"].to_numpy())
    assert rows[:, 0].tolist() == [row * row % 89 for row in range(90)]
    embed_file(data, "counting:x", tmp_path / "out.npy", column="body")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), rows)
    np.testing.assert_array_equal(embed(str(data), "counting:x", column="body"), rows)
    (tmp_path / "lines.txt").write_text("a\nbcd\n")
    assert embed(tmp_path / "lines.txt", "counting:x")[:, 0].tolist() == [1, 3]
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.npy", "out.parquet"]


def test_a_finished_file_is_kept_and_another_is_not_replaced(
    data: Path, tmp_path: Path, counting: Counting
) -> None:
    out = tmp_path / "out.parquet"
    made = embed_file(data, "counting:x", out, column="body")
    counting.seen.clear()
    assert embed_file(data, "counting:x", out, column="body") == made
    assert not counting.seen
    # a chunk that was damaged, or is that of another model, is encoded again
    kept = Folder(tmp_path / "more.parquet.chunks")
    kept.seal("000000.json", {"000000.npy": np.zeros((4, 2), np.float16)}, {"key": "another"})
    embed_file(data, "counting:x", tmp_path / "more.parquet", column="body")
    assert pq.read_table(tmp_path / "more.parquet").equals(pq.read_table(out))
    (tmp_path / "local").mkdir()
    for weights in ("one", "two"):
        (tmp_path / "local/model.safetensors").write_text(weights)
        local = partial(embed_file, data, f"counting:{tmp_path}/local", tmp_path / "own.parquet")
        if weights == "one":
            local(column="body")
    with pytest.raises(InvalidInputError, match="is not from this model"):
        local(column="body")
    with pytest.raises(InvalidInputError, match="is not from this model"):
        embed_file(data, "counting:y", out, column="body")
    with pytest.raises(InvalidInputError, match=r"must be a column of .*key, body"):
        embed_file(data, "counting:y", out, column="text")


@needs_fork
@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("n_files", [5, 30])
def test_killed_and_resumed_gives_the_same_bytes(data: Path, tmp_path: Path, n_files: int) -> None:
    whole, killed = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    embed_file(data, "counting:x", whole, column="body")
    kill_after(n_files, lambda: embed_file(data, "counting:x", killed, column="body"))
    assert not killed.exists()
    embed_file(data, "counting:x", killed, column="body")
    assert [*contents(killed).values()] == [*contents(whole).values()]
