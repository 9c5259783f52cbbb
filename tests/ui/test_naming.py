"""Names of a run, by key terms or a namer, and contact sheets."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prcut.errors import InvalidInputError
from prcut.pipeline.config import FitConfig
from prcut.pipeline.names import read_names
from prcut.pipeline.run import fit_run
from prcut.ui.naming import name_run

WORDS = ["bank loan", "garden soil", "guitar song"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three far groups of rows with texts about three things, and images."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    labels = np.arange(150) % 3
    rows = (20 * np.eye(3, 4)[labels] + rng.normal(size=(150, 4))).astype(np.float32)
    texts = [f"{WORDS[label]} {'abcdefghij'[i % 10]}z" for i, label in enumerate(labels)]
    table = {"body": texts, "e": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 4)}
    pq.write_table(pa.table(table), folder / "rows.parquet", row_group_size=40)
    (folder / "texts.csv").write_text("body,more\n" + "".join(f'"{t}",1\n' for t in texts), "utf-8")
    np.save(folder / "images.npy", (40 * labels[:, None, None] * np.ones((1, 6, 8))).astype("u1"))
    return folder


CONFIG = FitConfig.of("default", 3, n_neighbors=8, max_steps=30, n_init=1)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("runs") / "run")
    fit_run(f"{data}/rows.parquet", path, CONFIG, device="cpu")
    return path


def _first_words(names: Any) -> list[str]:
    return sorted(one.name.split(",")[0].split()[0] for one in names)


def test_texts_may_be_a_column_or_a_file(data: Path, run: str) -> None:
    names = name_run(run, texts="body")
    assert read_names(run) == names
    assert _first_words(names.clusters) == ["bank", "garden", "guitar"]
    for one in names.clusters:
        assert {row % 3 for row, _ in one.exemplars} == {one.exemplars[0].row % 3}
        assert all(WORDS[row % 3] in text for row, text in one.exemplars)
    for file in ("rows.parquet", "texts.csv"):
        assert name_run(run, texts=f"{data}/{file}", text_column="body") == names
    with pytest.raises(InvalidInputError, match=r"'title' must be a column of .*: body, more"):
        name_run(run, texts=f"{data}/texts.csv", text_column="title")
    with pytest.raises(InvalidInputError, match="pass --texts or --images"):
        name_run(run)


def test_contact_sheets_show_images_of_one_cluster(data: Path, run: str) -> None:
    from PIL import Image

    names = name_run(run, images=f"{data}/images.npy")
    assert [one.name for one in names.clusters] == ["cluster 0", "cluster 1", "cluster 2"]
    shades = set()
    for number, one in enumerate(names.clusters):
        content = Path(run, f"sheets/cluster-{number:05d}.png").read_bytes()
        sheet = np.asarray(Image.open(io.BytesIO(content)))
        assert sheet.shape == (288, 288, 3)
        assert set(np.unique(sheet)) == {40 * (one.exemplars[0].row % 3), 255}
        shades.add(int(sheet.min()))
    assert shades == {0, 40, 80}


def test_a_namer_is_asked_for_names(run: str) -> None:
    names = name_run(
        run, texts="body", namer=lambda terms, exemplars: f"{terms[0]}, {len(exemplars)}"
    )
    for one in names.clusters:
        assert one.name == f"{one.terms[0]}, {len(one.exemplars)}"
