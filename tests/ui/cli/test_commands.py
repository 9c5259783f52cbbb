"""The command line: results, messages, exit codes and help."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from prcut.ui.cli import commands as cli
from prcut.ui.cli.commands import main

QUICK = ["--steps", "50", "--n-init", "1", "--neighbors", "10", "--device", "cpu"]


def results(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


# -- from data to labels ---------------------------------------------------------------------


@pytest.mark.costly("the commands that every user begins with")
@pytest.mark.parametrize("ids", ["name", None])
def test_fit_and_assign_from_end_to_end(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ids: str | None
) -> None:
    path = tmp_path / "run"
    named = [] if ids is None else ["--id-column", ids]
    options = ["--out", str(path), "--top", "2", *named, *QUICK]
    assert main(["fit", f"{data}/parts", "--clusters", "4", *options]) == 0
    out, err = capsys.readouterr()
    found = results(out)
    assert found["run"] == str(path)
    assert found["rows"] == "1500"
    labels = pq.read_table(found["labels"])
    expected = pq.read_table(data / "parts")[ids].to_pylist() if ids else list(range(1500))
    assert labels[ids or "row"].to_pylist() == expected
    assert "the graph is built in memory" in err
    assert "training: 50/50  cross-entropy" in err
    assert "warning: the graph was built, but please check the data:\n  - 1 of 8 columns" in err

    # the columns of the fit are those of the assignment
    assert main(["assign", str(path), f"{data}/parts", "-o", str(tmp_path / "again")]) == 0
    out, _ = capsys.readouterr()
    assert results(out) == {"labels": str(tmp_path / "again"), "rows": "1500", "files": "3"}
    again = pq.read_table(tmp_path / "again")
    assert again.schema.names == [ids or "row", "label", "confidence"]
    # the labels of the fit are the partition's, these what the assigner learned of it
    given, learned = (table["label"].to_numpy() for table in (labels, again))
    assert (given == learned).mean() > 0.97
    assert main(["assign", str(path), f"{data}/parts", "-o", str(tmp_path / "again")]) == 0
    assert "3 of 3 files were already written" in capsys.readouterr().err


def test_info_and_export(
    data: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = f"{data}/rows.npy"
    for path, expected in (
        (rows, r"kind=data\nrows=1500\nfeatures=8\n"),
        (f"{data}/parts", r"kind=data\n(.*\n)+column=e\nfiles=3\n"),
        (f"{run}", r"kind=run\nstate=finished\n(.*\n)+stage_train=done\n"),
        (f"{run}/model", r"kind=model\nfeatures=8\nclusters=4\nhidden=256\n"),
        (f"{run}/labels", r"kind=labels\nstate=finished\nrows=1500\n"),
    ):
        assert main(["info", path]) == 0
        assert re.match(expected, capsys.readouterr().out), path
    pytest.importorskip("onnx")
    assert main(["export", str(run), "--onnx", f"{tmp_path}/model.onnx"]) == 0
    assert capsys.readouterr().out == f"onnx={tmp_path}/model.onnx\n"


# -- explain and update ----------------------------------------------------------------------


def test_explain_says_a_sentence_for_each_row(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(run), "--rows", "7,0"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("row 0: ")
    assert second.startswith("row 7: ")
    assert " neighbours are in cluster " in first


def test_ids_of_a_run_without_them_are_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(run), "--ids", "a"]) == 2
    assert "the run has no id column" in capsys.readouterr().err


# -- help ------------------------------------------------------------------------------------


def test_examples_of_the_help_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option an example uses exists; what it does is tested elsewhere."""
    seen: list[str] = []
    for command in cli.app.registered_commands:
        assert command.callback is not None
        examples = re.findall(r"^(prcut .+)$", command.callback.__doc__ or "", re.MULTILINE)
        assert examples
        monkeypatch.setattr(command, "callback", _only_named(command.callback, seen))
        for example in examples:
            assert main(example.split()[1:]) == 0, example
    assert len(seen) >= len(cli.app.registered_commands)


def _only_named(command: Callable[..., None], seen: list[str]) -> Callable[..., None]:
    from functools import wraps

    @wraps(command)
    def named(*_: object, **__: object) -> None:
        seen.append(command.__name__)

    return named


@pytest.mark.costly("two new interpreters: what a shell waits for at every Tab")
def test_help_and_completion_are_quick() -> None:
    script = """
import sys
from prcut.ui.cli.commands import main
main(["fit", "--help"])
slow = [m for m in ("torch", "numpy", "pyarrow", "sklearn", "scipy", "faiss") if m in sys.modules]
sys.exit(f"loaded {slow}" if slow else 0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    asked = {"_PRCUT_COMPLETE": "complete_bash", "COMP_WORDS": "prcut fi", "COMP_CWORD": "1"}
    environment = {**os.environ, "COLUMNS": "80", **asked}
    command = [sys.executable, "-m", "prcut"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["fit"]


# -- errors ----------------------------------------------------------------------------------

# arguments, with {data}, {run} and {new}; the exit code; the whole line on standard error
ERRORS = [
    ("fit", 2, "Missing argument 'DATA'. Try: prcut fit --help"),
    ("fit {data}/rows.npy", 2, "Missing option '--clusters' / '-k'. Try: prcut fit --help"),
    ("fit {data}/nowhere -k 2 -o {new}", 2, "{data}/nowhere does not exist."),
    (
        "fit {data}/rows.npy -k 2 -o {new} --neighbors 1500",
        2,
        "--neighbors 1500 must be < n_samples=1500; lower --neighbors or pass a precomputed graph.",
    ),
    (
        "fit {data}/rows.npy -k 4 -o {run}",
        2,
        "{run} holds a finished run; look at it with `prcut report {run}`, replace it with "
        "--overwrite, or choose another --out.",
    ),
    (
        "assign {begun} {data}/rows.npy -o {new}",
        2,
        "{begun} is a run that is not finished; resume it with `prcut fit … --resume`.",
    ),
    (
        "assign {broken}/model {data}/rows.npy -o {new}",
        3,
        "{broken}/model/config.json is not JSON: Expecting value: line 1 column 1 (char 0). "
        "Save or download the model again.",
    ),
    ("info {newer}", 2, "{newer} has format 9, this version reads up to 1; upgrade prcut."),
]


@pytest.fixture(scope="module")
def places(data: Path, run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the placeholders of the errors stand for."""
    others = tmp_path_factory.mktemp("others")
    plan = json.loads((run / "plan.json").read_text())
    for name, content in (("newer", {**plan, "format": 9}), ("begun", plan)):
        (others / name).mkdir()
        (others / name / "plan.json").write_text(json.dumps(content))
    (others / "broken/model").mkdir(parents=True)
    (others / "broken/model/config.json").write_text("")
    names = {name: str(others / name) for name in ("newer", "begun", "broken", "new")}
    return {"data": str(data), "run": str(run), **names}


@pytest.mark.parametrize(("arguments", "code", "message"), ERRORS)
def test_every_error_is_one_line_with_its_exit_code(
    places: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    code: int,
    message: str,
) -> None:
    assert main(arguments.format(**places).split()) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == f"error: {message.format(**places)}"
    assert not Path(places["new"]).exists() or arguments.startswith("assign")
