"""Texts and images of files: the same rows from every format, in constant chunks."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prcut.errors import InvalidInputError
from prcut.runtime.items import Items

image = pytest.importorskip("PIL.Image")


def write(folder: Path, ending: str, texts: list[str], ids: list[Any]) -> Path:
    path = folder / f"data{ending}"
    rows = [{"id": key, "body": text, "z": [key]} for key, text in zip(ids, texts, strict=True)]
    if ending == ".parquet":
        pq.write_table(pa.table({"id": ids, "body": pa.array(texts, pa.string())}), path)
    elif ending.startswith((".csv", ".tsv")):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="\t" if ending == ".tsv" else ",")
            writer.writerow(["id", "z", "body"])
            writer.writerows([row["id"], "q", row["body"]] for row in rows)
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    return path


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")), min_size=1),
    ending=st.sampled_from([".parquet", ".csv", ".tsv", ".jsonl", ".jsonl.gz"]),
    chunk_rows=st.integers(1, 5),
)
def test_any_text_comes_back(
    tmp_path: Path, texts: list[str], ending: str, chunk_rows: int
) -> None:
    path = write(tmp_path, ending, texts, [*range(len(texts))])
    items = Items(path, text_column="body", id_column="id", keep=["body"])
    chunks = [*items.read(0, chunk_rows)]
    assert [text for _, found in chunks for text in found] == texts
    kept = pa.Table.from_batches([one for one, _ in chunks])
    assert kept["id"].to_pylist() == [*range(len(texts))]
    assert kept["body"].to_pylist() == texts
    assert max(len(one) for one, _ in chunks) <= chunk_rows


def test_rows_are_counted_through_the_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).write_text(f"body\n{name}1\n{name}2\n")
    (tmp_path / "_log.csv").write_text("not data")
    items = Items(tmp_path, text_column="body")
    assert [tuple(file) for file in items.files] == [("a.csv", 0, 2), ("b.csv", 2, 4)]
    ((first, _),), ((second, texts),) = items.read(0, 9), items.read(1, 9)
    assert [*first["row"].to_pylist(), *second["row"].to_pylist()] == [0, 1, 2, 3]
    assert texts == ["b.csv1", "b.csv2"]


def test_images_of_a_column_are_paths_beside_the_file(tmp_path: Path) -> None:
    image.fromarray(np.full((4, 3, 3), 7, np.uint8)).save(tmp_path / "a.png")
    pq.write_table(pa.table({"image": ["a.png", "/dev/zero"]}), tmp_path / "a.parquet")
    items = Items(tmp_path / "a.parquet", image_column="image")
    ((_, (found, other)),) = items.read(0, 3)
    assert (items.load(found) == np.full((4, 3, 3), 7)).all()
    with pytest.raises(InvalidInputError, match="is not a file"):
        items.load(other)


def test_broken_lines_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "a"}\n{"body": ')
    with pytest.raises(InvalidInputError, match=r"line 2 of .*a.jsonl is not JSON"):
        list(Items(tmp_path / "a.jsonl", text_column="body").read(0, 3))
