"""Data sets of the harness: recognised, checked against their hashes, and never run as code."""

import hashlib
import io
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.harness import datasets
from benchmarks.harness.datasets import load_dataset

from prcut.errors import CorruptFileError, InvalidInputError


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A computer without data sets; PRCUT_DATA is the folder returned."""
    monkeypatch.setattr(datasets, "_DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("PRCUT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_unknown_names_and_splits_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="name='minst' is no data set; choose from mnist,"):
        load_dataset("minst")
    with pytest.raises(InvalidInputError, match="split='val' of mnist does not exist; choose from"):
        load_dataset("mnist", "val")


def archive_of(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("mnist", "mnist.npz", b"not a zip", "cannot be read as mnist"),
        (
            "coil20",
            "coil20.npz",
            archive_of(x=np.array([{"a": 1}], dtype=object), y=np.zeros(1)),
            "Object arrays cannot be loaded",
        ),
        (
            "coil20",
            "coil20.npz",
            archive_of(x=np.zeros((3, 2, 2), np.uint8), y=np.zeros(2)),
            "3 items and 2 labels",
        ),
    ],
)
def test_broken_files_are_refused_by_name(
    bare: Path, name: str, file: str, content: bytes, message: str
) -> None:
    (bare / file).write_bytes(content)
    with pytest.raises(CorruptFileError, match=message) as error:
        load_dataset(name, "all")
    assert file in str(error.value)


@pytest.mark.parametrize("is_right", [True, False])
def test_a_download_is_kept_only_if_its_hash_is_right(
    bare: Path, monkeypatch: pytest.MonkeyPatch, is_right: bool
) -> None:
    pytest.importorskip("pooch", reason="needs prcut[bench]")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setattr(datasets, "_REGISTRY", bare.parent / "registry.txt")
    files = {"title_StackOverflow.txt": b"title\n" * 9, "label_StackOverflow.txt": b"1\n" * 9}
    cache = bare.parent / "cache/datasets/stackoverflow"
    handler = partial(SimpleHTTPRequestHandler, directory=str(bare))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        lines = [
            f"stackoverflow/{name} {hashlib.sha256(content).hexdigest()} "
            f"http://127.0.0.1:{server.server_port}/served/{name}\n"
            for name, content in files.items()
        ]
        datasets._REGISTRY.write_text("".join(lines))
        (bare / "served").mkdir()
        for name, content in files.items():
            (bare / "served" / name).write_bytes(content if is_right else content[::-1])
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            if is_right:
                assert load_dataset("stackoverflow", "all").items == ["title"] * 9
            else:
                with pytest.raises(CorruptFileError, match=r"failed 4 times.*Nothing was kept"):
                    load_dataset("stackoverflow", "all")
        finally:
            server.shutdown()
    kept = [path.name for path in cache.rglob("*") if path.is_file()]
    assert sorted(kept) == (sorted(files) if is_right else [])


def test_table_of_downloads_is_sound() -> None:
    lines = datasets._REGISTRY.read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    published: dict[str, set[str]] = {}
    for file, digest, url in rows:
        name, _, short_name = file.partition("/")
        published.setdefault(name, set()).add(short_name)
        assert url.startswith("https://")
        assert re.fullmatch("md5:[0-9a-f]{32}" if name == "usps" else "[0-9a-f]{64}", digest)
        if "githubusercontent" in url:
            assert re.search("/[0-9a-f]{40}/", url), "a branch may change, a commit not"
    for name, files in published.items():
        assert any(set(form.files) == files for form in datasets._FORMS[name])
