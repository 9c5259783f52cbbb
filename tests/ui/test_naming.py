"""Names of a run, by key terms or a namer."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prcut.curate.names import read_names
from prcut.errors import InvalidInputError
from prcut.fit.config import FitConfig
from prcut.runs.run import fit_run
from prcut.ui.naming import name_run

WORDS = ["bank loan", "garden soil", "guitar song"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three far groups of rows with texts about three things."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    labels = np.arange(150) % 3
    rows = (20 * np.eye(3, 4)[labels] + rng.normal(size=(150, 4))).astype(np.float32)
    texts = [f"{WORDS[label]} {'abcdefghij'[i % 10]}z" for i, label in enumerate(labels)]
    table = {"body": texts, "e": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 4)}
    pq.write_table(pa.table(table), folder / "rows.parquet", row_group_size=40)
    (folder / "texts.txt").write_text("\n".join(texts), "utf-8")
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
    assert name_run(run, texts=f"{data}/texts.txt") == names
    with pytest.raises(InvalidInputError, match="no column 'title'"):
        name_run(run, texts="title")


def test_rows_are_numbered_where_few_are_read(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_run(f"{data}/rows.parquet", tmp_path / "run", CONFIG, memory=1, device="cpu")
    monkeypatch.setattr("prcut.ui.naming._RANGE_ROWS", 7)
    monkeypatch.setattr("prcut.ui.naming._MOST_ROWS", 35)
    names = name_run(tmp_path / "run", texts="body")
    assert sum(one.size for one in names.clusters) == 7 + 7 + 7 + 7 + 3
    for one in names.clusters:
        assert all(WORDS[row % 3] in text for row, text in one.exemplars)
