"""The Hub: what its client is asked for, and what is loaded from its cache."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest

from prcut.errors import CorruptFileError, PRCutError
from prcut.training.assigner.hub import load_from_hub, push_to_hub
from training.assigner.test_saved import same, saved

TOKEN = "hf_of_the_test"  # noqa: S105


class UploadedApi:
    """What the real client was asked for, and the files that it was given."""

    def __init__(self, client: Any) -> None:
        self.files: dict[str, bytes] = {}
        # calls that the real client would not take raise here, too
        self.api = create_autospec(client.HfApi, instance=True)
        self.made = create_autospec(client.HfApi, return_value=self.api)
        self.api.create_repo.return_value.repo_id = "someone/clusters"
        self.api.upload_folder.side_effect = self.upload

    def upload(self, *, folder_path: str, **_: Any) -> Any:
        self.files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        return SimpleNamespace(commit_url="https://hub/commit/1")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> UploadedApi:
    client = pytest.importorskip("huggingface_hub", reason="the client of the Hub")
    uploaded = UploadedApi(client)
    monkeypatch.setattr(client, "HfApi", uploaded.made)
    return uploaded


def test_the_three_files_of_a_model_are_uploaded(hub: UploadedApi, tmp_path: Path) -> None:
    saved(tmp_path / "model")
    (tmp_path / "model" / "secret.txt").write_text("not for the Hub")
    url = push_to_hub(tmp_path / "model", "clusters", token=TOKEN, private=True, revision="two")
    assert url == "https://hub/commit/1"
    assert hub.made.call_args.kwargs["token"] == TOKEN
    hub.api.create_repo.assert_called_once_with("clusters", private=True, exist_ok=True)
    hub.api.create_branch.assert_called_once_with("someone/clusters", branch="two", exist_ok=True)
    asked = hub.api.upload_folder.call_args.kwargs
    assert (asked["repo_id"], asked["revision"]) == ("someone/clusters", "two")
    assert asked["commit_message"] == "Upload a prcut model"
    assert sorted(hub.files) == ["README.md", "config.json", "model.safetensors"]
    for name, content in hub.files.items():
        assert content == (tmp_path / "model" / name).read_bytes()


def test_a_broken_model_is_not_uploaded(hub: UploadedApi, tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(CorruptFileError, match="is cut off or altered"):
        push_to_hub(tmp_path, "someone/clusters", token=TOKEN)
    hub.made.assert_not_called()


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
