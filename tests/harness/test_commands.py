from pathlib import Path

import pytest
from bench_samples import record
from benchmarks.harness.__main__ import main
from benchmarks.harness.records import append_record


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.costly("the only run of the harness from its command to its summary")
def test_bench_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["quick", "--methods", "faiss_kmeans"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    results = tmp_path / "benchmarks/results"
    assert sorted(one.name for one in results.iterdir()) == ["quick.jsonl", "quick.md"]
    assert out == (results / "quick.md").read_text()
    assert out.startswith("### digits (all), raw, 10 neighbours\n")
    assert "| k-means (FAISS) | *0." in out
    assert "1/1 digits, 10 neighbours, faiss_kmeans, seed 0: ACC 0." in err

    # what was run is not run again
    before = (results / "quick.jsonl").read_bytes()
    assert main(command) == 0
    again, err = capsys.readouterr()
    assert again == out
    assert "1 of 1 runs are in benchmarks/results/quick.jsonl already" in err
    assert (results / "quick.jsonl").read_bytes() == before


def test_peers_are_read_from_the_files_of_both_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append_record(tmp_path / "r/table3.jsonl", record())
    append_record(tmp_path / "r/table3.jsonl", record("metis"))
    append_record(tmp_path / "r/table4.jsonl", record(table="table4", dataset="banking77"))
    assert main(["peers", "--results", "r", "--summary-only"]) == 0
    out = capsys.readouterr().out
    assert "### mnist" in out
    assert "### banking77" in out
    assert (tmp_path / "r/peers.md").read_text() == out
