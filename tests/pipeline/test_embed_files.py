"""Vectors of files: ids kept, the same bytes after SIGKILL, and what is refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from killed import contents, kill_after, needs_fork
from prcut.errors import InvalidInputError
from prcut.pipeline import embed_files as library
from prcut.pipeline.embed_files import embed_files
from prcut.pipeline.encoders.base import Encoder
from prcut.pipeline.encoders.load import LOADERS
from prcut.runtime.progress import Progress
from prcut.runtime.sources import open_source, read_all

CHUNK_ROWS = 16


def encode(items: Any) -> Tensor:
    """The length of a text, or the mean colour of an image, and 1."""
    sizes = [len(one) if isinstance(one, str) else float(one.mean()) for one in items]
    return torch.tensor([[size, 1.0, -size] for size in sizes])


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``sizes:x`` an encoder, and chunks short."""
    encoder = Encoder(nn.Module(), encode, "s 1", "")
    monkeypatch.setitem(LOADERS, "sizes", (("texts", "images"), lambda *_: encoder))
    for kind in ("texts", "images"):
        monkeypatch.setitem(library._CHUNK_ROWS, kind, CHUNK_ROWS)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three files of texts, the second without rows."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number, (start, stop) in enumerate([(0, 50), (50, 50), (50, 90)]):
        texts = pa.array(["x" * (row % 7) for row in range(start, stop)], pa.string())
        ids = pa.array([f"<b>{row}" for row in range(start, stop)], pa.string())
        table = pa.table({"key": ids, "body": texts, "other": pa.array(range(start, stop))})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=11)
    return folder


def test_vectors_have_the_ids_of_their_texts(data: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    out = tmp_path / "out"
    how = {"text_column": "body", "id_column": "key", "batch_size": 5}
    made = embed_files(data, "sizes:x", out, keep=["other"], on_progress=seen.append, **how)  # type: ignore[arg-type]
    assert made == (str(out), "key", 90, 3, 3, 1)  # the empty one is done before it begins
    assert sorted(path.name for path in out.glob("*.parquet")) == [
        "part-00000.parquet",
        "part-00002.parquet",
    ]
    table = pa.concat_tables(map(pq.read_table, sorted(out.glob("*.parquet"))))
    assert table.schema.names == ["key", "other", "vector"]
    assert table.schema.field("vector").type == pa.list_(pa.float16(), 3)
    assert table["key"].to_pylist() == [f"<b>{row}" for row in range(90)]
    assert table["other"].to_pylist() == [*range(90)]
    source = open_source(out, id_column="key")
    assert read_all(source)[:, 0].tolist() == [row % 7 for row in range(90)]
    assert (seen[-1].stage, seen[-1].done, seen[-1].total) == ("embed", 90, 90)
    assert not [*(out / "_prcut").glob("chunk-*")]


def test_a_second_call_encodes_nothing_and_refuses_what_has_changed(
    data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    embed_files(data, "sizes:x", out, text_column="body")
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    again = embed_files(data, "sizes:x", out, text_column="body")
    assert again.n_kept == again.n_files == 3
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    with pytest.raises(InvalidInputError, match="was begun with another model;"):
        embed_files(data, "sizes:y", out, text_column="body")
    pq.write_table(pa.table({"body": ["new"]}), data / "1.parquet")
    with pytest.raises(InvalidInputError, match="was begun with another fingerprint;"):
        embed_files(data, "sizes:x", out, text_column="body")
    with pytest.raises(InvalidInputError, match="holds other files"):
        embed_files(data, "sizes:x", data, text_column="body")


@needs_fork
@pytest.mark.parametrize("n_files", [5, 10])  # in the midst of the chunks, and of their join
def test_killed_and_resumed_gives_the_same_bytes(data: Path, tmp_path: Path, n_files: int) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    how: Any = {"text_column": "body", "id_column": "key"}
    embed_files(data, "sizes:x", whole, **how)
    kill_after(n_files, lambda: embed_files(data, "sizes:x", killed, **how))
    assert contents(killed) != contents(whole)
    embed_files(data, "sizes:x", killed, **how)
    assert contents(killed) == contents(whole)
