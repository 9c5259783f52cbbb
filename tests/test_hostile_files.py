"""Files of strangers run no code, stay in their folder and allocate no more than they hold."""

import ast
import atexit
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from benchmarks._fuzz_readers import READERS
from safetensors.torch import load, save

from prcut import Assigner, PRCut
from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.graph.saved import load_graph
from prcut.pipeline.outofcore.blocks import open_blocks
from prcut.runtime import parquet_source
from prcut.runtime.folder import Folder
from prcut.runtime.progress import read_status
from prcut.runtime.sources import open_source, read_all
from prcut.training.assigner.hub import push_to_hub
from prcut.training.assigner.saved import load_model, save_model
from prcut.ui.cli.info import describe_path, show_rows
from prcut.ui.report.report import write_report

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
        rewrite(record, resealed)


def forge_array(folder: Path, name: str, change: Callable[[np.ndarray], Any]) -> None:
    """Change the array in a .npy file, checksums included."""
    array = np.load(folder / name).copy()
    found = change(array)
    np.save(folder / "forged.npy", array if found is None else found)
    content = (folder / "forged.npy").read_bytes()
    (folder / "forged.npy").unlink()
    forge(folder, name, content)


def forge_tensors(folder: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the tensors in a safetensors file, checksums included."""
    tensors = load((folder / name).read_bytes())
    change(tensors)
    forge(folder, name, save(tensors))


# -- no code of strangers is run -----------------------------------------------------------------

# what unpickles, or runs text
_DANGEROUS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}


def test_the_source_opens_no_pickle() -> None:
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", "") or ""}
                found = {name.split(".")[0] for name in names} & _DANGEROUS
                # to catch the error of torch's restricted reader
                assert not found or (path.name, found) == ("load.py", {"pickle"}), path
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "pickle":
                assert node.attr == "UnpicklingError", path
            if isinstance(node, ast.Call):
                _check_call(path, node)


def _check_call(path: Path, call: ast.Call) -> None:
    options = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
    name = ast.unparse(call.func)
    assert name not in ("eval", "exec", "compile", "__import__", "os.system"), path
    assert options.get("allow_pickle", False) is False, path
    if name in ("np.load", "numpy.load"):
        assert options["allow_pickle"] is False, path
    if name == "torch.load":  # weights of other projects' encoders, in the only format they have
        assert path.name == "packaged.py"
        assert options["weights_only"] is True


AUDITED = """
import pickle, sys, tempfile
from pathlib import Path
seen = []
sys.addaudithook(lambda event, arguments: event == "pickle.find_class" and seen.append(arguments))
pickle.loads(pickle.dumps(Path("x")))
assert seen, "the hook does not see pickles"
from benchmarks._fuzz_readers import READERS
with tempfile.TemporaryDirectory() as folder:
    for name, reader in READERS.items():
        reader.make(Path(folder, name))
    seen.clear()
    for name, reader in READERS.items():
        reader.read(Path(folder, name))
sys.exit(f"unpickled {seen}" if seen else 0)
"""


def test_no_reader_opens_a_pickle() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(SOURCE.parent)])}
    command = [sys.executable, "-W", "ignore", "-c", AUDITED]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_the_oldest_dependencies_allowed_have_no_known_fault_in_what_is_called() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    # CVE-2023-47248, code in the metadata of Parquet
    found = re.search(r'"pyarrow>=([\d.]+)"', text)
    assert found
    assert tuple(map(int, found[1].split("."))) >= (14, 0, 1)


def test_spoilt_files_end_in_a_result_or_a_worded_error() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/fuzz.py"), "--quick", "--count", "600"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert run.returncode == 0, run.stdout + run.stderr


# -- nothing leads out of the folder -------------------------------------------------------------

OUTSIDE = [
    *("../secret", "/etc/passwd", "..", ".", "a/b", "a\\b", ".hidden", "", "nul\0"),
    *("é" * 200, "\ud800", 3, None),
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_in_records_do_not_lead_out(tmp_path: Path, name: Any) -> None:
    blocks = made("blocks", tmp_path / "blocks")
    manifest = json.loads((blocks / "manifest.json").read_text())
    manifest["blocks"][0]["name"] = name
    (blocks / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptFileError, match="is not a plain file name"):
        open_blocks(blocks)
    files = {str(name): {"size": 1, "sha256": ""}}
    checkpoint = made("checkpoint", tmp_path / "checkpoint")
    rewrite(checkpoint / "checkpoint.json", lambda record: {**record, "files": files})
    graph = made("graph", tmp_path / "graph")
    rewrite(graph / "graph.json", lambda record: {**record, "files": files})
    for kind, path in (("checkpoint", checkpoint), ("graph", graph)):
        if isinstance(name, str):
            with pytest.raises(CorruptFileError, match="is not a plain file name"):
                read(kind, path)


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


def test_caches_of_the_hub_may_link_to_their_blobs_and_nowhere_else(tmp_path: Path) -> None:
    model = made("model", tmp_path / "model")
    snapshot, blobs = tmp_path / "repo/snapshots/abc", tmp_path / "repo/blobs"
    snapshot.mkdir(parents=True)
    model.rename(blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    load_model(snapshot)
    blobs.rename(tmp_path / "private")
    blobs.symlink_to(tmp_path / "private")
    with pytest.raises(CorruptFileError, match="is a link out of its folder"):
        load_model(snapshot)


def test_a_card_that_is_a_link_is_not_uploaded(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="the client of the Hub")
    model = made("model", tmp_path / "model")
    (tmp_path / "key").write_text("secret")
    (model / "README.md").unlink()
    (model / "README.md").symlink_to(tmp_path / "key")
    with pytest.raises(CorruptFileError, match=r"README\.md is a link out of its folder"):
        push_to_hub(model, "someone/model", token="unused")  # noqa: S106


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


# -- forged sizes cost nothing -------------------------------------------------------------------


@pytest.fixture
def _little_memory(tmp_path: Path) -> Any:
    """Less than 50 MB, whatever a file declares."""
    # what is imported with the first model is no file's doing
    made("model", tmp_path / "first")
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5e7


def npy(header: str, numbers: bytes = b"") -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + numbers


HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 3)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000000000000000, 0)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -6)}",
    "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000, 3)}",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
    "{'descr': '<f4', 'shape': " + "(" * 5000,
    "__import__('os').system('true')",
]


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize("header", HEADERS)
def test_forged_arrays_are_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.npy").write_bytes(npy(header, bytes(24)))
    for reads in (Folder(tmp_path).read_array, Folder(tmp_path).map_array):
        with pytest.raises(CorruptFileError, match=r"a\.npy"):
            reads("a.npy")
    if "True" not in header:  # columns in order are fine for rows that are read by us
        with pytest.raises(InvalidInputError):
            read_all(open_source(tmp_path / "a.npy"))


@pytest.mark.parametrize("content", [b"PK\x03\x04", b"\x80\x04N.", b"", b"\x93NUMPY"])
def test_archives_and_pickles_are_no_arrays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"cannot be read as a \.npy file"):
        open_source(tmp_path / "a.npy")


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str, shape: list[int], *offsets: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    "content",
    [
        safetensors({}, length=2**63),
        safetensors({}, length=10**12),
        safetensors({"logits": entry("F32", [10**12, 2], 0, 8 * 10**12)}),
        safetensors({"logits": entry("F32", [2**32, 2**32], 0, 0)}),
        safetensors({"logits": entry("F32", [5, 2], 0, 40), "b": entry("F32", [5, 2], 20, 60)}),
        safetensors({"logits": entry("F32", [5, 2], 40, 0)}, bytes(40)),
        safetensors({"logits": entry("F64", [5, 2], 0, 40)}, bytes(40)),
        safetensors({"logits": entry("F8_E4M3", [5, 2], 0, 10)}, bytes(10)),
        safetensors({"logits": entry("I64", [5, 2], 0, 80)}, bytes(80)),
        safetensors({"logits": entry("pickle", [5, 2], 0, 40)}, bytes(40)),
        safetensors(b"[" * 100_000),
        safetensors({"logits": entry("F32", [5, 2], 0, 40)}, b"\xff" * 40),
    ],
)
def test_forged_tensors_are_refused(tmp_path: Path, content: bytes) -> None:
    model = made("model", tmp_path / "model")
    forge(model, "model.safetensors", content)
    with pytest.raises(CorruptFileError, match=r"model\.safetensors"):
        load_model(model)
    checkpoint = made("checkpoint", tmp_path / "checkpoint")
    forge(checkpoint, "checkpoint-000000010.safetensors", content)
    with pytest.raises(CorruptFileError, match="does not fit this run"):
        read("checkpoint", checkpoint)
    estimator = made("estimator", tmp_path / "estimator")
    forge(estimator, "fit.safetensors", content)
    with pytest.raises(CorruptFileError, match=r"fit\.safetensors"):
        PRCut.load(estimator)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("body.0.scale", 0.0),
        ("body.0.origin", float("nan")),
        ("body.0.parametrizations.weight.original1", 0.0),
        ("head.bias", float("inf")),
    ],
)
def test_models_that_give_nan_are_refused(tmp_path: Path, name: str, value: float) -> None:
    model = made("model", tmp_path / "model")
    forge_tensors(model, "model.safetensors", lambda tensors: tensors[name].fill_(value))
    with pytest.raises(CorruptFileError, match="gives NaN or infinity in place of logits"):
        load_model(model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_models_of_any_precision_predict(tmp_path: Path, dtype: torch.dtype) -> None:
    save_model(tmp_path, Assigner(3, 2, (4,)).to(dtype), {})
    probs = PRCut.load(tmp_path).predict_proba(np.zeros((2, 3)))
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-5)


# -- JSON ----------------------------------------------------------------------------------------

BOMBS = [
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"files": ' + b"9" * 10_000 + b"}",
    b'{"files": 1e999999}',
    b'{"files": NaN}',
    b"\xff\xfe",
    b"null",
    b"3",
    b'"text"',
    b"[1]",
]


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize("content", BOMBS)
@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("model", "config.json"),
        ("checkpoint", "checkpoint.json"),
        ("graph", "graph.json"),
        ("blocks", "manifest.json"),
        ("status", "status/train.json"),
    ],
)
def test_json_that_is_not_a_record_is_refused(
    tmp_path: Path, kind: str, file: str, content: bytes
) -> None:
    path = made(kind, tmp_path / kind)
    (path / file).write_bytes(content)
    with pytest.raises(PRCutError, match=str(path)):
        read(kind, path)


def test_of_a_key_that_is_there_twice_the_one_that_is_checked_is_used(tmp_path: Path) -> None:
    model = made("model", tmp_path / "model")
    text = (model / "config.json").read_text()
    again = text.replace('"n_features": 3', '"n_features": 1000000000000, "n_features": 3')
    assert again != text
    (model / "config.json").write_text(again)
    assert load_model(model).assigner.n_clusters == 2
    swapped = text.replace('"n_features": 3', '"n_features": 3, "n_features": 1000000000000')
    (model / "config.json").write_text(swapped)
    with pytest.raises(CorruptFileError, match=r"does not fit config\.json"):
        load_model(model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("total", "9"),
        ("done", None),
        ("seconds_left", float("inf")),
        ("stage", 3),
        ("stage", "\x1b[2J"),
        ("time", []),
    ],
)
def test_forged_status_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    run = made("status", tmp_path / "run")
    rewrite(run / "status/train.json", lambda status: {**status, name: value})
    with pytest.raises(CorruptFileError, match=r"train\.json is altered or forged"):
        read_status(run)


def test_forged_plans_are_refused_and_never_counted_up_to(tmp_path: Path) -> None:
    run = made("run", tmp_path / "run")
    rewrite(run / "plan.json", lambda plan: {**plan, "n_init": 10**12})
    assert len([name for name in describe_path(run) if name.startswith("stage start")]) == 100
    rewrite(run / "plan.json", lambda plan: {**plan, "data": "\x1b]0;owned\x07\ud800\n"})
    assert all(map(str.isprintable, show_rows(describe_path(run)).splitlines()))
    rewrite(run / "plan.json", lambda plan: {**plan, "n_samples": "many"})
    with pytest.raises(CorruptFileError, match="is altered or forged"):
        describe_path(run)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("result.json", {"objective": []}),
        ("result.json", {"ratio_cut": "low"}),
        ("result.json", {"seconds": {"graph": None}}),
        ("plan.json", {"seed": "x"}),
        ("plan.json", {"hidden": ["wide"]}),
        ("plan.json", {"column": 3}),
        ("graph/graph.json", {"n_neighbors": {}}),
    ],
)
def test_reports_of_forged_runs_are_refused(
    tmp_path: Path, file: str, change: dict[str, Any]
) -> None:
    run = made("report", tmp_path / "run")
    write_report(run, tmp_path / "report.html")
    rewrite(run / file, lambda content: {**content, **change})
    with pytest.raises(CorruptFileError, match=f"{file} is altered or forged"):
        write_report(run, tmp_path / "report.html")


def test_runs_that_name_no_path_as_their_data_are_refused(tmp_path: Path) -> None:
    run = made("report", tmp_path / "run")
    rewrite(run / "plan.json", lambda plan: {**plan, "data": "rows\0.parquet"})
    with pytest.raises(InvalidInputError, match="holds a NUL character"):
        write_report(run, tmp_path / "report.html")


def test_spoilt_histories_are_refused(tmp_path: Path) -> None:
    run = made("report", tmp_path / "run")
    table = pq.read_table(run / "history.parquet")
    broken = [(run / "history.parquet").read_bytes()[:-9]]
    for values in (pa.array([np.nan] * len(table)), pa.array(["x"] * len(table))):
        sink = pa.BufferOutputStream()
        pq.write_table(table.set_column(1, table.column_names[1], values), sink)
        broken.append(sink.getvalue().to_pybytes())
    for content in broken:
        (run / "history.parquet").write_bytes(content)
        with pytest.raises(CorruptFileError, match=r"history\.parquet cannot be read"):
            write_report(run, tmp_path / "report.html")


@pytest.mark.parametrize(
    "part",
    [
        {"parameters": {"hidden": 3}},
        {"parameters": {"random_state": "x"}},
        {"parameters": {"device": "meta"}},
        {"parameters": {"device": []}},
        {"parameters": {"affinity": "precomputed"}},
        {"fitted": {"n_features_in_": 10**9}},
        {"fitted": {"feature_names_in_": [["a"]]}},
        {"fitted": {"objective_": "low"}},
        {"merge_tree": {"children": [[0, 9]], "costs": [0.1]}},
        {"merge_tree": {"children": [[0, 1]], "costs": ["low"]}},
        {"merge_tree": {"children": [[0, 1]], "costs": [0.1]}, "layers": [2, 5]},
        {"cluster_ids": [0, 0], "n_ids": 3},
        {"cluster_ids": [0, 3], "n_ids": 3},
        {"cluster_ids": [0, 1]},
    ],
)
def test_forged_descriptions_are_refused(tmp_path: Path, part: dict[str, Any]) -> None:
    save_model(tmp_path, Assigner(3, 2), part)
    with pytest.raises(PRCutError):
        PRCut.load(tmp_path)


# -- arrays whose checksums are right ------------------------------------------------------------


def put(place: Any, value: Any) -> Callable[[np.ndarray], None]:
    return lambda array: array.__setitem__(place, value)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("indices", put(0, 8)),
        ("indices", put(0, -1)),
        ("indices", put(0, 2**62)),
        ("indptr", put(1, 2**40)),
        ("indptr", put(0, 1)),
        ("indptr", put(1, -1)),
        ("indptr", put(-1, 0)),
        ("indptr", lambda array: array.astype(np.int32)),
        ("indptr", lambda array: array[:0]),
        ("indptr", lambda array: array[:, None]),
        ("values", put(0, np.nan)),
        ("values", put(0, np.inf)),
        ("values", put(0, -1)),
        ("values", lambda array: array.astype(np.complex64)),
        ("values", lambda array: array[:-1]),
    ],
)
def test_graphs_that_point_out_of_their_arrays_are_refused(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], Any]
) -> None:
    graph = made("graph", tmp_path / "graph")
    forge_array(graph, f"{name}.npy", change)
    with pytest.raises(CorruptFileError):
        load_graph(graph)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("neighbors", put((0, 0), 10**6)),
        ("neighbors", put((0, 0), -2)),
        ("neighbors", lambda array: array[1:]),
        ("neighbors", lambda array: array.astype(np.float32)),
        ("anchors", put(0, 10**6)),
        ("anchors", put(0, -1)),
        ("distances", lambda array: array.ravel()),
        ("features", put((0, 0), np.nan)),
        ("features", lambda array: array[:, :-1]),
        ("rows", lambda array: array[:-1]),
    ],
)
def test_blocks_that_point_out_of_their_arrays_are_refused(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], Any]
) -> None:
    blocks = made("blocks", tmp_path / "blocks")
    forge_array(blocks, f"block-00000/{name}.npy", change)
    with pytest.raises(CorruptFileError, match="block-00000"):
        open_blocks(blocks)[0]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("optimizer.0.exp_avg", lambda tensor: tensor.flatten()[:1]),
        ("optimizer.0.exp_avg", lambda tensor: tensor.half()),
        ("optimizer.0.exp_avg_sq", lambda tensor: -tensor - 1),
        ("optimizer.0.step", lambda tensor: tensor.repeat(2)),
        ("assigner.head.bias", lambda tensor: tensor * float("nan")),
        ("mass.running", lambda tensor: tensor[:1]),
        ("history.cluster_sizes", lambda tensor: tensor[:, :1]),
        ("history.cut", lambda tensor: tensor[:0]),
    ],
)
def test_forged_checkpoints_are_refused(
    tmp_path: Path, name: str, change: Callable[[Any], Any]
) -> None:
    checkpoint = made("checkpoint", tmp_path / "checkpoint")
    forge_tensors(
        checkpoint,
        "checkpoint-000000010.safetensors",
        lambda tensors: tensors.update({name: change(tensors[name]).contiguous()}),
    )
    with pytest.raises(CorruptFileError, match="does not fit this run"):
        read("checkpoint", checkpoint)


# -- Parquet -------------------------------------------------------------------------------------


def write(path: Path, **columns: pa.Array) -> None:
    pq.write_table(pa.table(columns), path)


LISTS = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32()))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"e": pa.array([1.0, 2.0]), "id": pa.array([1, 2])}, "expected lists of floats"),
        ({"e": pa.array([["a"], ["b"]]), "id": pa.array([1, 2])}, "expected lists of floats"),
        ({"e": LISTS, "id": pa.array([1.5, 2.5])}, "expected integers or strings"),
        ({"e": LISTS, "id": pa.array(["a", "b"])}, "make them the same"),
        ({"e": LISTS}, "has no column 'id'"),
    ],
)
def test_files_of_one_folder_must_be_of_one_kind(
    tmp_path: Path, columns: dict[str, pa.Array], message: str
) -> None:
    write(tmp_path / "0.parquet", e=LISTS, id=pa.array([1, 2]))
    write(tmp_path / "1.parquet", **columns)
    with pytest.raises(InvalidInputError, match=message):
        open_source(str(tmp_path), column="e", id_column="id")


def test_files_with_fewer_rows_than_they_say_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "0.parquet", e=LISTS)
    source = open_source(str(tmp_path))
    monkeypatch.setattr(source, "n_samples", 10**13)
    with pytest.raises(InvalidInputError, match="do not fit in memory"):
        read_all(source)
    monkeypatch.setattr(source, "n_samples", 3)
    with pytest.raises(CorruptFileError, match="hold fewer rows than they declare"):
        read_all(source)
    for n_rows, groups in ((3, [2]), (-1, [-1]), (2**62, [2**62])):
        with pytest.raises(CorruptFileError, match="it is altered or forged"):
            parquet_source._check_counts(n_rows, groups, 1000, "x")


def test_spoilt_pages_are_named(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", e=pa.array(np.random.default_rng(0).random((500, 2)).tolist()))
    content = bytearray((tmp_path / "0.parquet").read_bytes())
    content[4:24] = b"\xff" * 20  # the header of the first page
    (tmp_path / "0.parquet").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"0\.parquet cannot be read as Parquet"):
        read_all(open_source(str(tmp_path)))


# -- the network --------------------------------------------------------------------------------

LISTENING = """
import os, sys
import psutil, ray
from prcut.runtime.ray_engine import RayEngine
RayEngine().run("wait", lambda number, advance: advance(1), 2, total=2)
me = psutil.Process()
ends = [
    (process.name(), end.laddr.ip)
    for process in (me, *me.children(recursive=True))
    for end in process.net_connections("inet")
    if end.status == psutil.CONN_LISTEN
]
ray.shutdown()
print(ends)
outside = [end for end in ends if end[1].removeprefix("::ffff:") not in ("127.0.0.1", "::1")]
sys.exit(f"{outside} listen beyond this machine" if outside or len(ends) < 3 else 0)
"""


def test_a_cluster_of_this_machine_listens_on_loopback_only() -> None:
    pytest.importorskip("ray", reason="the engine of clusters")
    pytest.importorskip("psutil", reason="tells which addresses are listened at")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LISTENING],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
