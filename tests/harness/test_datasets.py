import bz2
import csv
import gzip
import hashlib
import io
import json
import re
import socket
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.harness import datasets
from benchmarks.harness.datasets import Dataset, load_dataset

from conftest import data_file
from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.runtime.folder import cache_folder
from prcut.runtime.progress import Progress


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A computer without data sets; PRCUT_DATA is the folder returned."""
    monkeypatch.setattr(datasets, "_DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("PRCUT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PRCUT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


# -- what a data set is --------------------------------------------------------------------------


def test_pixels_are_rows_between_zero_and_one() -> None:
    images = np.array([[[[0, 51, 255]]], [[[255, 0, 102]]]], np.uint8)
    dataset = Dataset("cifar10", "test", images, np.array([0, 1]))
    assert dataset.kind == "images"
    assert dataset.pixels().dtype == np.float32
    np.testing.assert_allclose(dataset.pixels(), [[0, 0.2, 1], [1, 0, 0.4]])


def test_texts_have_no_pixels() -> None:
    dataset = Dataset("banking77", "test", ["a"], np.array([0]))
    assert dataset.kind == "texts"
    with pytest.raises(InvalidInputError, match="banking77 holds texts, which have no pixels"):
        dataset.pixels()


def test_unknown_names_and_splits_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="name='minst' is no data set; choose from mnist,"):
        load_dataset("minst")
    with pytest.raises(InvalidInputError, match="split='val' of mnist does not exist; choose from"):
        load_dataset("mnist", "val")
    with pytest.raises(InvalidInputError, match=r"split='train' of coil20 .* choose from all"):
        load_dataset("coil20")


def test_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# -- real data, where it is ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file", "shapes", "first_labels"),
    [
        ("mnist", "mnist.npz", [(60_000, 28, 28), (10_000, 28, 28)], [[5, 0, 4], [7, 2, 1]]),
        ("usps", "usps.npz", [(7291, 16, 16), (2007, 16, 16)], [[6, 5, 4], [9, 6, 3]]),
    ],
)
def test_images_with_a_test_part(
    name: str, file: str, shapes: list[tuple[int, ...]], first_labels: list[list[int]]
) -> None:
    data_file(file)
    train, test, both = (load_dataset(name, split) for split in ("train", "test", "all"))
    assert [train.items.shape, test.items.shape] == shapes  # type: ignore[union-attr]
    assert [train.labels[:3].tolist(), test.labels[:3].tolist()] == first_labels
    np.testing.assert_array_equal(both.items, np.concatenate([train.items, test.items]))
    np.testing.assert_array_equal(both.labels, np.concatenate([train.labels, test.labels]))
    assert train.labels.dtype == np.int64
    assert len(train.classes) == 10
    assert test.items.dtype == np.uint8  # type: ignore[union-attr]
    assert test.items.max() == 255  # type: ignore[union-attr]


def test_cifar10_mosaics() -> None:
    pytest.importorskip("PIL")
    data_file("cifar10_webp.npz")
    test = load_dataset("cifar10", "test")
    assert isinstance(test.items, np.ndarray)
    assert test.items.shape == (10_000, 32, 32, 3)
    assert [test.classes[label] for label in test.labels[:4]] == ["cat", "ship", "ship", "airplane"]
    # tiles are images: neighbouring pixels are alike within one, not across a seam
    inside = np.abs(np.diff(test.items[:500].astype(int), axis=2)).mean()
    assert inside < 20
    assert np.bincount(test.labels).tolist() == [1000] * 10


def test_coil20() -> None:
    data_file("coil20.npz")
    objects = load_dataset("coil20", "all")
    assert objects.pixels().shape == (1440, 1024)
    assert np.bincount(objects.labels).tolist() == [72] * 20
    assert objects.classes == ()


def test_fashion_mnist_of_debian() -> None:
    if not (datasets._DEBIAN / "fashion-mnist").is_dir():
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    test = load_dataset("fashion_mnist", "test")
    assert test.pixels().shape == (10_000, 784)
    assert [test.classes[label] for label in test.labels[:2]] == ["Ankle boot", "Pullover"]


@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "n_classes"),
    [("banking77", 10_003, 3_080, 77), ("clinc150", 18_000, 4_500, 150)],
)
def test_texts_with_a_test_part(name: str, n_train: int, n_test: int, n_classes: int) -> None:
    data_file("text_sets.json.gz")
    train, test, both = (load_dataset(name, split) for split in ("train", "test", "all"))
    assert (len(train.items), len(test.items)) == (n_train, n_test)
    assert both.items == [*train.items, *test.items]
    # both parts are balanced in their own way: a split in the wrong place would lack classes
    assert len(np.unique(train.labels)) == len(np.unique(test.labels)) == n_classes
    assert len(np.unique(np.bincount(test.labels))) == 1
    assert both.classes == tuple(sorted(both.classes))


def test_stackoverflow() -> None:
    data_file("text_sets.json.gz")
    titles = load_dataset("stackoverflow", "all")
    assert np.bincount(titles.labels).tolist() == [1000] * 20
    assert titles.items[0].startswith("How do I fill a DataSet")


# -- the forms in which their authors publish them -----------------------------------------------


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(header + array.tobytes(), mtime=0)


def write_idx(folder: Path, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for part, n in (("train", 6), ("t10k", 4)):
        written[part] = rng.integers(0, 256, (n, 28, 28), np.uint8)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(written[part]))
        labels = np.arange(n, dtype=np.uint8)
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(labels))
    return written


@pytest.mark.parametrize("folder", ["fashion_mnist", "fashion-mnist"])
def test_idx_files(bare: Path, folder: str) -> None:
    written = write_idx(bare / folder)
    both = load_dataset("fashion_mnist", "all")
    np.testing.assert_array_equal(both.items, np.concatenate([written["train"], written["t10k"]]))
    assert both.labels.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]


def test_files_of_the_same_name_are_not_taken_for_another_data_set(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MNIST and Fashion-MNIST call their files the same: in a common folder nobody knows."""
    write_idx(bare)
    monkeypatch.setattr(datasets, "_REGISTRY", bare / "empty.txt")
    (bare / "empty.txt").touch()
    for name in ("mnist", "fashion_mnist"):
        with pytest.raises(PRCutError, match="was not found"):
            load_dataset(name)


def test_given_folder_comes_before_debian_and_the_cache(bare: Path) -> None:
    given = write_idx(bare / "mnist", seed=1)
    debian = write_idx(bare.parent / "debian/mnist", seed=2)
    cached = write_idx(bare.parent / "cache/datasets/mnist", seed=3)
    for folder, expected in (
        (bare / "mnist", given),
        (bare.parent / "debian/mnist", debian),
        (bare.parent / "cache/datasets/mnist", cached),
    ):
        np.testing.assert_array_equal(load_dataset("mnist").items, expected["train"])
        (folder / "train-labels-idx1-ubyte.gz").unlink()


def tar(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def cifar_rows(labels: list[list[int]], rng: np.random.Generator) -> tuple[bytes, np.ndarray]:
    images = rng.integers(0, 256, (len(labels), 32, 32, 3), np.uint8)
    planes = images.transpose(0, 3, 1, 2).reshape(len(labels), -1)
    return np.hstack([np.array(labels, np.uint8), planes]).tobytes(), images


def test_cifar10_binary(bare: Path) -> None:
    rng = np.random.default_rng(0)
    members, images = {}, []
    for i in (5, 3, 1, 2, 4):  # the archive's own order does not matter
        content, found = cifar_rows([[i], [0]], rng)
        members[f"cifar-10-batches-bin/data_batch_{i}.bin"] = content
        images.append((i, found))
    members["cifar-10-batches-bin/test_batch.bin"], test_images = cifar_rows([[9]], rng)
    members["../../outside.bin"] = b"never written"
    tar(bare / "cifar-10-binary.tar.gz", members)
    train, test = load_dataset("cifar10"), load_dataset("cifar10", "test")
    assert train.labels.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    expected = np.concatenate([found for _, found in sorted(images, key=lambda pair: pair[0])])
    np.testing.assert_array_equal(train.items, expected)
    np.testing.assert_array_equal(test.items, test_images)
    assert sorted(path.name for path in bare.parent.rglob("*")) == [
        "cifar-10-binary.tar.gz",
        "data",
    ]


def test_cifar100_binary_has_the_fine_labels(bare: Path) -> None:
    rng = np.random.default_rng(0)
    content, images = cifar_rows([[1, 7], [0, 99]], rng)
    names = "".join(f"class_{i}\n" for i in range(100)).encode()
    members = {
        "cifar-100-binary/fine_label_names.txt": names,
        "cifar-100-binary/train.bin": content,
    }
    tar(bare / "cifar-100-binary.tar.gz", members)
    train = load_dataset("cifar100")
    np.testing.assert_array_equal(train.items, images)
    assert [train.classes[label] for label in train.labels] == ["class_7", "class_99"]
    with pytest.raises(CorruptFileError, match=r"cifar-100-binary\.tar\.gz cannot .*test\.bin"):
        load_dataset("cifar100", "test")


def test_a_link_in_an_archive_leads_nowhere(bare: Path) -> None:
    secret = bare / "secret"
    secret.write_bytes(bytes(3073))
    tar(
        bare / "cifar-10-binary.tar.gz",
        {},
        {"cifar-10-batches-bin/test_batch.bin": str(secret)},
    )
    with pytest.raises(CorruptFileError, match=r"cifar-10-binary\.tar\.gz cannot be read"):
        load_dataset("cifar10", "test")


def test_usps_is_the_same_from_text_and_from_half_precision(bare: Path) -> None:
    steps = np.concatenate([np.arange(2001), np.zeros(47, int)]).reshape(8, 256)
    labels = np.arange(8) % 10
    lines = [
        " ".join([str(label + 1), *(f"{i}:{step / 1000 - 1:.6g}" for i, step in enumerate(row, 1))])
        for label, row in zip(labels, steps, strict=True)
    ]
    for name in ("usps.bz2", "usps.t.bz2"):
        (bare / name).write_bytes(bz2.compress("\n".join(lines).encode()))
    from_text = load_dataset("usps")
    values = (steps / 2000).astype(np.float16)
    np.savez(bare / "usps.npz", x_train=values, y_train=labels)
    from_half = load_dataset("usps")
    np.testing.assert_array_equal(from_text.items, from_half.items)
    np.testing.assert_array_equal(from_text.labels, from_half.labels)
    assert np.abs(from_half.pixels() - steps / 2000).max() <= 0.5 / 255 + 1e-6


def test_banking77_csv(bare: Path) -> None:
    folder = bare / "banking77"
    folder.mkdir()
    for part, rows in (
        ("train", [('a, quoted "text"\nof two lines', "b_class"), ("x", "A_class")]),
        ("test", [("y", "b_class")]),
    ):
        with (folder / f"{part}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "category"), *rows])
    (folder / "categories.json").write_text(json.dumps(["b_class", "A_class"]))
    both = load_dataset("banking77", "all")
    assert both.items == ['a, quoted "text"\nof two lines', "x", "y"]
    assert both.classes == ("A_class", "b_class")
    assert both.labels.tolist() == [1, 0, 1]


def test_clinc150_json_counts_validation_as_train_and_leaves_out_the_rest(bare: Path) -> None:
    content = {
        "train": [["a", "two"], ["b", "one"]],
        "val": [["c", "one"]],
        "test": [["d", "two"]],
        "oos_test": [["e", "oos"]],
    }
    (bare / "data_full.json").write_text(json.dumps(content))
    train, both = load_dataset("clinc150"), load_dataset("clinc150", "all")
    assert train.items == ["a", "b", "c"]
    assert both.items == ["a", "b", "c", "d"]
    assert both.labels.tolist() == [1, 0, 0, 1]


def test_stackoverflow_titles_are_read_as_a_table(bare: Path) -> None:
    (bare / "title_StackOverflow.txt").write_text('"Quoted" title\nan "inner" one\n')
    (bare / "label_StackOverflow.txt").write_text("10\n2\n")
    titles = load_dataset("stackoverflow", "all")
    assert titles.items == ["Quoted title", 'an "inner" one']
    assert titles.classes == ("10", "2")


# an array where an archive of arrays belongs
NPY = io.BytesIO()
np.save(NPY, np.zeros(3))


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("mnist", "mnist.npz", b"not a zip"),
        ("usps", "usps.npz", b"PK\x03\x04 cut off"),
        ("coil20", "coil20.npz", b""),
        ("cifar10", "cifar10_webp.npz", b"\x93NUMPY"),
        ("coil20", "coil20.npz", NPY.getvalue()),
        ("cifar100", "cifar-100-binary.tar.gz", gzip.compress(b"no archive", mtime=0)),
        ("clinc150", "data_full.json", b'{"train": [1]}'),
        (
            "clinc150",
            "text_sets.json.gz",
            gzip.compress(b'{"clinc150": {"text": []}}', mtime=0)[:-3],
        ),
        ("banking77", "text_sets.json.gz", gzip.compress(b'{"trec": 1}', mtime=0)),
        ("stackoverflow", "text_sets.json.gz", gzip.compress(b"[]", mtime=0)),
    ],
)
def test_broken_files_are_refused_by_name(bare: Path, name: str, file: str, content: bytes) -> None:
    if file == "cifar10_webp.npz":
        pytest.importorskip("PIL")
    (bare / file).write_bytes(content)
    with pytest.raises(CorruptFileError, match=rf"{re.escape(file)} cannot be read as {name}"):
        load_dataset(name, "all")


def test_pickles_are_not_opened(bare: Path) -> None:
    pickled = np.array([{"a": 1}], dtype=object)
    np.savez(bare / "coil20.npz", x=pickled, y=np.zeros(1))
    with pytest.raises(CorruptFileError, match="Object arrays cannot be loaded"):
        load_dataset("coil20", "all")


def test_what_unpacks_without_end_stops(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_MOST_BYTES", 1000)
    write_idx(bare / "mnist")
    with pytest.raises(CorruptFileError, match="unpacks to more than 1000 bytes"):
        load_dataset("mnist")


def test_items_without_labels_are_refused(bare: Path) -> None:
    np.savez(bare / "coil20.npz", x=np.zeros((3, 2, 2), np.uint8), y=np.zeros(2))
    with pytest.raises(CorruptFileError, match="3 items and 2 labels"):
        load_dataset("coil20", "all")


# -- downloads, from a server on this computer ---------------------------------------------------


class Server(ThreadingHTTPServer):
    """Serves ``files``; ``faults`` says what goes wrong with the next answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path[1:])
        fault = self.server.faults.pop(0) if self.server.faults else ""
        content = self.server.files.get(self.path[1:])
        if fault == "silent":
            time.sleep(1)
        elif fault.startswith("to "):
            self.send_response(302)
            self.send_header("Location", fault[3:])
            self.end_headers()
        elif fault.isdecimal() or content is None:
            self.send_error(int(fault or 404))
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with the two files of stackoverflow, in the place of the real one."""
    pytest.importorskip("pooch", reason="needs prcut[bench]")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setattr(datasets, "_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(datasets, "_CHUNK_BYTES", 1000)
    monkeypatch.setattr(datasets, "_REGISTRY", bare.parent / "registry.txt")
    with Server() as found:
        found.files = {
            "title_StackOverflow.txt": "".join(f"title {i}\n" for i in range(2000)).encode(),
            "label_StackOverflow.txt": b"1\n" * 2000,
        }
        register(found.url, found.files)
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def register(url: str, files: dict[str, bytes]) -> None:
    lines = [
        f"stackoverflow/{name} {hashlib.sha256(content).hexdigest()} {url}{name}\n"
        for name, content in files.items()
    ]
    datasets._REGISTRY.write_text("".join(lines))


def cached(bare: Path) -> list[str]:
    """Everything in the cache, also what is hidden."""
    return sorted(path.name for path in (bare.parent / "cache").rglob("*") if path.is_file())


BOTH = ["label_StackOverflow.txt", "title_StackOverflow.txt"]


def test_download_is_kept_and_reported(
    bare: Path, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[Progress] = []
    titles = load_dataset("stackoverflow", "all", on_progress=seen.append)
    assert titles.items[-1] == "title 1999"
    assert cached(bare) == BOTH
    size = len(server.files["title_StackOverflow.txt"])
    of_titles = [p for p in seen if p.stage == "download title_StackOverflow.txt"]
    assert (of_titles[-1].done, of_titles[-1].total) == (size, size)
    assert len(of_titles) > 3
    assert load_dataset("stackoverflow", "all").items == titles.items
    assert sorted(server.requests) == BOTH
    assert capfd.readouterr() == ("", "")


def test_download_goes_where_the_caller_says(server: Server, tmp_path: Path) -> None:
    load_dataset("stackoverflow", "all", cache=tmp_path / "mine")
    found = [path.name for path in (tmp_path / "mine/stackoverflow").iterdir()]
    assert sorted(found) == BOTH
    assert len(server.requests) == 2


def test_cut_connection_is_tried_again(bare: Path, server: Server) -> None:
    server.faults = ["cut", "cut"]
    seen: list[Progress] = []
    assert load_dataset("stackoverflow", "all", on_progress=seen.append).items[9] == "title 9"
    assert len(server.requests) == 4
    assert all(progress.done <= progress.total for progress in seen)
    assert cached(bare) == BOTH


@pytest.mark.parametrize("change", ["other", "short", "long"])
def test_wrong_content_is_not_kept(bare: Path, server: Server, change: str) -> None:
    content = server.files["title_StackOverflow.txt"]
    wrong = {"other": b"T" + content[1:], "short": content[:8], "long": content * 2}
    server.files["title_StackOverflow.txt"] = wrong[change]
    expected = r"title_StackOverflow.txt failed 4 times.* hash .*Nothing was kept\. Put .*_DATA"
    with pytest.raises(CorruptFileError, match=expected):
        load_dataset("stackoverflow", "all")
    assert "title_StackOverflow.txt" not in cached(bare)


def test_missing_file_is_said(bare: Path, server: Server) -> None:
    del server.files["title_StackOverflow.txt"]
    with pytest.raises(PRCutError, match=r"title_StackOverflow.txt failed 4 times.*404"):
        load_dataset("stackoverflow", "all")
    assert cached(bare) == []


def test_passing_troubles_are_waited_out(bare: Path, server: Server) -> None:
    server.faults = ["503", "429", "silent"]
    assert len(load_dataset("stackoverflow", "all").items) == 2000
    assert len(server.requests) == 5
    assert cached(bare) == BOTH


def test_silent_server_is_given_up(bare: Path, server: Server) -> None:
    server.faults = ["silent"] * 4
    with pytest.raises(PRCutError, match=r"failed 4 times, the last with: .*timed out"):
        load_dataset("stackoverflow", "all")
    assert cached(bare) == []


def test_no_network_is_said(bare: Path, server: Server) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        register(f"http://127.0.0.1:{unused.getsockname()[1]}/", server.files)
        expected = (
            r"stackoverflow was not found \(looked in .*refused.*Check the network\. "
            r"Put title_StackOverflow\.txt, label_StackOverflow\.txt into .*/stackoverflow or "
            "the folder named by PRCUT_DATA"
        )
        with pytest.raises(PRCutError, match=expected):
            load_dataset("stackoverflow", "all")
    assert server.requests == []
    assert cached(bare) == []


def test_redirects_are_followed(server: Server) -> None:
    server.files["moved"] = server.files["title_StackOverflow.txt"]
    server.faults = [f"to {server.url}moved"]
    assert len(load_dataset("stackoverflow", "all").items) == 2000


def test_an_error_of_the_caller_is_not_taken_for_one_of_the_network(
    bare: Path, server: Server
) -> None:
    def breaks(_: Progress) -> None:
        raise BrokenPipeError("nobody listens")

    with pytest.raises(BrokenPipeError, match="nobody listens"):
        load_dataset("stackoverflow", "all", on_progress=breaks)
    assert len(server.requests) == 1
    assert cached(bare) == []


def test_only_what_is_missing_is_fetched(bare: Path, server: Server) -> None:
    folder = bare.parent / "cache/datasets/stackoverflow"
    folder.mkdir(parents=True)
    (folder / BOTH[1]).write_bytes(server.files[BOTH[1]])
    load_dataset("stackoverflow", "all")
    assert server.requests == [BOTH[0]]


def test_pooch_is_asked_for(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(PRCutError, match=r"pip install 'prcut\[bench\]'"):
        load_dataset("mnist")
    assert cached(bare) == []


def test_coil20_says_why_it_cannot_be_downloaded(bare: Path) -> None:
    with pytest.raises(PRCutError, match=r"cannot be downloaded: .*Put coil20\.npz into"):
        load_dataset("coil20", "all")
    assert cached(bare) == []


def test_table_of_downloads_is_sound() -> None:
    lines = datasets._REGISTRY.read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    published: dict[str, set[str]] = {}
    for file, digest, url in rows:
        name, _, short_name = file.partition("/")
        published.setdefault(name, set()).add(short_name)
        assert url.startswith("https://")
        assert url.endswith(f"/{short_name}")
        assert re.fullmatch("md5:[0-9a-f]{32}" if name == "usps" else "[0-9a-f]{64}", digest)
        if "githubusercontent" in url:
            assert re.search("/[0-9a-f]{40}/", url), "a branch may change, a commit not"
    assert sorted([*published, "coil20"]) == sorted(datasets._FORMS)
    for name, files in published.items():
        assert any(set(form.files) == files for form in datasets._FORMS[name])
