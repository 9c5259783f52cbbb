"""What is kept of a collection: files, modes, ids, the best row, runs, resuming, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from killed import contents, kill_after, needs_fork
from prcut.curate.dedup import find_duplicates
from prcut.errors import InvalidInputError

N_BASE, N_FEATURES, EPSILON = 900, 12, 0.01


@pytest.fixture(scope="module")
def planted() -> tuple[np.ndarray, np.ndarray]:
    """Rows, and the original of each: 40 copies of one row, single copies, near copies."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(N_BASE, N_FEATURES))
    original = np.concatenate([np.arange(N_BASE), np.full(40, 7), np.arange(100, 200)])
    near = np.concatenate([np.arange(150, 300), np.full(35, 8)])
    rows = np.concatenate([base[original], base[near] * (1 + 0.02 * rng.normal(size=(185, 12)))])
    order = rng.permutation(len(rows))
    original = np.argsort(order)[np.concatenate([original, near])[order]]
    return rows[order].astype(np.float32), original


@pytest.fixture(scope="module")
def data(planted: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, with ids of 64 bits and a column of numbers."""
    rows, _ = planted
    folder = tmp_path_factory.mktemp("data")
    quality: list[float | None] = np.random.default_rng(1).random(len(rows)).tolist()
    quality[0], quality[1] = None, float("nan")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), N_FEATURES)
    names = [f"row {number}" for number in range(len(rows))]
    ids = np.arange(len(rows)) + 2**40
    table = pa.table({"id": ids, "e": lists, "quality": quality, "name": names})
    pq.write_table(table.slice(0, 500), folder / "a.parquet", row_group_size=200)
    pq.write_table(table.slice(500), folder / "b.parquet")
    return folder


def read(folder: Path) -> tuple[np.ndarray, Any]:
    kept = pq.read_table(folder / "kept")
    return kept.column(0).to_numpy(), pq.read_table(folder / "groups").to_pandas()


def test_every_group_is_that_of_its_original(
    planted: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    rows, original = planted
    found = find_duplicates(rows, tmp_path / "out", epsilon=EPSILON)
    kept, groups = read(tmp_path / "out")
    assert np.array_equal(np.sort(np.unique(original[kept])), np.unique(original))
    assert len(kept) == found.n_kept == N_BASE
    assert found.n_samples == len(rows)
    assert found.n_copies == 140
    assert found.n_groups == groups["group"].nunique()
    assert (original[groups["row"]] == original[groups["group"]]).all()
    assert groups.groupby("group")["kept"].sum().eq(1).all()
    assert (groups["kept"] == (groups["row"] == groups["group"])).all()
    assert not (tmp_path / "out" / "_prcut" / "work").exists()


def test_memory_and_blocks_keep_the_same_rows(data: Path, tmp_path: Path) -> None:
    options: Any = {"epsilon": EPSILON, "column": "e", "id_column": "id"}
    for name, memory in (("memory", None), ("disk", 1_000_000)):
        find_duplicates(str(data), tmp_path / name, memory=memory, **options)
    one, other = (contents(tmp_path / name) for name in ("memory", "disk"))
    files = [name for name in one if name.endswith("parquet")]
    assert {name.split("/")[0] for name in files} == {"kept", "groups"}
    assert all(one[name] == other[name] for name in files)
    kept, _ = read(tmp_path / "disk")
    assert kept.min() >= 2**40


@needs_fork
@pytest.mark.parametrize("n_files", [8, 25])
def test_a_killed_call_is_resumed_with_the_same_bytes(
    data: Path, tmp_path: Path, n_files: int
) -> None:
    options: Any = {"epsilon": EPSILON, "column": "e", "keep": "best:quality", "memory": 1_000_000}
    find_duplicates(str(data), tmp_path / "calm", **options)
    kill_after(n_files, lambda: find_duplicates(str(data), tmp_path / "out", **options))
    assert not (tmp_path / "out" / "_prcut" / "manifest.json").exists()
    find_duplicates(str(data), tmp_path / "out", **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "calm")


def test_another_distance_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    find_duplicates(rows, tmp_path / "out", epsilon=EPSILON)
    with pytest.raises(InvalidInputError, match="begun with another epsilon"):
        find_duplicates(rows, tmp_path / "out", epsilon=0.5)
