"""Texts and images of files: the same rows from every format, in constant chunks."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.runtime.items import Items, decode_image

Image = pytest.importorskip("PIL.Image")

TEXTS = ["plain", 'with "quotes", commas', "two\nlines", "", "ünï ☃", "=cmd|' /C calc'!A0", "NA"]


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


def read(items: Items, chunk_rows: int = 3) -> tuple[pa.Table, list[Any]]:
    chunks = [
        chunk for number in range(len(items.files)) for chunk in items.read(number, chunk_rows)
    ]
    return pa.Table.from_batches([kept for kept, _ in chunks]), [
        item for _, found in chunks for item in found
    ]


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".tsv", ".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize("ids", [[*range(7)], [f"k{n}" for n in range(7)]])
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str, ids: list[Any]) -> None:
    path = write(tmp_path, ending, TEXTS, ids)
    items = Items(path, text_column="body", id_column="id", keep=["body"])
    assert (items.kind, items.n_samples, items.id_column) == ("texts", 7, "id")
    kept, texts = read(items)
    assert texts == TEXTS
    assert kept["id"].to_pylist() == ids
    assert kept["body"].to_pylist() == TEXTS
    assert [len(chunk) for chunk, _ in items.read(0, 3)] == [3, 3, 1]


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
    kept, found = read(Items(path, text_column="body"), chunk_rows)
    assert found == texts
    assert kept["row"].to_pylist() == [*range(len(texts))]


def test_rows_are_counted_through_the_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).write_text(f"body\n{name}1\n{name}2\n")
    (tmp_path / "_log.csv").write_text("not data")
    items = Items(tmp_path, text_column="body")
    assert [tuple(file) for file in items.files] == [("a.csv", 0, 2), ("b.csv", 2, 4)]
    kept, texts = read(items)
    assert kept["row"].to_pylist() == [0, 1, 2, 3]
    assert texts == ["a.csv1", "a.csv2", "b.csv1", "b.csv2"]


def test_a_text_per_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("first\r\n\nünï\u2028still\n".encode())
    _, texts = read(Items(tmp_path / "a.txt"))
    assert texts == ["first", "", "ünï\u2028still"]


def png(value: int = 0, size: int = 4) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((size, 3, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("form", ["bytes", "path", "absolute", "hub"])
def test_images_of_a_column(tmp_path: Path, form: str) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.png").write_bytes(png(7))
    values = {
        "bytes": [png(7)],
        "path": ["photos/a.png"],
        "absolute": [str(tmp_path / "photos/a.png")],
        "hub": [{"bytes": png(7), "path": None}],
    }
    pq.write_table(pa.table({"image": values[form]}), tmp_path / "a.parquet")
    items = Items(tmp_path / "a.parquet", image_column="image")
    _, found = read(items)
    image = items.load(found[0])
    assert image.shape == (4, 3, 3)
    assert (image == 7).all()


def test_images_of_an_array(tmp_path: Path) -> None:
    given = np.random.default_rng(0).integers(0, 256, (5, 4, 4), np.uint8)
    np.save(tmp_path / "a.npy", given)
    items = Items(tmp_path / "a.npy")
    kept, found = read(items, 2)
    assert items.kind == "images"
    assert kept["row"].to_pylist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal([items.load(one) for one in found], given)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"body": "a"}\n{"body": ', r"line 2 of .*a.jsonl is not JSON"),
        ('{"body": "a"}\n[1]\n', r"line 2 of .* is a list, expected an object"),
        ('{"body": "a"}\n{"text": "b"}\n', r"line 2 of .* has no column 'body'; it has text"),
        ('{"body": "a"}\n\n{"body": null}\n', "column 'body' of a.jsonl is empty in row 1"),
        ('{"body": "\\ud800"}\n', "a.jsonl cannot be read"),
        ("\n\n", "holds no rows"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(InvalidInputError, match=message):
        read(Items(tmp_path / "a.jsonl", text_column="body"))


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    names = ["missing.png", "/dev/zero", "text.png"]
    (tmp_path / "text.png").write_text("no image")
    pq.write_table(pa.table({"image": names}), tmp_path / "a.parquet")
    items = Items(tmp_path / "a.parquet", image_column="image")
    _, found = read(items)
    for item, message in zip(found, ["is not a file", "is not a file", "not an enc"], strict=True):
        with pytest.raises(InvalidInputError, match=message):
            items.load(item)
    with pytest.raises(InvalidInputError, match="a row of images is not an encoded image"):
        decode_image(None)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.csv", {}, "has columns; name that of the texts"),
        ("a.csv", {"text_column": "x", "image_column": "y"}, "not both"),
        ("a.csv", {"text_column": "nope"}, "nope"),
        ("a.parquet", {"text_column": "nope"}, "has no column 'nope'; it has body"),
        ("a.txt", {"id_column": "id"}, "has no columns; leave out"),
        ("a.docx", {}, "must be a file, or a folder of files of one kind"),
        ("mixed", {"text_column": "body"}, r"it is or holds \.csv, \.jsonl"),
        ("nowhere", {}, "does not exist"),
        ("broken.parquet", {"text_column": "body"}, r"broken\.parquet cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    for path in ("a.csv", "a.txt", "a.docx", "broken.parquet", "mixed/a.csv", "mixed/a.jsonl"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("body\na\n")
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=message):
        Items(tmp_path / name, **options)


def test_a_file_that_shrank_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, ".jsonl", TEXTS, [*range(7)])
    items = Items(path, text_column="body")
    write(tmp_path, ".jsonl", TEXTS[:2], [0, 1])
    with pytest.raises(CorruptFileError, match="had 7 rows and now has 2"):
        read(items)
