"""The Hub: the real client against a stand-in on this machine."""

import base64
import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch

from prcut.errors import CorruptFileError, PRCutError
from prcut.training.assigner.hub import load_from_hub, push_to_hub
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.saved import save_model


def saved(path: Path) -> Assigner:
    """A model in ``path``, with weights that no other one has."""
    assigner = Assigner(6, 3, generator=torch.Generator().manual_seed(1))
    save_model(path, assigner, {"number": 1})
    return assigner


def same(one: Assigner, other: Assigner) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


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


def test_a_broken_model_is_not_uploaded(hub: type[HubStandIn], tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(CorruptFileError, match="is cut off or altered"):
        push_to_hub(tmp_path, "someone/clusters", token=TOKEN)
    assert hub.repo is None


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
