import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_samples import SPEC, record
from benchmarks.harness.records import (
    append_record,
    drop_records,
    read_records,
)

from prcut.errors import CorruptFileError, DataWarning, InvalidInputError


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
    # whole but for its end of line: nothing is lost
    path.write_bytes(whole[:-1])
    assert len(read_records(path)) == 2
    write(path, 2)
    assert len(read_records(path)) == 3


def test_records_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    write(path, 0, 1, 2)
    assert drop_records(path, [record(seed=1).spec.key, "unknown"]) == 1
    assert [one.spec.seed for one in read_records(path)] == [0, 2]
    assert [one.name for one in tmp_path.iterdir()] == ["runs.jsonl"]


def changed(part: str, **fields: Any) -> str:
    from dataclasses import asdict

    content = {"format": 1, **asdict(record())}
    content[part] = {**content[part], **fields}
    return json.dumps(content)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ('{"format": 2, "spec": {}, "result": {}}', "has format 2, this version reads up to 1"),
        ('{"format": 1, "spec": 3, "result": {}}', "line 2 lacks its spec or its result"),
        (changed("spec", n_rows=1.5), r"line 2 has n_rows=1.5, expected int \| None"),
        (changed("spec", more=1), "line 2 has fields that do not exist: more"),
        (changed("result", status="won"), "line 2 has status='won'"),
        (changed("result", acc=None), "line 2 is done, but has no acc"),
        ('{"format": 1, "spec": {}, "result": {"status": "failed"}}', "line 2 is not complete"),
    ],
)
def test_what_a_stranger_wrote_is_refused_in_words(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "runs.jsonl"
    write(path, 0)
    path.write_text(path.read_text() + line + "\n" + path.read_text())
    with pytest.raises((CorruptFileError, InvalidInputError), match=message):
        read_records(path)
