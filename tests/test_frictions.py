"""What drove new users away, each as a test of that name: it must stay mended."""

import inspect
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from sklearn.datasets import make_blobs

from prcut import PRCut
from prcut.errors import DataWarning, InvalidInputError
from prcut.ui.cli.commands import app, main

ROOT = Path(__file__).parent.parent
ROWS = make_blobs(400, 6, centers=4, cluster_std=2, random_state=2)[0].astype(np.float32)
QUICK = ["--steps", "30", "--n-init", "1", "--neighbors", "8", "--device", "cpu", "--quiet"]
CaptureFixture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows as a column of lists beside texts and classes, and as wide columns."""
    folder = tmp_path_factory.mktemp("data")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.reshape(-1)), 6)
    columns = {"e": lists, "text": [f"text {n}" for n in range(400)], "class": [0, 1] * 200}
    pq.write_table(pa.table(columns), folder / "lists.parquet")
    wide = {f"f{number}": ROWS[:, number] for number in range(6)}
    pq.write_table(pa.table({"name": columns["text"], **wide}), folder / "wide.parquet")
    return folder


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    assert main(["fit", f"{data}/lists.parquet", "-k", "4", "-o", str(path), *QUICK]) == 0
    return path


def object_of(arguments: list[str], capsys: CaptureFixture, code: int = 0) -> dict[str, Any]:
    """The one object on standard output of a command."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


# -- scripts -------------------------------------------------------------------------------------

KINDS = {"string": str, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def schema() -> dict[str, dict[str, Any]]:
    """Return the types of the fields by command that docs/guide/production.md promises."""
    page = (ROOT / "docs/guide/production.md").read_text("utf-8")
    found: dict[str, dict[str, Any]] = {}
    for command, fields, kind in re.findall(r"^\| `(\w+)` \| (.+?) \| (\w+) \|", page, re.M):
        names = re.findall(r"`(\w+)`", fields)
        if names and not fields.startswith("1"):
            found.setdefault(command, {}).update(dict.fromkeys(names, KINDS.get(kind)))
    return found


def test_every_command_has_json_and_its_schema_is_on_the_page() -> None:
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        assert "--json" in {flag for option in command.params for flag in option.opts}, name
        assert schema().get(name), f"docs/guide/production.md does not say what prcut {name} prints"


@pytest.mark.costly("every command")
def test_every_command_prints_one_object_as_the_page_says(
    data: Path, run: Path, tmp_path: Path, capsys: CaptureFixture
) -> None:
    rows = f"{data}/lists.parquet"
    commands = [
        ["fit", rows, "-k", "3", "-o", f"{tmp_path}/run", "--outliers", ".1", *QUICK],
        ["assign", f"{tmp_path}/run", rows, "-o", f"{tmp_path}/labels", "-q"],
        *(["info", one] for one in (rows, str(run), f"{run}/model", f"{run}/labels")),
        ["status", str(run)],
        ["plan", "--rows", "1e6", "--dim", "8", "-k", "10"],
        ["doctor"],
        ["update", str(run), rows, "-o", f"{tmp_path}/next", "-q"],
        ["explain", str(run), "--rows", "0,1"],
        ["dedup", rows, "-o", f"{tmp_path}/unique", "-q"],
        ["sample", str(run), "--size", "9", "-o", f"{tmp_path}/drawn", "-q"],
        ["export", str(run), "--centroids", f"{tmp_path}/centroids.parquet"],
    ]
    for arguments in commands:
        found, expected = object_of(arguments, capsys), schema()[arguments[0]]
        for name, value in found.items():
            if name in expected or arguments[0] != "info":
                assert isinstance(value, expected[name]), (arguments[0], name, value)
    stage = object_of(["status", str(run)], capsys)["stages"][0]
    page = (ROOT / "docs/guide/production.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in stage)


def test_a_failure_is_one_object_too(tmp_path: Path, capsys: CaptureFixture) -> None:
    found = object_of(["info", f"{tmp_path}/nowhere"], capsys, code=2)
    assert found == {"error": f"{tmp_path}/nowhere does not exist.", "exit_code": 2}
    assert object_of(["frobnicate"], capsys, code=2)["exit_code"] == 2


def test_overwrite_replaces_a_run_and_nothing_else(
    data: Path, tmp_path: Path, capsys: CaptureFixture
) -> None:
    rows, path = f"{data}/lists.parquet", tmp_path / "run"
    fit = ["fit", rows, "-o", str(path), *QUICK, "--overwrite"]
    assert main([*fit, "-k", "2"]) == 0  # where there is nothing yet
    assert main([*fit, "-k", "3"]) == 0
    assert json.loads((path / "plan.json").read_text())["n_clusters"] == 3
    assert main([*fit, "-k", "3", "--resume"]) == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    capsys.readouterr()
    assert main(["fit", rows, "-k", "2", "-o", f"{tmp_path}/mine", *QUICK, "--overwrite"]) == 2
    assert "holds no run, and" in capsys.readouterr().err
    assert (tmp_path / "mine/letter.txt").exists()
    # data inside the run that would be removed
    (path / "rows.npy").write_bytes(b"")
    assert main(["fit", f"{path}/rows.npy", "-k", "2", "-o", str(path), "--overwrite"]) == 2
    assert "which --overwrite would remove" in capsys.readouterr().err
    assert (path / "plan.json").exists()


# -- Python --------------------------------------------------------------------------------------


def test_rows_of_1e_30_do_not_end_in_noise_without_a_word() -> None:
    with pytest.raises(InvalidInputError, match=r"differ by \d\.\de-29 at most.*scale the"):
        PRCut(4).fit(ROWS * np.float64(1e-30))
    labels = PRCut(4, random_state=0).fit_predict(ROWS * 1e-12)
    np.testing.assert_array_equal(labels, PRCut(4, random_state=0).fit_predict(ROWS * 1.0))


# -- warnings ------------------------------------------------------------------------------------


def warned(rows: np.ndarray, **options: Any) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PRCut(4, random_state=0, **options).fit_predict(rows)
    return [one for one in caught if issubclass(one.category, DataWarning)]


def test_warnings_come_by_share() -> None:
    few, many = ROWS.copy(), ROWS.copy()
    few[1:4], many[1:5] = few[0], many[0]  # under 1 % of 400 rows, and 1 %
    assert warned(few) == []
    assert "4 of 400 rows repeat" in str(warned(many)[0].message)
    wide = np.random.default_rng(0).normal(size=(120, 150))
    wide[:, 0] = 1
    assert warned(wide, n_neighbors=20) == []
    wide[:, 1] = 1
    assert "2 of 150 columns are constant" in str(warned(wide, n_neighbors=20)[0].message)


def test_warnings_come_once_at_the_users_line() -> None:
    rows = np.hstack([ROWS, np.ones((400, 1))])
    found = warned(rows)
    assert len(found) == 1
    assert found[0].filename == __file__
    lines, first = inspect.getsourcelines(warned)
    assert "fit_predict(rows)" in lines[found[0].lineno - first]


def test_texts_are_told_to_be_embedded_first() -> None:
    with pytest.raises(InvalidInputError, match=r"X has texts, such as 'lost card'.*prcut\.embed"):
        PRCut(2).fit(["lost card", "new card", "exchange rate"])
