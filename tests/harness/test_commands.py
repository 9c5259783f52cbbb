import subprocess
import sys
from pathlib import Path

import pytest
from bench_samples import record
from benchmarks.harness import commands, tables
from benchmarks.harness.__main__ import main
from benchmarks.harness.methods import METHODS
from benchmarks.harness.records import append_record, read_records


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)


def test_bench_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    command = ["quick", "--methods", "faiss_kmeans", "--seeds", "5", "--plot"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    results = tmp_path / "benchmarks/results"
    assert sorted(one.name for one in results.iterdir()) == [
        *("quick-digits.svg", "quick.jsonl", "quick.md")
    ]
    assert out == (results / "quick.md").read_text()
    assert out.startswith("### digits (all), raw, 10 neighbours\n")
    assert "| k-means (FAISS) | *0." in out
    assert "1/1 digits, 10 neighbours, faiss_kmeans, seed 5: ACC 0." in err

    before = (results / "quick.jsonl").read_bytes()
    assert main(command) == 0
    again, err = capsys.readouterr()
    assert again == out
    assert "1 of 1 runs are in benchmarks/results/quick.jsonl already" in err
    assert (results / "quick.jsonl").read_bytes() == before
    assert main(["quick", "--summary-only", "-q"]) == 0
    assert capsys.readouterr() == (out, "")
    assert main([*command, "--redo"]) == 0
    assert "1/1 digits, 10 neighbours, faiss_kmeans, seed 5" in capsys.readouterr().err
    assert len(read_records(results / "quick.jsonl")) == 1


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
    only = ["--datasets", "mnist", "--methods", "metis"]
    assert main(["peers", "--results", "r", "--summary-only", *only]) == 0
    out = capsys.readouterr().out
    assert "banking77" not in out
    assert "k-means" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            "table9",
            2,
            "'table9' is no table; choose from quick, table1, table2, table3, table4, peers",
        ),
        ("quick --methods a", 2, "methods='a' is not in this table; choose from faiss_kmeans"),
        ("quick --datasets mnist", 2, "datasets='mnist' is not in this table; choose from digits"),
        ("quick --seeds x", 2, "seeds='x' must be numbers such as 0-4 or 0,3,7-9."),
        ("quick --time-limit 0", 2, "time_limit=0 must be > 0."),
        ("quick --summary-only", 2, "benchmarks/results holds no runs of quick; run it first."),
        ("quick --summary-only --results broken", 3, "broken/quick.jsonl, line 1 is not JSON"),
        ("table3 --summary-only --results mixed", 2, "mnist: split: train (1 record), test (1"),
        ("", 2, "Missing argument 'NAME'. Try: python -m benchmarks.harness --help"),
    ],
)
def test_errors_are_one_line_with_their_exit_code(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    code: int,
    message: str,
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/quick.jsonl").write_text("x\n")
    append_record(tmp_path / "mixed/table3.jsonl", record())
    append_record(tmp_path / "mixed/table3.jsonl", record(split="test"))
    assert main(arguments.split() or ["-q"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("error: ")
    assert message in err.splitlines()[-1]


def test_mixed_records_are_shown_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append_record(tmp_path / "r/table3.jsonl", record())
    append_record(tmp_path / "r/table3.jsonl", record(split="test"))
    assert main(["table3", "--results", "r", "--summary-only", "--mixed"]) == 0
    assert "- mnist: split: train (1 record), test (1 record)" in capsys.readouterr().out


def test_missing_packages_are_worded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = METHODS["metis"]._replace(packages=("no-such-package",))
    monkeypatch.setitem(tables.METHODS, "metis", changed)
    monkeypatch.setattr(commands, "run_all", lambda specs, *_, **__: [record(specs[0].method)])
    lacks = "metis needs no-such-package: pip install 'prcut[bench]'"
    assert main(["table3"]) == 2
    assert capsys.readouterr().err == f"error: {lacks}, or leave it out by --methods.\n"
    (tmp_path / "benchmarks/results").mkdir(parents=True)
    assert main(["quick"]) == 0
    assert f"warning: {lacks}; it is left out" in capsys.readouterr().err


def test_help_is_quick() -> None:
    script = """
import sys
from benchmarks.harness.__main__ import main
main(["--help"])
slow = [m for m in ("torch", "numpy", "pyarrow", "sklearn", "scipy") if m in sys.modules]
sys.exit(f"loaded {slow}" if slow else 0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
