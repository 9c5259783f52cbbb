"""``prcut embed``, also as a part of ``prcut fit``; dedup; doctor."""

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

import prcut.search
from prcut.curate.embed import LOADERS
from prcut.ui.cli.commands import main

WORDS = "cat", "tree", "stone"


def encode(texts: list[str]) -> Tensor:
    """How often each word is in a text."""
    noise = [[len(text) % 5 / 50, text.count("e") / 50] for text in texts]
    counts = [[float(text.count(word)) for word in WORDS] for text in texts]
    return torch.cat([torch.tensor(counts), torch.tensor(noise)], 1)


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A Parquet file in the current folder, and an encoder ``words:x``."""
    load = (("texts",), lambda *_: encode)
    monkeypatch.setitem(LOADERS, "words", load)
    monkeypatch.chdir(tmp_path)
    rows = [
        {"key": f"k{number}", "body": f"{'x' * (number % 11)} a {WORDS[number % 3]} <b>{number}"}
        for number in range(90)
    ]
    pq.write_table(pa.Table.from_pylist(rows), "texts.parquet")
    return rows


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert main([*arguments]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


@pytest.mark.costly("texts are embedded, fitted and reported by commands")
def test_fit_of_texts_embeds_them_first(
    texts: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", "texts.parquet", "--column", "body", "--id-column", "key"]
    command += ["--model", "words:x", "-k", "3", "--neighbors", "8", "--out", "run"]
    found = run(capsys, *command)
    assert (found["rows"], found["used_clusters"]) == ("90", "3")
    labels = pq.read_table("run/labels")
    assert labels["key"].to_pylist() == [row["key"] for row in texts]
    by_word = [set(labels["label"].to_pylist()[word::3]) for word in range(3)]
    assert [len(found) for found in by_word] == [1, 1, 1]
    assert run(capsys, *command, "--resume")["objective"] == found["objective"]
    run(capsys, "report", "run", "--texts", "body", "--out", "report.html")
    page = Path("report.html").read_text()
    assert "<b>1" not in page
    assert "&lt;b&gt;" in page
    found = run(capsys, "export", "run", "--centroids", "centroids.parquet")
    assert found == {"centroids": "centroids.parquet", "clusters": "3"}


@pytest.mark.usefixtures("texts")
def test_vectors_are_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["embed", "texts.parquet", "--column", "body", "--model", "words:x"]
    for _ in range(2):
        found = run(capsys, *command, "--out", "vectors.parquet")
        assert found == {"embeddings": "vectors.parquet", "rows": "90", "features": "5"}
    assert main([*command, "--out", "vectors.txt"]) == 2
    assert "must end in .parquet or .npy" in capsys.readouterr().err


def test_what_is_missing_is_said_with_the_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"onnx", "rich"}
    installed = [one for one in metadata.distributions() if one.metadata["Name"] not in missing]
    monkeypatch.setattr(metadata, "distributions", lambda: iter(installed))
    monkeypatch.delattr(prcut.search, "kernels")
    monkeypatch.setitem(sys.modules, "prcut.search.kernels", None)
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "lacks onnx" in text
    assert re.search(r"\nrich +missing", text)
    assert re.search(r"\nkernels +missing: .*prcut.search.kernels", text)
    extras = text.splitlines()[-1]
    assert extras.startswith("pip install 'prcut[")
    assert "onnx" in extras
