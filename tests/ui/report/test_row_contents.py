"""Texts, images and classes of rows: from columns, files, sequences and the features themselves."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prcut.errors import InvalidInputError
from prcut.runtime.parquet import ParquetSource
from prcut.runtime.sources import ArraySource, open_source
from prcut.ui.report.row_contents import read_images, read_labels, read_texts

ROWS = np.array([0, 3, 4, 9])


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> ParquetSource:
    """Ten rows in two files, with row groups of three."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("data")

    def encoded(value: int) -> bytes:
        content = io.BytesIO()
        image.fromarray(np.full((4, 6), value, np.uint8)).save(content, "PNG")
        return content.getvalue()

    for part, numbers in enumerate((range(6), range(6, 10))):
        table = pa.table(
            {
                "vector": [[float(i), i / 2] for i in numbers],
                "text": [f"text {i}" if i != 4 else None for i in numbers],
                "kind": ["even" if i % 2 == 0 else "odd" for i in numbers],
                "picture": [encoded(20 * i) for i in numbers],
                "hub": [{"bytes": encoded(i), "path": None} for i in numbers],
            }
        )
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=3)
    source = open_source(str(folder), column="vector")
    assert isinstance(source, ParquetSource)
    return source


def test_columns_are_read_where_rows_are_wanted(parquet: ParquetSource) -> None:
    assert read_texts(parquet, "text", ROWS) == ["text 0", "text 3", "", "text 9"]
    assert read_texts(parquet, "text", np.arange(10))[7] == "text 7"
    labels = read_labels(parquet, "kind", ROWS)
    assert labels.names == ["even", "odd"]
    assert labels.codes.tolist() == [0, 1, 0, 1]
    pictures = read_images(parquet, "picture", ROWS)
    assert [picture.shape for picture in pictures] == [(4, 6)] * 4
    assert [int(picture[0, 0]) for picture in pictures] == [0, 60, 80, 180]
    assert [int(picture[0, 0]) for picture in read_images(parquet, "hub", ROWS)] == [0, 3, 4, 9]
    # the features as images, stretched from the least to the most
    as_images = read_images(parquet, "1x2", ROWS)
    assert [int(picture[0, 0]) for picture in as_images] == [0, 85, 113, 255]
    assert parquet.read_values("text", np.array([], int)) == []


def test_files_and_sequences(tmp_path: Path) -> None:
    source = ArraySource(np.arange(40.0).reshape(10, 4))
    (tmp_path / "texts.txt").write_text("\n".join(f"line {i}" for i in range(10)))
    np.save(tmp_path / "names.npy", np.array([f"name {i}" for i in range(10)]))
    np.save(tmp_path / "images.npy", np.full((10, 2, 2, 3), 7, np.uint8))
    assert read_texts(source, tmp_path / "texts.txt", ROWS)[1] == "line 3"
    assert read_texts(source, str(tmp_path / "names.npy"), ROWS)[3] == "name 9"
    assert read_texts(source, [f"given {i}" for i in range(10)], ROWS)[2] == "given 4"
    assert read_labels(source, np.arange(10) % 2 == 0, ROWS).names == ["False", "True"]
    assert read_images(source, tmp_path / "images.npy", ROWS)[0].shape == (2, 2, 3)
    assert read_images(source, np.zeros((10, 5, 5, 1)), ROWS)[0].shape == (5, 5)
    assert read_images(source, (2, 2), ROWS)[3].tolist() == [[235, 242], [248, 255]]


@pytest.mark.parametrize(
    ("read", "what", "message"),
    [
        (read_texts, "column", "neither a .npy or .txt file nor a column of Parquet data; pass"),
        (read_images, [b"no image"] * 10, "is not an encoded image"),
    ],
)
def test_what_does_not_fit_is_refused(read: Any, what: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read(ArraySource(np.zeros((10, 4))), what, ROWS)
