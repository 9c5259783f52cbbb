import errno
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyarrow import fs

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.runtime.folder import Folder, cache_folder

ARRAYS = hnp.arrays(
    dtype=st.sampled_from([np.float16, np.float32, np.int64, np.int32, np.dtype("S5")]),
    shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=7),
)


@given(array=ARRAYS, bounds=st.tuples(st.integers(0, 8), st.integers(0, 8)))
@settings(max_examples=60, deadline=None)
def test_arrays_come_back_whole_and_in_slices(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, bounds: tuple[int, int]
) -> None:
    path = tmp_path_factory.mktemp("arrays")
    folder = Folder(path)
    start, stop = min(bounds), max(bounds)
    record = folder.write_array("a.npy", array)
    for found in (folder.read_array("a.npy"), folder.map_array("a.npy"), np.load(path / "a.npy")):
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(folder.read_array("a.npy", start, stop), array[start:stop])
    assert record["size"] == (path / "a.npy").stat().st_size


def test_threads_read_headers_side_by_side(tmp_path: Path) -> None:
    """A collection inside the parser lets another thread in: Python 3.11 miscounts its depth."""
    folder = Folder(tmp_path)
    folder.write_array("a.npy", np.arange(3))
    thresholds, pause = gc.get_threshold(), lambda *_: time.sleep(1e-4)
    gc.callbacks.append(pause)
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as pool:
            sums = list(pool.map(lambda _: folder.read_array("a.npy").sum(), range(400)))
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(pause)
    assert sums == [3] * 400


def test_other_filesystems_work(tmp_path: Path) -> None:
    """Not a LocalFileSystem, so the way of object stores: no rename, arrays read not mapped."""
    remote = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    (tmp_path / "inside").mkdir()
    folder = Folder("inside", remote)
    folder.seal("r.json", {"a.npy": np.arange(5)}, {"key": "k"})
    assert folder.is_sealed("r.json", "k")
    assert folder.map_array("a.npy").tolist() == [0, 1, 2, 3, 4]
    by_uri = Folder(f"file://{tmp_path}/inside")
    assert by_uri.names() == ["a.npy", "r.json"]


def test_a_write_that_dies_leaves_nothing_to_see(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write_array("a.npy", np.zeros(3))

    def dies() -> object:
        yield b"half of it"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.write_bytes("a.npy", dies())  # type: ignore[arg-type]
    assert folder.names() == ["a.npy"]
    assert folder.read_array("a.npy").tolist() == [0, 0, 0]  # the old one is still whole
    assert len(list(tmp_path.iterdir())) == 1
    for name in ("mine.tmp", ".mine.tmp", ".x.prcut-tmp", ".a.npy.0123abcd.prcut-tmp"):
        (tmp_path / name).touch()
    folder.clear_unfinished()
    assert len(list(tmp_path.iterdir())) == 4  # other people's files stay


def test_another_start_leaves_a_live_writer_alone(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"first, "
        script = f"from prcut.runtime.folder import Folder; Folder({str(tmp_path)!r}).start({{}})"
        subprocess.run([sys.executable, "-c", script], check=True)
        Folder(tmp_path).start({})
        yield b"second"

    folder = Folder(tmp_path)
    folder.write_bytes("a", chunks())
    assert folder.read_bytes("a") == b"first, second"
    assert folder.names() == ["a", "plan.json"]


@pytest.mark.parametrize("at", ["_sync", "os.replace"])
def test_a_full_disk_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    folder = Folder(tmp_path)
    folder.write_array("a.npy", np.zeros(3))

    def full(*_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"prcut.runtime.folder.{at}", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write_array("a.npy", np.ones(3))
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]
    assert folder.read_array("a.npy").tolist() == [0, 0, 0]


def test_files_reach_the_disk_before_their_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, int]] = []
    names: list[str] = []
    replace, fsync = os.replace, os.fsync

    def note_fsync(descriptor: int) -> None:
        events.append(("sync", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def note_replace(source: str, target: str) -> None:
        events.append(("rename", os.stat(source).st_ino))  # noqa: PTH116
        names.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    Folder(tmp_path).write_array("a.npy", np.zeros(3))
    file, folder = (tmp_path / "a.npy").stat().st_ino, tmp_path.stat().st_ino
    assert events == [("sync", file), ("rename", file), ("sync", folder)]
    # and a record after all its files
    Folder(tmp_path).seal("r.json", {"b.npy": np.ones(1), "c.npy": np.ones(1)}, {})
    assert names == ["a.npy", "b.npy", "c.npy", "r.json"]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    def content() -> object:
        yield b"first "
        Folder(tmp_path).write_bytes("a.txt", iter([b"the other"]))
        assert (tmp_path / "a.txt").read_bytes() == b"the other"
        yield b"and last"

    record = Folder(tmp_path).write_bytes("a.txt", content())  # type: ignore[arg-type]
    assert (tmp_path / "a.txt").read_bytes() == b"first and last"
    assert record["size"] == 14


def test_links_stay_in_their_folder(tmp_path: Path) -> None:
    inside, secret = tmp_path / "inside", tmp_path / "secret.npy"
    folder = Folder(inside)
    folder.write_array("a.npy", np.arange(3))
    np.save(secret, np.arange(5))
    (inside / "out.npy").symlink_to(secret)
    (inside / "in.npy").symlink_to(inside / "a.npy")
    assert folder.read_array("in.npy").tolist() == [0, 1, 2]
    with pytest.raises(CorruptFileError, match="is a link out of its folder"):
        folder.read_array("out.npy")
    # the cache of the Hugging Face Hub is made of such links
    blobs, revision = tmp_path / "cache/blobs", tmp_path / "cache/snapshots/1a2b"
    revision.mkdir(parents=True)
    Folder(blobs).write_array("5ea1.npy", np.arange(4))
    (revision / "a.npy").symlink_to(blobs / "5ea1.npy")
    assert Folder(revision).read_array("a.npy").tolist() == [0, 1, 2, 3]


def sealed(path: Path) -> Folder:
    folder = Folder(path)
    folder.seal("r.json", {"a.npy": np.arange(1000), "b.npy": np.ones(3)}, {"key": "k"})
    return folder


def test_altered_and_cut_files_are_rejected_by_name(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    record = folder.read_record("r.json")
    assert record is not None
    content = bytearray((tmp_path / "a.npy").read_bytes())
    content[500] ^= 1
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"a\.npy does not match the checksum"):
        folder.verify(record)
    assert not folder.is_sealed("r.json", "k")
    os.truncate(tmp_path / "a.npy", 4000)
    with pytest.raises(CorruptFileError, match=r"a\.npy has 4000 bytes, its record says"):
        folder.verify(record)
    for read in (folder.read_array, folder.map_array):
        with pytest.raises(CorruptFileError, match=r"a\.npy has 4000 bytes, expected 8128"):
            read("a.npy")


def test_forged_header_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for shape in ("(1000000000000, 1000000)", "(-4,)", "()"):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
        padded = header.ljust(117) + "\n"
        content = b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode()
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(CorruptFileError, match=r"a\.npy"):
            folder.read_array("a.npy")
    pickled = np.array([{}], dtype=object)
    np.save(tmp_path / "a.npy", pickled, allow_pickle=True)
    with pytest.raises(CorruptFileError, match=r"a\.npy"):
        folder.read_array("a.npy")
    (tmp_path / "a.npy").write_bytes(b"not an array")
    with pytest.raises(CorruptFileError, match=r"a\.npy is not a \.npy file"):
        folder.read_array("a.npy")


def test_records_that_are_not_are_as_good_as_absent(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    assert folder.is_sealed("r.json", "k")
    assert not folder.is_sealed("r.json", "another key")
    assert not folder.is_sealed("absent.json", "k")
    for content in ("{", "[]", '{"files": 3}'):
        (tmp_path / "r.json").write_text(content)
        assert folder.read_record("r.json") is None
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"x\.json is not JSON"):
        folder.read_json("x.json")


def test_a_manifest_is_the_last_file_and_names_its_maker(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(InvalidInputError, match=r"holds no finished result .* run build_blocks on"):
        folder.read_manifest(1, "build_blocks")
    folder.write_json("manifest.json", {"plan": {"format": 1}, "n": 3})
    assert folder.read_manifest(1, "build_blocks")["n"] == 3
    with pytest.raises(InvalidInputError, match="has format 1, this version reads up to 0"):
        folder.read_manifest(0, "build_blocks")
    folder.remove("manifest.json")
    assert not folder.exists("manifest.json")


def test_a_folder_is_begun_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new" / "deep")
    assert not (tmp_path / "new").exists()  # looking makes nothing
    folder.start({"a": 1, "b": (2, 3)})
    folder.start({"a": 1, "b": (2, 3)})
    assert json.loads((tmp_path / "new/deep/plan.json").read_text()) == {"a": 1, "b": [2, 3]}
    with pytest.raises(InvalidInputError, match="was begun with another b; choose another folder"):
        folder.start({"a": 1, "b": (2, 4)})
    folder.delete()
    folder.delete()
    assert not (tmp_path / "new/deep").exists()


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path))
    assert cache_folder("datasets") == tmp_path / "datasets"
    monkeypatch.delenv("PRCUT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_folder("datasets") == tmp_path / "xdg/prcut/datasets"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder("datasets") == tmp_path / "local/prcut/datasets"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder("datasets").parts[-4:] == ("Library", "Caches", "prcut", "datasets")
