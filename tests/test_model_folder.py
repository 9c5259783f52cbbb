import base64
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch
import yaml
from safetensors.torch import load_file, save
from torch import Tensor

import prcut
from prcut.assigner import Assigner, LogitTable
from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.model_folder import _shapes, _sizes, load_from_hub, load_model, push_to_hub, save_model
from prcut.storage import Folder

MAKERS: dict[str, Callable[[], Assigner | LogitTable]] = {
    "linear": lambda: Assigner(6, 3),
    "deep": lambda: Assigner(6, 3, hidden=(5, 4)),
    "bottleneck": lambda: Assigner(6, 3, hidden=(5,), bottleneck=2),
    "linear bottleneck": lambda: Assigner(6, 3, bottleneck=2),
    "table": lambda: LogitTable(9, 3),
}


def same(one: Assigner | LogitTable, other: Assigner | LogitTable) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(
        value.dtype == second[name].dtype and torch.equal(value, second[name])
        for name, value in first.items()
    )


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_models_come_back_bit_for_bit(tmp_path: Path, maker: str, dtype: torch.dtype) -> None:
    assigner = MAKERS[maker]().to(dtype)
    if isinstance(assigner, Assigner):
        assigner.standardize(torch.arange(6), 2.5)
    random_state = torch.get_rng_state()
    save_model(tmp_path / "model", assigner, {"scores": [1, 2.5], "name": "é"})
    loaded, description = load_model(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), random_state)
    assert description == {"scores": [1, 2.5], "name": "é"}
    assert type(loaded) is type(assigner)
    assert same(loaded, assigner)
    assert assigner.training
    assert not loaded.training
    assert [p.requires_grad for p in loaded.parameters()] == [True] * len(list(loaded.parameters()))
    batch = torch.tensor([0, 8]) if maker == "table" else torch.randn(4, 6).to(dtype)
    assert torch.equal(loaded.probs(batch), assigner.probs(batch))


@pytest.mark.parametrize("maker", MAKERS)
def test_declared_shapes_are_those_of_the_assigner(maker: str) -> None:
    assigner = MAKERS[maker]()
    found = {name: tuple(value.shape) for name, value in assigner.state_dict().items()}
    assert _shapes(_sizes(assigner)) == found


def test_the_folder_is_that_of_the_hub(tmp_path: Path) -> None:
    save_model(tmp_path, Assigner(6, 3, hidden=(5,)), {"a": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    content = (tmp_path / "model.safetensors").read_bytes()
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "format": 1,
        "library": "prcut",
        "version": prcut.__version__,
        "assigner": {
            "kind": "assigner",
            "n_features": 6,
            "n_clusters": 3,
            "hidden": [5],
            "bottleneck": None,
        },
        "description": {"a": 1},
        "files": {
            "model.safetensors": {
                "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        },
    }
    folder = Folder(tmp_path)
    record = folder.read_record("config.json")
    assert record is not None
    folder.verify(record)


def test_the_card_loads_the_model_and_stays_the_users(tmp_path: Path) -> None:
    save_model(tmp_path, Assigner(6, 3), {"a": 1})
    card = (tmp_path / "README.md").read_text()
    _, front, _ = card.split("---\n")
    assert yaml.safe_load(front) == {"library_name": "prcut", "tags": ["clustering", "prcut"]}
    (lines,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert len(lines.splitlines()) == 2
    names: dict[str, Any] = {}
    exec(lines.replace("name of this repository or folder", str(tmp_path)), names)  # noqa: S102
    assert names["description"] == {"a": 1}
    (tmp_path / "README.md").write_text("mine")
    save_model(tmp_path, Assigner(6, 2), {})
    assert (tmp_path / "README.md").read_text() == "mine"


def test_uris_work(tmp_path: Path) -> None:
    assigner = Assigner(6, 3)
    save_model(f"file://{tmp_path}/model", assigner, {})
    assert same(load_model(f"file://{tmp_path}/model").assigner, assigner)


# -- what is not saved -----------------------------------------------------------------------


class Altered(Assigner):
    pass


@pytest.mark.parametrize(
    ("assigner", "description", "message"),
    [
        (torch.nn.Linear(2, 2), {}, "of type Linear, expected Assigner or LogitTable"),
        (Altered(2, 2), {}, "of type Altered, expected Assigner"),
        (Assigner(2, 2), {"score": float("nan")}, "must be what JSON can hold"),
        (Assigner(2, 2), {"scores": torch.ones(2)}, "Tensor is not JSON serializable"),
        (Assigner(2, 2), {"a": 1, 2: 3}, "use str keys"),
        (Assigner(2, 2), [1], "of type list, expected a dict"),
    ],
)
def test_what_cannot_come_back_is_not_saved(
    tmp_path: Path, assigner: Any, description: Any, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        save_model(tmp_path / "model", assigner, description)
    assert not (tmp_path / "model").exists()


def test_an_altered_assigner_is_not_saved(tmp_path: Path) -> None:
    assigner = Assigner(6, 3)
    assigner.head = torch.nn.Linear(6, 4)
    with pytest.raises(InvalidInputError, match=r"it lacks the tensor head\.origin"):
        save_model(tmp_path, assigner, {})
    assigner = Assigner(6, 3)
    assigner.head.half()
    assigner.head.bias.data = assigner.head.bias.data.float()
    with pytest.raises(InvalidInputError, match="expected one floating dtype"):
        save_model(tmp_path, assigner, {})


@pytest.mark.parametrize("content", ['{"model_type": "bert"}', "{", "[]"])
def test_other_peoples_models_are_not_written_over(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidInputError, match=r"config\.json is not of a prcut model; choose"):
        save_model(tmp_path, Assigner(2, 2), {})
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == content
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidInputError, match="is a file, expected a folder or a new name"):
        save_model(file, Assigner(2, 2), {})


# -- killed in the middle --------------------------------------------------------------------


def saved(path: Path) -> Assigner:
    """A model in ``path``, with weights that no other one has."""
    assigner = Assigner(6, 3, generator=torch.Generator().manual_seed(1))
    save_model(path, assigner, {"number": 1})
    return assigner


@pytest.mark.parametrize("when", ["open", "write", "sync", "remove", "rename", "config"])
def test_killed_while_it_saves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Old model, new model or a worded refusal; never tensors that config.json does not mean."""
    old = saved(tmp_path)
    new = Assigner(6, 3, generator=torch.Generator().manual_seed(2))
    write_bytes, replace = Folder.write_bytes, os.replace

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def half_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
        yield next(pieces)[:100]
        raise KeyboardInterrupt

    def write_dies(folder: Folder, name: str, pieces: Iterator[Any]) -> dict[str, Any]:
        if when == "open" or (when == "config" and name == "config.json"):
            raise KeyboardInterrupt
        return write_bytes(folder, name, half_of(pieces) if when == "write" else pieces)

    def replace_checks(source: str, target: str) -> None:
        # at no moment may config.json describe other tensors than are there
        assert not (tmp_path / "config.json").exists()
        if when == "rename":
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write_bytes", write_dies)
        patch.setattr(os, "replace", replace_checks)
        if when == "remove":
            patch.setattr(Folder, "remove", dies)
        if when == "sync":
            patch.setattr("prcut.storage._sync", dies)
        with pytest.raises(KeyboardInterrupt):
            save_model(tmp_path, new, {"number": 2})
    if when in ("open", "write", "remove"):
        loaded, description = load_model(tmp_path)
        assert same(loaded, old)
        assert description == {"number": 1}
    else:
        with pytest.raises(InvalidInputError, match=r"no finished model \(no config\.json\)"):
            load_model(tmp_path)
    save_model(tmp_path, new, {"number": 2})  # and the next one goes through
    loaded, description = load_model(tmp_path)
    assert same(loaded, new)
    assert description == {"number": 2}


def test_tensors_of_another_model_are_refused(tmp_path: Path) -> None:
    """What a power cut could leave behind where the disk reorders: same sizes, other weights."""
    saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["head.bias"] += 1
    (tmp_path / "model.safetensors").write_bytes(save(tensors))
    with pytest.raises(CorruptFileError, match=r"model\.safetensors is cut off or altered"):
        load_model(tmp_path)


# -- forged and broken -----------------------------------------------------------------------


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="absent does not exist; pass a folder that save"):
        load_model(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="file is a file, expected a folder"):
        load_model(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="empty holds no finished model"):
        load_model(tmp_path / "empty")
    with pytest.raises(InvalidInputError, match="is not a URI that pyarrow knows"):
        load_model("nonsense://x")


def forge(path: Path, *keys: str, value: Any) -> None:
    """Set ``config[keys[0]][keys[1]]… = value``; ``...`` removes it."""
    config = json.loads((path / "config.json").read_text())
    inner = config
    for key in keys[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    (path / "config.json").write_text(json.dumps(config))


def put_tensors(path: Path, content: bytes) -> None:
    """Replace the tensors by what has the right checksum."""
    (path / "model.safetensors").write_bytes(content)
    record = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forge(path, "files", "model.safetensors", value=record)


@pytest.mark.parametrize("value", [2, 10**30])
def test_later_formats_are_refused(tmp_path: Path, value: int) -> None:
    saved(tmp_path)
    forge(tmp_path, "format", value=value)
    message = rf"has format {value}, this version reads up to 1; upgrade prcut\."
    with pytest.raises(InvalidInputError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize("value", ["bert", None, ...])
def test_models_of_other_libraries_are_refused(tmp_path: Path, value: Any) -> None:
    saved(tmp_path)
    forge(tmp_path, "library", value=value)
    with pytest.raises(InvalidInputError, match=r"config\.json is not of a prcut model \(library="):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b'{"format": NaN}', "is not JSON: NaN is not a number of JSON"),
        (b'{"format": 1, "description": {"score": -Infinity}}', "-Infinity is not a number"),
        (b'{"format": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"[]", "holds a list, expected an object"),
        (b"null", "holds a NoneType, expected an object"),
    ],
)
def test_config_that_is_not_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    saved(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CorruptFileError, match=rf"config\.json .*{message}"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["format"], "1", "has format='1', expected a whole number"),
        (["format"], True, "has format=True"),
        (["format"], 0, "has format=0"),
        (["format"], ..., "has format=None"),
        (["assigner"], ..., "lacks the object 'assigner'"),
        (["assigner"], [1], "lacks the object 'assigner'"),
        (["description"], "x", "lacks the object 'description'"),
        (["files"], ..., "lacks the object 'files'"),
        (["files"], {}, r"lists the files \[\], expected \['model.safetensors'\]"),
        (["files", "../../outside"], {"size": 1}, r"lists the files .*outside"),
        (["files", "/etc/passwd"], {"size": 1}, "lists the files .*passwd"),
        (["files"], {"../model.safetensors": {}}, r"lists the files \['\.\./model"),
        (["assigner", "kind"], "pickle", r"has assigner kind 'pickle', expected one of"),
        (["assigner", "kind"], ["table"], "has assigner kind"),
        (["assigner", "kind"], "table", "describes the assigner by"),
        (["assigner", "n_features"], ..., "describes the assigner by"),
        (["assigner", "device"], "cuda", "describes the assigner by"),
        (["assigner", "n_features"], -6, "has n_features=-6, expected whole numbers >= 1"),
        (["assigner", "n_clusters"], 3.0, r"has n_clusters=3\.0"),
        (["assigner", "n_clusters"], None, "has n_clusters=None"),
        (["assigner", "hidden"], 5, "has hidden=5"),
        (["assigner", "hidden"], [5, 0], r"has hidden=\[5, 0\]"),
        (["assigner", "bottleneck"], False, "has bottleneck=False"),
    ],
)
def test_forged_config_is_refused(
    tmp_path: Path, keys: list[str], value: Any, message: str
) -> None:
    saved(tmp_path)
    forge(tmp_path, *keys, value=value)
    with pytest.raises(CorruptFileError, match=rf"config\.json {message}"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "sizes",
    [
        {"n_features": 10**12},
        {"n_clusters": 10**30},
        {"hidden": [10**9, 10**9]},
        {"bottleneck": 10**9},
        {"n_features": 5},
    ],
)
def test_declared_sizes_are_compared_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, Any]
) -> None:
    saved(tmp_path)
    for name, value in sizes.items():
        forge(tmp_path, "assigner", name, value=value)

    def made(*_: object, **__: object) -> None:
        raise AssertionError("an assigner was made from forged sizes")

    monkeypatch.setattr("prcut.model_folder.Assigner", made)
    with pytest.raises(CorruptFileError, match=r"model\.safetensors does not fit config\.json"):
        load_model(tmp_path)


def test_forged_tables_are_refused_too(tmp_path: Path) -> None:
    save_model(tmp_path, LogitTable(9, 3), {})
    forge(tmp_path, "assigner", "n_samples", value=10**15)
    message = r"logits has shape \(9, 3\), expected \(1000000000000000, 3\)\. Save or download"
    with pytest.raises(CorruptFileError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "record",
    [None, {}, {"size": 5}, {"size": "x", "sha256": 3}, {"size": 0, "sha256": "0" * 64}, []],
)
def test_wrong_checksums_are_refused(tmp_path: Path, record: Any) -> None:
    saved(tmp_path)
    forge(tmp_path, "files", "model.safetensors", value=record)
    with pytest.raises(CorruptFileError, match=r"model\.safetensors is cut off or altered"):
        load_model(tmp_path)


def test_broken_tensors_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    file = tmp_path / "model.safetensors"
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[-1] ^= 1
    for broken in (content[:-4], b"", bytes(flipped), content + b"\0"):
        file.write_bytes(broken)
        with pytest.raises(CorruptFileError, match=r"model\.safetensors is cut off or altered"):
            load_model(tmp_path)
    file.unlink()
    with pytest.raises(CorruptFileError, match=r"model\.safetensors is missing\. Save or down"):
        load_model(tmp_path)


def header(text: str, data: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text.encode() + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04\x95pickled",
        (2**63).to_bytes(8, "little") + b"{}",
        header("not json"),
        header('{"head.bias": {"dtype": "F32", "shape": [3], "data_offsets": [0, 99]}}', b"0" * 12),
        header(
            '{"a": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 4]}}', b"0000"
        ),
        header('{"a": {"dtype": "Z99", "shape": [1], "data_offsets": [0, 4]}}', b"0000"),
        header(
            '{"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}'
        ),
    ],
)
def test_forged_tensors_with_the_right_checksum_are_refused(tmp_path: Path, content: bytes) -> None:
    saved(tmp_path)
    put_tensors(tmp_path, content)
    with pytest.raises(CorruptFileError, match=r"model\.safetensors is not a safetensors file"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head.bias": None}, r"it lacks the tensor head\.bias"),
        ({"extra": torch.ones(1)}, "it holds the unknown tensor extra"),
        ({"head.bias": torch.ones(3, 1)}, r"head\.bias has shape \(3, 1\), expected \(3,\)"),
        ({"head.bias": torch.ones(3).double()}, "dtypes are torch.float32, torch.float64"),
        ({"head.scale": torch.tensor(1)}, "expected one floating dtype"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    tmp_path: Path, change: dict[str, Tensor | None], message: str
) -> None:
    saved(tmp_path)
    tensors = {**load_file(tmp_path / "model.safetensors"), **change}
    put_tensors(tmp_path, save({k: v for k, v in tensors.items() if v is not None}))
    with pytest.raises(CorruptFileError, match=message):
        load_model(tmp_path)


# -- the Hub ---------------------------------------------------------------------------------


class HubStandIn(BaseHTTPRequestHandler):
    """The few routes of the Hub that the real client calls, with one repository in memory."""

    repo: str | None
    private: bool
    branches: dict[str, str]
    commits: dict[str, dict[str, bytes]]
    messages: list[str]

    @classmethod
    def reset(cls) -> None:
        cls.repo, cls.private = None, False
        cls.branches, cls.commits, cls.messages = {"main": "0" * 40}, {"0" * 40: {}}, []

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self, code: str) -> None:
        self.answer({"error": "not found"}, 404, X_Error_Code=code)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != "Bearer hf_of_the_test":
            self.answer({"error": "Invalid username or password."}, 401)
            return
        match unquote(urlsplit(self.path).path).strip("/").split("/"):
            case ["api", "repos", "create"]:
                asked = json.loads(body)
                repo = f"{asked['organization'] or 'someone'}/{asked['name']}"
                status = 409 if repo == self.repo else 200
                type(self).repo = repo
                type(self).private = asked.get("visibility") == "private" or bool(
                    asked.get("private")
                )
                self.answer({"url": f"{self.root}/{repo}"}, status)
            case ["api", "validate-yaml"]:
                self.answer({"errors": [], "warnings": []})
            case ["api", "models", user, name, "branch", branch]:
                status = 409 if branch in self.branches else 200
                self.branches.setdefault(branch, self.branches["main"])
                self.answer({}, status)
            case ["api", "models", user, name, "preupload", _]:
                files = [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in json.loads(body)["files"]
                ]
                self.answer({"files": files})
            case ["api", "models", user, name, "commit", branch]:
                self.commit(branch, [json.loads(line) for line in body.splitlines()])
                url = f"{self.root}/{user}/{name}/commit/{self.branches[branch]}"
                self.answer({"commitUrl": url, "commitOid": self.branches[branch]})
            case _:
                self.missing("EntryNotFound")

    @property
    def root(self) -> str:
        return f"http://{self.headers['Host']}"

    def commit(self, branch: str, lines: list[dict[str, Any]]) -> None:
        files = dict(self.commits[self.branches[branch]])
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
        number = f"{len(self.commits):040x}"
        self.commits[number], self.branches[branch] = files, number

    def do_GET(self) -> None:
        match unquote(urlsplit(self.path).path).strip("/").split("/"):
            case ["api", "models", user, name, *_] if f"{user}/{name}" != self.repo:
                self.missing("RepoNotFound")
            case ["api", "models", user, name, "revision", revision]:
                if revision not in self.branches:
                    self.missing("RevisionNotFound")
                    return
                number = self.branches[revision]
                names = [{"rfilename": name} for name in self.commits[number]]
                self.answer({"id": self.repo, "sha": number, "siblings": names})
            case ["api", "models", user, name, "tree", number]:
                tree = [
                    {"type": "file", "path": path, "size": len(content), "oid": etag(content)}
                    for path, content in self.commits[number].items()
                ]
                self.answer(tree)
            case [user, name, "resolve", number, path]:
                content = self.commits[number][path]
                self.answer(content, ETag=f'"{etag(content)}"', X_Repo_Commit=number)
            case _:
                self.missing("EntryNotFound")

    do_HEAD = do_GET  # noqa: N815


def etag(content: bytes) -> str:
    """Of git: what the client compares a small file with."""
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()  # noqa: S324


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[HubStandIn]]:
    """The real client of the Hub, talking to a stand-in on this machine."""
    client = pytest.importorskip("huggingface_hub", reason="the client of the Hub")
    from huggingface_hub import constants

    HubStandIn.reset()
    server = ThreadingHTTPServer(("127.0.0.1", 0), HubStandIn)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    # what the environment sets, which the client reads once, when it is imported
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield HubStandIn
    # an open connection would be a warning in a later test; clients before 1.0 close their own
    getattr(client, "close_session", lambda: None)()
    server.shutdown()
    server.server_close()
    thread.join()


TOKEN = "hf_of_the_test"  # noqa: S105


def test_there_and_back_again(hub: type[HubStandIn], tmp_path: Path) -> None:
    assigner = saved(tmp_path / "model")
    (tmp_path / "model" / "secret.txt").write_text("not for the Hub")
    url = push_to_hub(tmp_path / "model", "someone/clusters", token=TOKEN, private=True)
    assert url.endswith(f"/someone/clusters/commit/{hub.branches['main']}")
    assert hub.private
    assert hub.messages == ["Upload a prcut model"]
    files = hub.commits[hub.branches["main"]]
    assert sorted(files) == ["README.md", "config.json", "model.safetensors"]
    for name, content in files.items():
        assert content == (tmp_path / "model" / name).read_bytes()

    cache = tmp_path / "cache"
    loaded, description = load_from_hub("someone/clusters", token=TOKEN, cache_dir=cache)
    assert same(loaded, assigner)
    assert description == {"number": 1}
    again = load_from_hub("someone/clusters", cache_dir=cache, local_files_only=True, token=TOKEN)
    assert same(again.assigner, assigner)


def test_branches_and_names_without_a_user(hub: type[HubStandIn], tmp_path: Path) -> None:
    first = saved(tmp_path / "model")
    push_to_hub(f"file://{tmp_path}/model", "clusters", token=TOKEN)
    second = Assigner(4, 2)
    save_model(tmp_path / "model", second, {"number": 2})
    options: dict[str, Any] = {"token": TOKEN, "revision": "next"}
    for _ in range(2):  # a repository and a branch that are there are no error
        push_to_hub(tmp_path / "model", "clusters", commit_message="another", **options)
    assert hub.messages == ["Upload a prcut model", "another", "another"]
    here: dict[str, Any] = {"cache_dir": tmp_path / "cache", "token": TOKEN}
    assert same(load_from_hub("someone/clusters", **here).assigner, first)
    assert same(load_from_hub("someone/clusters", revision="next", **here).assigner, second)
    with pytest.raises(PRCutError, match=r"loading someone/clusters failed: .*404"):
        load_from_hub("someone/clusters", revision="absent", **here)


@pytest.mark.usefixtures("hub")
def test_what_the_hub_refuses_is_worded(tmp_path: Path) -> None:
    saved(tmp_path / "model")
    with pytest.raises(PRCutError, match=r"uploading .*model to someone/x failed: .*401"):
        push_to_hub(tmp_path / "model", "someone/x", token="wrong")  # noqa: S106
    with pytest.raises(PRCutError, match="loading someone/absent failed"):
        load_from_hub("someone/absent", token=TOKEN, cache_dir=tmp_path / "cache")
    with pytest.raises(InvalidInputError, match="loading a/b/c/d failed"):
        load_from_hub("a/b/c/d", token=TOKEN, cache_dir=tmp_path / "cache")


def test_a_broken_model_is_not_uploaded(hub: type[HubStandIn], tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(CorruptFileError, match="is cut off or altered"):
        push_to_hub(tmp_path, "someone/clusters", token=TOKEN)
    assert hub.repo is None


def test_a_strangers_model_is_checked_after_the_download(
    hub: type[HubStandIn], tmp_path: Path
) -> None:
    saved(tmp_path / "model")
    push_to_hub(tmp_path / "model", "someone/clusters", token=TOKEN)
    hub.commits[hub.branches["main"]]["model.safetensors"] = b"\x80\x04pickled"
    with pytest.raises(CorruptFileError, match=r"model\.safetensors is cut off or altered"):
        load_from_hub("someone/clusters", token=TOKEN, cache_dir=tmp_path / "cache")


def test_local_folders_and_caches_need_no_network(tmp_path: Path) -> None:
    assigner = saved(tmp_path / "model")
    assert same(load_from_hub(str(tmp_path / "model")).assigner, assigner)
    pytest.importorskip("huggingface_hub", reason="the client of the Hub")
    # what the client leaves on disk: blobs, and links to them by name
    kept = tmp_path / "cache" / "models--someone--clusters"
    (kept / "blobs").mkdir(parents=True)
    snapshot = kept / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted((tmp_path / "model").iterdir())):
        file.rename(kept / "blobs" / str(number))
        (snapshot / file.name).symlink_to(kept / "blobs" / str(number))
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("a" * 40)
    options: dict[str, Any] = {"cache_dir": tmp_path / "cache", "local_files_only": True}
    assert same(load_from_hub("someone/clusters", **options).assigner, assigner)
    with pytest.raises(PRCutError, match=r"loading someone/else failed: .*cached snapshot"):
        load_from_hub("someone/else", **options)


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PRCutError, match=r"pip install 'prcut\[hub\]'"):
        push_to_hub(tmp_path, "someone/clusters")
    with pytest.raises(PRCutError, match=r"pip install 'prcut\[hub\]'"):
        load_from_hub("someone/clusters")
    assert load_from_hub(str(tmp_path)).description == {"number": 1}
