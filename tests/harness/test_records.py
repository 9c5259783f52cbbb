from dataclasses import replace
from pathlib import Path

import pytest
from bench_samples import SPEC, record
from benchmarks.harness.records import (
    append_record,
    read_records,
)

from prcut.errors import CorruptFileError, DataWarning


def write(path: Path, *seeds: int) -> None:
    for seed in seeds:
        append_record(path, record(seed=seed))


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "new/runs.jsonl"
    given = [record(), record("hdbscan", ratio_cut=None), record("evoc", status="failed", acc=None)]
    for one in given:
        append_record(path, one)
    assert read_records(path) == given
    assert path.read_bytes().count(b"\n") == 3
    assert read_records(tmp_path / "nothing.jsonl") == []


def test_the_key_names_the_run_and_not_its_limit() -> None:
    assert SPEC.key == replace(SPEC, time_limit=1.0).key
    others = {"dataset": "usps", "split": "test", "n_rows": 5, "representation": "minilm"}
    others |= {"n_neighbors": 50, "method": "evoc", "seed": 1, "table": "table4"}
    keys = {replace(SPEC, **{name: value}).key for name, value in others.items()}
    assert len(keys | {SPEC.key}) == len(others) + 1


def test_a_torn_line_is_dropped_with_a_warning_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    write(path, 0, 1)
    whole = path.read_bytes()
    for length in (1, 30, len(whole) // 2 - 2):
        path.write_bytes(whole + whole[:length])
        with pytest.warns(DataWarning, match="the last line of .* is cut off"):
            assert len(read_records(path)) == 2
        write(path, 2)
        assert [one.spec.seed for one in read_records(path)] == [0, 1, 2]


@pytest.mark.parametrize(
    "line", ["{", "3", '{"format": 1, "spec": {}, "result": {"status": "failed"}}']
)
def test_what_is_no_record_is_refused_by_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "runs.jsonl"
    write(path, 0)
    path.write_text(path.read_text() + line + "\n" + path.read_text())
    with pytest.raises(CorruptFileError, match="line 2 is not a record of a benchmark"):
        read_records(path)
