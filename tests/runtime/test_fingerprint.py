"""What a fingerprint sees, and what it does not."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prcut.runtime import fingerprint
from prcut.runtime.sources import open_source

ROWS = np.random.default_rng(0).standard_normal((3000, 8)).astype(np.float32)


def write(path: Path, rows: np.ndarray, weight: float = 1.0) -> Path:
    """Write uncompressed vectors: other values of the same shape have the same size."""
    if path.suffix == ".npy":
        np.save(path, rows)
    else:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        table = pa.table({"x": vectors, "weight": np.full(len(rows), weight)})
        pq.write_table(table, path, compression="none", use_dictionary=False)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.npy"])
@pytest.mark.parametrize("in_full", [True, False])
def test_another_value_anywhere_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, in_full: bool
) -> None:
    if not in_full:
        monkeypatch.setattr(fingerprint, "_READ_IN_FULL", 0)
        monkeypatch.setattr(fingerprint, "_N_PIECES", 2)
        monkeypatch.setattr(fingerprint, "_TAIL_BYTES", 16)
    path = write(tmp_path / name, ROWS)
    first, size = open_source(path).fingerprint, path.stat().st_size
    assert open_source(path).fingerprint == first
    changed = ROWS.copy()
    changed[1501, 3] += 1e-3
    write(path, changed)
    assert path.stat().st_size == size
    assert open_source(path).fingerprint != first


def test_other_weights_and_times_of_large_files_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.parquet", ROWS)
    first = open_source(path).fingerprint
    os.utime(path, (0, 0))
    assert open_source(path).fingerprint == first  # all bytes were read: the time says nothing
    assert open_source(write(path, ROWS, weight=2.0)).fingerprint != first
    monkeypatch.setattr(fingerprint, "_READ_IN_FULL", 0)
    large = open_source(path).fingerprint
    os.utime(path, (0, 0))
    assert open_source(path).fingerprint != large


def test_large_arrays_in_memory_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "_READ_IN_FULL", 0)
    monkeypatch.setattr(fingerprint, "_N_ROWS", 100)
    other = ROWS.copy()
    other[1:-1:2] = 0
    assert open_source(ROWS).fingerprint == open_source(ROWS.copy()).fingerprint
    assert open_source(ROWS).fingerprint != open_source(other).fingerprint
