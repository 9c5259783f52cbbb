"""Files of strangers run no code, stay in their folder and allocate no more than they hold."""

import atexit
import hashlib
import importlib
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from benchmarks._fuzz_readers import READERS
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from prcut import Assigner, PRCut
from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.runtime.folder import Folder, plan_key
from prcut.runtime.sources import open_source
from prcut.training.assigner.saved import load_model, save_model
from prcut.ui.cli.info import describe_path
from prcut.ui.cli.shared import as_lines

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/prcut"


@cache
def _once(kind: str) -> Path:
    path = Path(mkdtemp(prefix="prcut-")) / kind
    atexit.register(shutil.rmtree, path.parent)
    READERS[kind].make(path)
    return path


def made(kind: str, path: Path) -> Path:
    """A small valid artefact of a kind."""
    return Path(shutil.copytree(_once(kind), path))


def read(kind: str, path: Path) -> None:
    READERS[kind].read(path)


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the content of a JSON file."""
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def forge(folder: Path, name: str, content: bytes) -> None:
    """Put content into a file, and its size and checksum into every record of it."""
    file = folder / name
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    new = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def resealed(value: Any) -> Any:
        if isinstance(value, dict):
            if value.get("sha256") == old:
                return {**value, **new}
            return {key: resealed(one) for key, one in value.items()}
        return [resealed(one) for one in value] if isinstance(value, list) else value

    file.write_bytes(content)
    for record in folder.rglob("*.json"):
        rewrite(record, lambda found: _summed(resealed(found)))


def _summed(record: Any) -> Any:
    """Return a record with the checksum of itself, where it has one."""
    if not isinstance(record, dict) or "checksum" not in record:
        return record
    rest = {name: value for name, value in record.items() if name != "checksum"}
    return {**rest, "checksum": plan_key(rest)}


# -- no code of strangers is run -----------------------------------------------------------------


def test_the_source_opens_no_pickle() -> None:
    """What the linter's security rules (``S``) do not tell."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert "allow_pickle=True" not in text, path
        assert not re.search(r"(import|from) (dill|cloudpickle|joblib|shelve)\b", text), path
        # weights of other projects' encoders, in the only format they have
        n_loads = text.count("torch.load(")
        assert n_loads == text.count("weights_only=True"), path
        assert n_loads == 0 or path.name == "embed.py", path


# -- nothing leads out of the folder -------------------------------------------------------------

OUTSIDE = ["../secret", "/etc/passwd", "..", "a\\b", ".hidden", "", "nul\0", "é" * 200, "\ud800"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_in_records_do_not_lead_out(tmp_path: Path, name: str) -> None:
    graph = made("graph", tmp_path / "graph")
    files = {name: {"size": 1, "sha256": ""}}
    rewrite(graph / "graph.json", lambda record: {**record, "files": files})
    with pytest.raises(CorruptFileError, match="is not a plain file name"):
        read("graph", graph)
    with pytest.raises(CorruptFileError, match="is not a plain file name"):
        Folder(graph) / name


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_links_out_of_a_model_are_refused(tmp_path: Path, name: str) -> None:
    model = made("model", tmp_path / "model")
    (model / name).rename(tmp_path / "elsewhere")
    (model / name).symlink_to("../elsewhere")
    with pytest.raises(CorruptFileError, match=r"is a link out of its folder, to .*elsewhere"):
        load_model(model)
    # one that stays inside, and a folder that is itself a link, are the owner's to make
    (tmp_path / "elsewhere").rename(model / "other")
    (model / name).unlink()
    (model / name).symlink_to("other")
    (tmp_path / "linked").symlink_to(model)
    load_model(tmp_path / "linked")


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    model = made("model", tmp_path / "model")
    (model / "model.safetensors").unlink()
    os.mkfifo(model / "model.safetensors")
    with pytest.raises(CorruptFileError, match="is missing"):
        load_model(model)
    os.mkfifo(tmp_path / "rows.npy")
    with pytest.raises(InvalidInputError, match="is not a file"):
        open_source(tmp_path / "rows.npy")


def test_writing_and_removing_leave_the_ends_of_links_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors", "README.md"):
        (model / name).symlink_to(precious / "file")
    with pytest.raises(PRCutError):
        save_model(model, Assigner(3, 2), {})
    (model / "config.json").unlink()
    save_model(model, Assigner(3, 2), {})
    (tmp_path / "run").mkdir()
    (tmp_path / "run/exchange").symlink_to(precious)
    (Folder(tmp_path / "run") / "exchange").delete()
    assert (precious / "file").read_text() == "mine"


# -- altered and forged files --------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzz() -> Iterator[ModuleType]:
    """``benchmarks/fuzz.py``, which is a script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("fuzz")


# how often each reader is tried here: the slow ones less, and all of them 20,000 times a week
N_EXAMPLES = {
    **dict.fromkeys(("json", "storage", "status", "npy", "graph", "model", "checkpoint"), 150),
    **dict.fromkeys(("estimator", "run", "parquet"), 40),
    "labels": 15,
    "report": 3,
}


@pytest.mark.costly("every reader of files, altered at random")
@pytest.mark.filterwarnings("ignore")  # a result with a warning is a result
@pytest.mark.parametrize("kind", N_EXAMPLES)
def test_altered_bytes_and_forged_fields_end_in_a_result_or_a_worded_error(
    kind: str, tmp_path: Path, fuzz: ModuleType
) -> None:
    """Checksums are made to fit again in three of four cases, as a forger would."""
    path = made(kind, tmp_path / kind)
    files = fuzz.Files(path)

    @settings(max_examples=N_EXAMPLES[kind], derandomize=True, deadline=None)
    @given(st.randoms(use_true_random=True))
    def check(rng: random.Random) -> None:
        try:
            fuzz.spoil(files, rng)
            read(kind, path)
        except (PRCutError, FileNotFoundError):  # the second names a file that was removed
            pass
        finally:
            fuzz._tidy(path, files, READERS[kind].writes)

    check()


@pytest.mark.parametrize("kind", ["estimator", "report"])
def test_an_altered_byte_never_changes_the_answer(kind: str, tmp_path: Path) -> None:
    """Labels of a run are left out: they are read by ranges of rows, without a checksum."""
    path = made(kind, tmp_path / kind)
    rows = np.random.default_rng(1).normal(size=(20, 3))
    names = sorted(file for file in path.rglob("*") if file.is_file())
    expected = PRCut.load(path).predict_proba(rows)

    @settings(max_examples=100, derandomize=True, deadline=None)
    @given(st.sampled_from(names), st.integers(0, 10**6), st.integers(1, 255))
    def check(file: Path, position: int, difference: int) -> None:
        whole = file.read_bytes()
        spoilt = bytearray(whole)
        if spoilt:
            spoilt[position % len(spoilt)] ^= difference
        file.write_bytes(spoilt)
        try:
            np.testing.assert_array_equal(PRCut.load(path).predict_proba(rows), expected)
        except PRCutError:
            pass
        finally:
            file.write_bytes(whole)

    check()


def put(place: Any, value: Any) -> Callable[[np.ndarray], None]:
    return lambda array: array.__setitem__(place, value)


# arrays whose checksums are right: what would point out of them, or carry NaN on
FORGED = [
    ("graph", "indices.npy", [put(0, 8), put(0, -1), put(0, 2**62)]),
    ("graph", "indptr.npy", [put(1, 2**40), put(0, 1), put(-1, 0), lambda array: array[:, None]]),
    ("graph", "values.npy", [put(0, np.nan), put(0, -1), lambda array: array[:-1]]),
]


@pytest.mark.parametrize(("kind", "name", "changes"), FORGED)
def test_forged_arrays_are_refused(
    tmp_path: Path, kind: str, name: str, changes: list[Callable[[np.ndarray], Any]]
) -> None:
    for number, change in enumerate(changes):
        path = made(kind, tmp_path / str(number))
        for file in path.glob(name):
            array = np.load(file).copy()
            found = change(array)
            content = io.BytesIO()
            np.save(content, array if found is None else found)
            forge(path, str(file.relative_to(path)), content.getvalue())
        with pytest.raises(CorruptFileError):
            read(kind, path)


@pytest.mark.parametrize(
    ("kind", "file", "name", "change"),
    [
        ("model", "model.safetensors", "body.0.scale", lambda tensor: 0 * tensor),
        ("model", "model.safetensors", "head.bias", lambda tensor: tensor + float("inf")),
        ("checkpoint", "", "optimizer.0.exp_avg", lambda tensor: tensor.flatten()[:1]),
        ("checkpoint", "", "optimizer.0.exp_avg_sq", lambda tensor: -tensor - 1),
        ("checkpoint", "", "assigner.head.bias", lambda tensor: tensor * float("nan")),
        ("checkpoint", "", "history.cut", lambda tensor: tensor[:0]),
    ],
)
def test_forged_tensors_are_refused(
    tmp_path: Path, kind: str, file: str, name: str, change: Callable[[Any], Any]
) -> None:
    path, file = made(kind, tmp_path / kind), file or "checkpoint-000000010.safetensors"
    tensors = load((path / file).read_bytes())
    forge(path, file, save({**tensors, name: change(tensors[name]).contiguous()}))
    with pytest.raises(CorruptFileError, match=r"gives NaN or infinity|does not fit this run"):
        read(kind, path)


@pytest.mark.parametrize(
    ("kind", "file", "change", "message"),
    [
        ("report", "result.json", {"balance_weight": []}, r"result\.json is altered or forged"),
        ("report", "plan.json", {"seed": "many"}, r"plan\.json.* is altered or forged"),
        ("report", "plan.json", {"data": "rows\0.parquet"}, "holds a NUL character"),
        ("status", "status/train.json", {"stage": "\x1b[2J"}, "altered or forged"),
        ("status", "status/train.json", {"seconds_left": float("inf")}, "altered or forged"),
        ("run", "plan.json", {"n_samples": "many"}, "is altered or forged"),
    ],
)
def test_forged_fields_are_named(
    tmp_path: Path, kind: str, file: str, change: dict[str, Any], message: str
) -> None:
    path = made(kind, tmp_path / kind)
    rewrite(path / file, lambda content: {**content, **change})
    with pytest.raises(PRCutError, match=message):
        read(kind, path)


def test_forged_plans_are_never_printed_as_they_are(tmp_path: Path) -> None:
    run = made("run", tmp_path / "run")
    rewrite(run / "plan.json", lambda plan: {**plan, "data": "\x1b]0;owned\x07\ud800\n"})
    assert all(map(str.isprintable, as_lines(describe_path(run)).splitlines()))
