import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench_samples import record
from prcut.bench import cli as bench_cli
from prcut.bench import tables
from prcut.bench.methods import METHODS
from prcut.bench.records import append_record, read_records
from prcut.cli import main


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)


def test_bench_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    command = ["bench", "quick", "--methods", "faiss_kmeans", "--seeds", "5", "--plot"]
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
    assert main(["bench", "quick", "--summary-only", "-q"]) == 0
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
    assert main(["bench", "peers", "--results", "r", "--summary-only"]) == 0
    out = capsys.readouterr().out
    assert "### mnist" in out
    assert "### banking77" in out
    assert (tmp_path / "r/peers.md").read_text() == out
    only = ["--datasets", "mnist", "--methods", "metis"]
    assert main(["bench", "peers", "--results", "r", "--summary-only", *only]) == 0
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
        ("", 2, "Missing argument 'NAME'. Try: prcut bench --help"),
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
    assert main(["bench", *arguments.split()]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("error: ")
    assert message in err.splitlines()[-1]


def test_mixed_records_are_shown_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append_record(tmp_path / "r/table3.jsonl", record())
    append_record(tmp_path / "r/table3.jsonl", record(split="test"))
    assert main(["bench", "table3", "--results", "r", "--summary-only", "--mixed"]) == 0
    assert "- mnist: split: train (1 record), test (1 record)" in capsys.readouterr().out


def test_missing_packages_are_worded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = METHODS["metis"]._replace(packages=("no-such-package",))
    monkeypatch.setitem(tables.METHODS, "metis", changed)
    monkeypatch.setattr(bench_cli, "run_all", lambda specs, *_, **__: [record(specs[0].method)])
    lacks = "metis needs no-such-package: pip install 'prcut[bench]'"
    assert main(["bench", "table3"]) == 2
    assert capsys.readouterr().err == f"error: {lacks}, or leave it out by --methods.\n"
    (tmp_path / "benchmarks/results").mkdir(parents=True)
    assert main(["bench", "quick"]) == 0
    assert f"warning: {lacks}; it is left out" in capsys.readouterr().err


def test_embed_writes_rows_and_manifest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from torch import nn

    from prcut import embedding

    def load(*_: object) -> embedding._Encoder:
        def encode(batch: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(batch.reshape(len(batch), -1)).float()

        return embedding._Encoder(nn.Linear(1, 1), encode, "flat 1", "none")

    monkeypatch.setitem(embedding._LOADERS, "flat", (("images",), load))
    command = ["embed", "digits", "flat:x", "--split", "all", "--rows", "20"]
    assert main(command) == 0
    found = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert (found["rows"], found["features"]) == ("20", "64")
    rows = np.load(found["embeddings"])
    assert json.loads(Path(found["manifest"]).read_text())["plan"]["encoder"] == "flat:x"

    assert main([*command, "--out", "here.npy"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("embeddings=here.npy\nmanifest=here.json\n")
    np.testing.assert_array_equal(np.load("here.npy"), rows)
    assert list(json.loads(Path("here.json").read_text())["files"]) == ["here.npy"]

    for wrong, message in (
        (["--out", "here.txt"], "out='here.txt' must be the name of a .npy file."),
        (["--rows", "0"], "n_rows=0 must be >= 1."),
    ):
        assert main([*command, *wrong]) == 2
        assert capsys.readouterr().err == f"error: {message}\n"
    assert main(["embed", "digits", "minilm", "--split", "all"]) == 2
    assert "encoder='minilm' takes texts" in capsys.readouterr().err


def test_help_is_quick() -> None:
    script = """
import sys
from prcut.cli import main
main(["bench", "--help"])
slow = [m for m in ("torch", "numpy", "pyarrow", "sklearn", "scipy") if m in sys.modules]
sys.exit(f"loaded {slow}" if slow else 0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
