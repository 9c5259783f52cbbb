"""The command line: results, messages, exit codes and help."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from prcut.ui.cli import commands as cli
from prcut.ui.cli.commands import main

QUICK = ["--steps", "50", "--n-init", "1", "--neighbors", "10", "--device", "cpu"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


def results(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


# -- from data to labels ---------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["name", "id", None])
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
    assert float(found["objective"]) >= 0
    labels = pq.read_table(found["labels"])
    assert labels.num_rows == 1500
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


def test_graph_info_and_export(
    data: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = f"{data}/rows.npy"
    assert main(["graph", rows, "--out", f"{tmp_path}/graph", "--neighbors", "5"]) == 0
    assert main(["graph", rows, "--out", f"{tmp_path}/blocks", "--memory", "1K"]) == 0
    assert capsys.readouterr().out == f"graph={tmp_path}/graph\nblocks={tmp_path}/blocks\n"
    for path, expected in (
        (rows, r"kind +data\nrows +1,500\nfeatures +8\n"),
        (f"{data}/parts", r"kind +data\n(.*\n)+column +e\nfiles +3\n"),
        (f"{tmp_path}/graph", r"kind +graph\nsamples +1,500\n"),
        (f"{tmp_path}/blocks", r"kind +blocks\nrows +1,500\n"),
        (f"{run}", r"kind +run\nstate +finished\n(.*\n)+stage start 1 +step 50 of at most 50\n"),
        (
            f"{run}/model",
            r"kind +model\nfeatures +8\nclusters +4\nhidden +256\n",
        ),
        (f"{run}/labels", r"kind +labels\nstate +finished\nrows +1,500\n"),
    ):
        assert main(["info", path]) == 0
        assert re.match(expected, capsys.readouterr().out), path
    pytest.importorskip("onnx")
    assert main(["export", str(run), "--onnx", f"{tmp_path}/model.onnx"]) == 0
    assert capsys.readouterr().out == f"onnx={tmp_path}/model.onnx\n"
    assert (tmp_path / "model.onnx").stat().st_size > 100


# -- help ------------------------------------------------------------------------------------


def test_help_teaches_by_examples_and_lists_the_exit_codes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    for arguments in ([], ["--help"]):
        assert main(arguments) == 0
        text = capsys.readouterr().out
        assert "prcut fit embeddings.parquet --clusters 10" in text
        flat = " ".join(text.split())
        for code in (
            "0 done",
            "1 unexpected error",
            "2 wrong usage or input",
            "3 corrupt files",
            "130 interrupted",
            "143 terminated",
        ):
            assert code in flat
    for command in ("fit", "assign", "graph", "info", "report", "export", "embed"):
        assert main([command, "-h"]) == 0
        text = capsys.readouterr().out
        assert len(re.findall(rf"^ *prcut {command} \S", text, re.MULTILINE)) >= 2, command
    assert main(["--version"]) == 0
    assert re.fullmatch(r"prcut \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_examples_of_the_help_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option an example uses exists; what it does is tested elsewhere."""
    seen: list[str] = []
    for command in cli.app.registered_commands:
        assert command.callback is not None
        examples = re.findall(r"^    (prcut .+)$", command.callback.__doc__ or "", re.MULTILINE)
        assert len(examples) >= 2
        monkeypatch.setattr(command, "callback", _only_named(command.callback, seen))
        for example in examples:
            assert main(example.split()[1:]) == 0, example
    assert set(seen) == {
        *("fit", "assign", "graph", "info", "report", "status"),
        *("plan", "export", "embed", "doctor", "name"),
        *("update", "explain", "dedup", "sample"),
    }


def _only_named(command: Callable[..., None], seen: list[str]) -> Callable[..., None]:
    from functools import wraps

    @wraps(command)
    def named(*_: object, **__: object) -> None:
        seen.append(command.__name__)

    return named


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
    done = subprocess.run(
        [sys.executable, "-m", "prcut"],
        env={**ENVIRONMENT, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["fit"]


# -- errors ----------------------------------------------------------------------------------

# arguments, with {data}, {run} and {new}; the exit code; the whole line on standard error
ERRORS = [
    ("fit", 2, "Missing argument 'DATA'. Try: prcut fit --help"),
    ("fit {data}/rows.npy", 2, "Missing option '--clusters' / '-k'. Try: prcut fit --help"),
    (
        "fit {data}/rows.npy -k 2 --outliers 1.5 --out {new}",
        2,
        "--outliers 1.5 must be at least 0 and below 1.",
    ),
    ("fit {data}/rows.npy -k 2 --engine dask", 2, "--engine 'dask' must be 'local' or 'ray'."),
    (
        "fit {data}/rows.npy -k 2 --address auto",
        2,
        "--address 'auto' is that of a Ray cluster; add --engine ray.",
    ),
    ("status {data}", 2, "{data} is not a run folder (no plan.json)."),
    ("frobnicate", 2, "No such command 'frobnicate'. Try: prcut --help"),
    ("fit x.npy -k 2 --zzz", 2, "No such option: --zzz Try: prcut fit --help"),
    ("fit {data}/rows.npy -k 0 -o {new}", 2, "--clusters 0 must be a whole number >= 1."),
    (
        "fit {data}/rows.npy -k some -o {new}",
        2,
        "--clusters 'some' must be a whole number, auto, or two numbers such as 5,50.",
    ),
    ("fit {data}/rows.npy -k 2 -o {new} --top 3", 2, "--top 3 must be from 0 to --clusters 2."),
    (
        "fit {data}/rows.npy -k 2 -o {new} --metric taxi",
        2,
        "--metric 'taxi' must be one of euclidean, cosine, inner_product.",
    ),
    (
        "graph {data}/rows.npy -o {new} --similarity same",
        2,
        "--similarity 'same' must be one of binary, mean, self_tuning, cosine.",
    ),
    (
        "fit {data}/rows.npy -k 2 -o {new} --preset best",
        2,
        "--preset 'best' must be 'default', 'paper-pixels' or 'paper-representations'.",
    ),
    (
        "fit {data}/rows.npy -k 2 -o {new} --steps 0",
        2,
        "--steps 0 must be a whole number >= 1.",
    ),
    (
        "fit {data}/rows.npy -k 2 -o {new} --device tpu9",
        2,
        "--device 'tpu9' cannot be used: Invalid device string: 'tpu9'",
    ),
    ("fit nowhere.npy -k 2 -o {new}", 2, "nowhere.npy does not exist."),
    ("fit {data}/nowhere -k 2 -o {new}", 2, "{data}/nowhere does not exist."),
    (
        "fit {data}/parts -k 2 -o {new} --column f",
        2,
        "{data}/parts/0.parquet has no column 'f'; it has name, id, e.",
    ),
    (
        "fit {data}/parts -k 2 -o {new} --column id",
        2,
        "column 'id' of {data}/parts/0.parquet is int64, expected lists of floats, int8 or uint8.",
    ),
    (
        "fit {data}/parts -k 2 -o {new} --id-column e",
        2,
        "column 'e' of {data}/parts/0.parquet is list<element: float>, expected integers or "
        "strings.",
    ),
    (
        "fit {data}/rows.npy -k 2000 -o {new}",
        2,
        "n_samples=1500 should be >= --clusters 2000.",
    ),
    (
        "fit {data}/rows.npy -k 2 -o {new} --neighbors 1500",
        2,
        "--neighbors 1500 must be < n_samples=1500; lower --neighbors or pass a precomputed graph.",
    ),
    (
        "fit {data}/nan.npy -k 2 -o {new}",
        2,
        "data holds NaN or infinity in 1 of the rows 0..4, "
        "the first is row 3; remove or replace them.",
    ),
    (
        "fit {data}/rows.npy -k 2 -o {new} --hidden 5,x",
        2,
        "--hidden '5,x' must be whole numbers >= 1, such as 512,512.",
    ),
    (
        "fit {data}/rows.npy -k 2 -o {new} --memory lots",
        2,
        "--memory 'lots' is not a size; write it like 8G or 500M.",
    ),
    ("fit {data}/rows.npy -k 2 -o {new} --learning-rate 0", 2, "--learning-rate 0.0 must be > 0."),
    (
        "fit {data}/rows.npy -k 2 -o {new} --save-every 15",
        2,
        "--save-every 15 must be a multiple of 10.",
    ),
    (
        "fit {data}/rows.npy -k 2 -o {new} --preset paper-pixels --memory 1K",
        2,
        "--solver 'train' needs the graph in memory, and this run has it on disk; raise --memory, "
        "train batch by batch with PRCut.partial_fit, or use --solver 'search'.",
    ),
    (
        "fit {data}/rows.npy -k 4 -o {run}",
        2,
        "{run} holds a finished run; look at it with `prcut report {run}`, replace it with "
        "--overwrite, or choose another --out.",
    ),
    (
        "fit {data}/rows.npy -k 5 -o {run} --resume --n-init 1 --steps 50 --neighbors 10",
        2,
        "{run} was begun with another n_clusters; choose another folder, or remove this one.",
    ),
    ("fit {data}/rows.npy -k 4 -o {data}", 2, "{data} holds other files; choose another --out."),
    (
        "fit {data}/rows.npy -k 4 -o {data}/rows.npy",
        2,
        "{data}/rows.npy is a file, expected a folder or a new name.",
    ),
    (
        "assign nowhere {data}/rows.npy -o {new}",
        2,
        "{cwd}/nowhere does not exist; pass a finished run or a model folder.",
    ),
    (
        "assign {data} {data}/rows.npy -o {new}",
        2,
        "{data} holds no finished model (no config.json); pass a finished run or a model folder.",
    ),
    (
        "assign {begun} {data}/rows.npy -o {new}",
        2,
        "{begun} is a run that is not finished; resume it with `prcut fit … --resume`.",
    ),
    (
        "assign {run} {data}/narrow.npy -o {new}",
        2,
        "data has n_features=3 columns, the model was fitted to 8.",
    ),
    (
        "assign {run} {data}/rows.npy -o {new} --top 9",
        2,
        "--top 9 must be from 0 to n_clusters=4.",
    ),
    (
        "assign {run} {data}/parts -o {data}/parts",
        2,
        "{data}/parts holds other files; choose a new or empty folder.",
    ),
    (
        "assign {broken}/model {data}/rows.npy -o {new}",
        3,
        "{broken}/model/config.json is not JSON: Expecting value: line 1 column 1 (char 0). "
        "Save or download the model again.",
    ),
    ("info nowhere", 2, "nowhere does not exist."),
    (
        "info {data}/empty",
        2,
        "{data}/empty is not a run, model, graph, blocks, labels or data folder.",
    ),
    ("info {newer}", 2, "{newer} has format 9, this version reads up to 1; upgrade prcut."),
    (
        "fit {data}/rows.npy -k 4 -o {newer} --resume",
        2,
        "{newer} has format 9, this version reads up to 1; upgrade prcut.",
    ),
    (
        "export {run}",
        2,
        "nothing to export: give --onnx FILE, --hub REPO_ID or --centroids FILE.",
    ),
    (
        "graph {data}/rows.npy -o {run}/graph --neighbors 7",
        2,
        "{run}/graph holds other files; choose a new or empty folder.",
    ),
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
    (data / "empty").mkdir()
    np.save(data / "nan.npy", np.array([[0.0], [1.0], [2.0], [np.nan], [4.0]], np.float32))
    np.save(data / "narrow.npy", np.zeros((5, 3), np.float32))
    names = {name: str(others / name) for name in ("newer", "begun", "broken", "new")}
    return {"data": str(data), "run": str(run), "cwd": str(Path.cwd()), **names}


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
