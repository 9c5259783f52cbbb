"""``prcut embed``, and ``prcut fit`` of texts: one command from a file to clusters."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from prcut.pipeline.encoders.base import Encoder
from prcut.pipeline.encoders.load import LOADERS
from prcut.ui.cli.commands import main

WORDS = "cat", "tree", "stone"


def encode(texts: list[str]) -> Tensor:
    """How often each word is in a text."""
    noise = [[len(text) % 5 / 50, text.count("e") / 50] for text in texts]
    counts = [[float(text.count(word)) for word in WORDS] for text in texts]
    return torch.cat([torch.tensor(counts), torch.tensor(noise)], 1)


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A JSONL file in the current folder, and an encoder ``words:x``."""
    load = (("texts",), lambda *_: Encoder(nn.Module(), encode, "words 1", ""))
    monkeypatch.setitem(LOADERS, "words", load)
    monkeypatch.chdir(tmp_path)
    rows = [
        {"key": f"k{number}", "body": f"{'x' * (number % 11)} a {WORDS[number % 3]} <b>{number}"}
        for number in range(90)
    ]
    Path("texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert main([*arguments]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def test_embed_writes_vectors_with_ids(
    texts: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["embed", "texts.jsonl", "--text-column", "body", "--id-column", "key"]
    command += ["--keep", "body", "--model", "words:x", "--out", "vectors"]
    found = run(capsys, *command)
    expected = {"embeddings": "vectors", "rows": "90", "features": "5", "files": "1", "id": "key"}
    assert found == expected
    table = pq.read_table("vectors")
    assert table["key"].to_pylist() == [row["key"] for row in texts]
    assert table["body"].to_pylist() == [row["body"] for row in texts]
    assert main(command) == 0
    assert "1 of 1 files were already embedded" in capsys.readouterr().err
    assert main(["info", "vectors"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (lines["kind"], lines["rows"], lines["model"]) == ("embeddings", "90", "words:x")


def test_fit_of_texts_embeds_them_first(
    texts: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", "texts.jsonl", "--text-column", "body", "--id-column", "key"]
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


def test_a_fit_that_was_killed_while_it_embedded_is_resumed(
    texts: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ["fit", "texts.jsonl", "--text-column", "body", "-k", "3", "--neighbors", "8"]
    command += ["--model", "words:x", "--out", "run"]

    def stop(*_: Any) -> Tensor:
        raise KeyboardInterrupt

    broken = (("texts",), lambda *_: Encoder(nn.Module(), stop, "words 1", ""))
    with monkeypatch.context() as patched:
        patched.setitem(LOADERS, "words", broken)
        assert main(command) == 130
    assert "resume with: prcut fit" in capsys.readouterr().err
    assert run(capsys, *command, "--resume")["rows"] == str(len(texts))


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("embed texts.jsonl --model words:x --out v", "texts.jsonl has columns; name that of"),
        ("embed texts.jsonl --text-column text --model words:x --out v", "no column 'text'"),
        ("embed texts.jsonl --text-column body --model nothing --out v", "'nothing' is not known"),
        ("embed nowhere.csv --text-column body --model words:x --out v", "does not exist"),
        ("fit texts.jsonl --text-column body -k 3", "add --model NAME"),
        ("fit texts.jsonl --column body --model words:x -k 3", "--column is for vectors"),
        ("export nowhere", "give --onnx FILE, --hub REPO_ID or --centroids FILE"),
    ],
)
def test_errors_are_one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not Path("texts-prcut").exists()
