"""Samples: exact sizes, quotas, trees, the same rows each time, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prcut.curate.sample import draw_sample, share_out, write_sample
from prcut.errors import InvalidInputError
from prcut.ui.cli.commands import main


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.data())
@settings(deadline=None)
def test_shares_add_up_and_no_room_is_overfull(sizes: list[int], data: Any) -> None:
    room = np.array(sizes)
    total = data.draw(st.integers(0, int(room.sum())))
    weights = np.array(
        data.draw(st.lists(st.floats(0.1, 9), min_size=len(room), max_size=len(room)))
    )
    shares = share_out(total, room, weights)
    assert shares.sum() == total
    assert (shares <= room).all()
    assert (shares >= 0).all()
    # of rooms that are not full each has its part of the level, but for rounding
    level = (shares / weights)[shares < room]
    if len(level):
        assert np.ptp(level) <= 2 / weights[shares < room].min() + 1e-6
        full = (shares / weights)[shares == room]
        assert (full <= level.max() + 2 / weights.min() + 1e-6).all()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three files with six clusters of very different sizes."""
    folder = tmp_path_factory.mktemp("run")
    rng = np.random.default_rng(0)
    (folder / "data" / "more").mkdir(parents=True)
    sizes = [800, 500, 200, 60, 40, 20]
    rows = np.repeat(6 * rng.normal(size=(6, 4)), sizes, axis=0)
    rows = (rows + rng.normal(size=rows.shape))[rng.permutation(len(rows))].astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 4)
    table = pa.table({"id": np.arange(len(rows)) + 2**40, "e": lists})
    for name, start, size in (("a", 0, 700), ("b", 700, 0), ("more/c", 700, 920)):
        pq.write_table(table.slice(start, size), folder / "data" / f"{name}.parquet")
    words = "-k 6 --column e --id-column id --steps 40 --device cpu -q --balance 0"
    assert main(["fit", str(folder / "data"), "--out", str(folder / "run"), *words.split()]) == 0
    return folder


def test_smaller_samples_are_part_of_larger_ones_and_unknown_rows_are_never_drawn() -> None:
    labels = np.random.default_rng(0).integers(-1, 5, 1000)
    large, small = (draw_sample(labels, size, "uniform", seed=3) for size in (300, 100))
    assert set(small) < set(large)
    assert (labels[large] >= 0).all()
    assert np.array_equal(large, draw_sample(labels, 300, "uniform", seed=3))
    assert not np.array_equal(large, draw_sample(labels, 300, "uniform", seed=4))
    layers = [np.array([0, 0, 0, 0, 1])]
    quotas = np.bincount(labels[draw_sample(labels, 160, layers=layers)])
    assert quotas.tolist() == [20, 20, 20, 20, 80]


@pytest.mark.parametrize("balance", ["tree", "uniform", "temperature:2"])
def test_samples_have_their_size_and_their_quotas(run: Path, tmp_path: Path, balance: str) -> None:
    drawn = write_sample(run / "run", tmp_path / "sample.parquet", 300, balance)
    table = pq.read_table(tmp_path / "sample.parquet")
    assert table.schema.names == ["id", "label"]
    ids, labels = (table[name].to_numpy() for name in ("id", "label"))
    files = sorted((run / "run/labels").rglob("*.parquet"))
    whole = pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)
    names, all_labels = (whole[name].to_numpy() for name in ("id", "label"))
    assert len(ids) == len(np.unique(ids)) == 300
    assert drawn == (300, len(np.unique(labels)))
    assert np.array_equal(all_labels[np.searchsorted(names, ids)], labels)
    sizes, quotas = np.bincount(all_labels, minlength=6), np.bincount(labels, minlength=6)
    is_open = quotas < sizes
    if balance == "uniform":
        assert np.ptp(quotas[is_open]) <= 1
    if balance == "temperature:2":
        level = quotas[is_open] / np.sqrt(sizes[is_open])
        assert np.ptp(level) < 0.3


def test_a_sample_larger_than_the_run_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="at most 1620"):
        write_sample(run / "run", tmp_path / "new.parquet", 10_000)
    with pytest.raises(InvalidInputError, match="must be tree, uniform"):
        write_sample(run / "run", tmp_path / "new.parquet", 10, "even")
    assert not (tmp_path / "new.parquet").exists()
