"""The data sets of the paper and of its peers, found on this computer or fetched and checked.

A data set is looked for in the folder named by ``PRCUT_DATA``, where Debian's packages put it, and
in the user's cache; what is in none of them is downloaded into the cache. Nothing that is read can
run code: no pickles, and archives are read by the exact names of their members.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.runtime.folder import cache_folder

__all__ = ["Dataset", "load_dataset"]


class Dataset(NamedTuple):
    """Images or texts with their classes, which are for scoring only."""

    name: str
    split: str
    items: np.ndarray | list[str]
    """uint8 images (n_samples, height, width) or (n_samples, height, width, 3), or texts."""
    labels: np.ndarray
    """int64 (n_samples,)."""
    classes: tuple[str, ...] = ()
    """Names of the labels of texts."""

    @property
    def kind(self) -> str:
        """``"images"`` or ``"texts"``."""
        return "images" if isinstance(self.items, np.ndarray) else "texts"

    def pixels(self) -> np.ndarray:
        """Return the images as float32 rows in [0, 1], (n_samples, n_features)."""
        if not isinstance(self.items, np.ndarray):
            raise InvalidInputError(
                f"{self.name} holds texts, which have no pixels; embed them instead."
            )
        return self.items.reshape(len(self.items), -1).astype(np.float32) / 255


def load_dataset(name: str, split: str = "train") -> Dataset:
    """Load a data set by its name; download it where it is not on this computer.

    Parameters
    ----------
    name : str
        ``mnist``, ``fashion_mnist``, ``cifar10``, ``usps``, ``banking77`` and ``clinc150`` (all
        with train and test), ``coil20`` and ``stackoverflow`` (only ``"all"``).
    split : {"train", "test", "all"}
        ``"all"`` is train, then test. The validation texts of ``clinc150`` belong to train; its
        out-of-scope texts, which have no class, are left out.
    """
    if name not in _FORMS:
        raise InvalidInputError(f"name={name!r} is no data set; choose from {', '.join(_FORMS)}.")
    splits = ("all",) if name in _UNDIVIDED else ("train", "test", "all")
    if split not in splits:
        raise InvalidInputError(
            f"split={split!r} of {name} does not exist; choose from {', '.join(splits)}."
        )
    kept = cache_folder("datasets") / name
    folders = [*_given_folders(name), kept]
    found = _find(name, folders)
    if found is None:
        _download_all(name, folders)
        found = _find(name, [kept])
    assert found is not None  # noqa: S101
    return _assemble(name, split, *found)


# -- where the files are -------------------------------------------------------------------------

_DEBIAN = Path("/usr/share/datasets")


def _given_folders(name: str) -> list[Path]:
    debian_name = name.replace("_", "-")
    given = os.environ.get("PRCUT_DATA")
    own = [Path(given), Path(given) / name, Path(given) / debian_name] if given else []
    return [*dict.fromkeys(own), _DEBIAN / debian_name]


class _Part(NamedTuple):
    """One split as it was read."""

    items: Any
    labels: np.ndarray
    classes: tuple[str, ...] = ()


class _Form(NamedTuple):
    """Files that together hold a data set, and how a split is read from their folder."""

    files: tuple[str, ...]
    read: Callable[[Path, str], _Part]
    needs_own_folder: bool = False
    """Other data sets call their files the same: only a folder of its name says whose they are."""


def _find(name: str, folders: list[Path]) -> tuple[_Form, Path] | None:
    own_names = name, name.replace("_", "-")
    for folder in folders:
        for form in _FORMS[name]:
            if form.needs_own_folder and folder.name not in own_names:
                continue
            if all((folder / file).is_file() for file in form.files):
                return form, folder
    return None


def _assemble(name: str, split: str, form: _Form, folder: Path) -> Dataset:
    wanted = ("train", "test") if split == "all" and name not in _UNDIVIDED else (split,)
    try:
        parts = [form.read(folder, part) for part in wanted]
        labels = np.concatenate([np.asarray(part.labels, np.int64) for part in parts])
        items: Any
        if isinstance(parts[0].items, np.ndarray):
            items = np.concatenate([part.items for part in parts])
        else:
            items = [text for part in parts for text in part.items]
        if len(items) != len(labels):
            raise ValueError(f"{len(items)} items and {len(labels)} labels")
    except Exception as error:  # whatever the decoders raise on bytes that they do not expect
        files = " or ".join(str(folder / file) for file in form.files)
        raise CorruptFileError(
            f"{files} cannot be read as {name}: {type(error).__name__}: {error}; remove it and "
            "run again."
        ) from error
    return Dataset(name, split, items, labels, parts[0].classes)


# -- readers: one split of one form --------------------------------------------------------------

# rows of the training part in files that hold train and test one after the other
_TRAIN_ROWS = {"banking77": 10_003, "clinc150": 18_000}


def _read_idx(path: Path) -> np.ndarray:
    """Read an array in the format of MNIST: magic with the number of axes, their lengths, bytes."""
    with gzip.open(path) as file:
        content = file.read()
    shape = np.frombuffer(content, ">u4", content[3], 4).astype(int)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def _read_idx_pair(folder: Path, split: str) -> _Part:
    stem = {"train": "train", "test": "t10k"}[split]
    images = _read_idx(folder / f"{stem}-images-idx3-ubyte.gz")
    return _Part(images, _read_idx(folder / f"{stem}-labels-idx1-ubyte.gz"))


@contextmanager
def _npz(path: Path) -> Iterator[Any]:
    # opened here, since np.load leaves a file that is no archive open
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        yield file


def _read_mnist_npz(folder: Path, split: str) -> _Part:
    with _npz(folder / "mnist.npz") as file:
        return _Part(file[f"x_{split}"], file[f"y_{split}"])


def _read_coil20_npz(folder: Path, split: str) -> _Part:  # noqa: ARG001
    with _npz(folder / "coil20.npz") as file:
        return _Part(file["x"], file["y"])


def _usps_images(values: np.ndarray) -> np.ndarray:
    """Grey values in [0, 1], which USPS gives in steps of 1/2000, as bytes.

    Back on the steps first, so that half precision and decimal text give the same bytes.
    """
    steps = np.rint(values.astype(np.float64) * 2000).astype(np.int64)
    return ((steps * 255 + 1000) // 2000).astype(np.uint8).reshape(-1, 16, 16)


def _read_usps_npz(folder: Path, split: str) -> _Part:
    with _npz(folder / "usps.npz") as file:
        return _Part(_usps_images(file[f"x_{split}"]), file[f"y_{split}"])


def _read_usps_libsvm(folder: Path, split: str) -> _Part:
    """Lines of ``label 1:value ... 256:value``, labels from 1, values in [-1, 1]."""
    with bz2.open(folder / {"train": "usps.bz2", "test": "usps.t.bz2"}[split]) as file:
        lines = [line.split() for line in file.read().splitlines()]
    values = [[float(field.split(b":")[1]) for field in line[1:]] for line in lines]
    labels = np.array([int(line[0]) - 1 for line in lines])
    return _Part(_usps_images((np.array(values) + 1) / 2), labels)


def _read_cifar10_webp(folder: Path, split: str) -> _Part:
    """Lossless WebP mosaics of 100 by 100 images."""
    try:
        from PIL import Image
    except ImportError as error:
        raise PRCutError(
            f"{folder}/cifar10_webp.npz needs Pillow: pip install 'prcut[bench]'."
        ) from error
    images = []
    with _npz(folder / "cifar10_webp.npz") as file:
        for key in sorted(key for key in file.files if key.startswith(split)):
            with Image.open(io.BytesIO(file[key].tobytes()), formats=["WEBP"]) as mosaic:
                pixels = np.asarray(mosaic.convert("RGB")).reshape(100, 32, 100, 32, 3)
            images.append(pixels.swapaxes(1, 2).reshape(-1, 32, 32, 3))
        return _Part(np.concatenate(images), file[f"y_{split}"])


def _read_cifar10_binary(folder: Path, split: str) -> _Part:
    """Rows of a label, then 3 planes of 32 by 32; no file of the archive is written to disk."""
    batches = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    with tarfile.open(folder / "cifar-10-binary.tar.gz") as archive:
        files = [archive.extractfile(f"cifar-10-batches-bin/{batch}.bin") for batch in batches]
        content = b"".join(file.read() for file in files if file is not None)
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3072)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _Part(np.ascontiguousarray(images), rows[:, 0])


def _read_text_sets(name: str, folder: Path, split: str) -> _Part:
    """``{name: {"text": [...], "label": [...], "classes": [...]}}``, train before test."""
    with gzip.open(folder / "text_sets.json.gz") as file:
        content = json.load(file)[name]
    texts, labels, classes = content["text"], content["label"], content["classes"]
    first_test = _TRAIN_ROWS.get(name, 0)
    if len(texts) <= first_test:
        raise ValueError(f"{len(texts)} texts, the training part alone has {first_test}")
    rows = slice(None, first_test) if split == "train" else slice(first_test, None)
    return _Part(texts[rows], np.array(labels[rows]), tuple(classes))


def _numbered(texts: list[str], names: list[str], classes: set[str]) -> _Part:
    """Texts with their classes numbered in the order of their names."""
    ordered = tuple(sorted(classes))
    number = {name: i for i, name in enumerate(ordered)}
    return _Part(texts, np.array([number[name] for name in names]), ordered)


def _read_banking77(folder: Path, split: str) -> _Part:
    with (folder / f"{split}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    classes = json.loads((folder / "categories.json").read_text("utf-8"))
    return _numbered([row[0] for row in rows], [row[1] for row in rows], set(classes))


def _read_clinc150(folder: Path, split: str) -> _Part:
    content = json.loads((folder / "data_full.json").read_text("utf-8"))
    parts = ("train", "val") if split == "train" else ("test",)
    rows = [row for part in parts for row in content[part]]
    classes = {name for _, name in content["train"]}
    return _numbered([text for text, _ in rows], [name for _, name in rows], classes)


def _read_stackoverflow(folder: Path, split: str) -> _Part:  # noqa: ARG001
    # read as a table of tabs with quotes, as those who pass this set around have done: in 46 of
    # 20,000 titles the quotes go, and the rows are the same from either source
    with (folder / "title_StackOverflow.txt").open(newline="", encoding="utf-8") as file:
        texts = [row[0] for row in csv.reader(file, delimiter="\t")]
    names = (folder / "label_StackOverflow.txt").read_text("utf-8").split()
    return _numbered(texts, names, set(names))


_IDX = tuple(
    f"{part}-{kind}-ubyte.gz"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)
_UNDIVIDED = ("coil20", "stackoverflow")


def _text_sets(name: str) -> _Form:
    return _Form(("text_sets.json.gz",), partial(_read_text_sets, name))


_FORMS: dict[str, tuple[_Form, ...]] = {
    "mnist": (
        _Form(("mnist.npz",), _read_mnist_npz),
        _Form(_IDX, partial(_read_idx_pair), needs_own_folder=True),
    ),
    "fashion_mnist": (_Form(_IDX, _read_idx_pair, needs_own_folder=True),),
    "cifar10": (
        _Form(("cifar10_webp.npz",), _read_cifar10_webp),
        _Form(("cifar-10-binary.tar.gz",), _read_cifar10_binary),
    ),
    "usps": (
        _Form(("usps.npz",), _read_usps_npz),
        _Form(("usps.bz2", "usps.t.bz2"), _read_usps_libsvm),
    ),
    "coil20": (_Form(("coil20.npz",), _read_coil20_npz),),
    "banking77": (
        _text_sets("banking77"),
        _Form(("train.csv", "test.csv", "categories.json"), _read_banking77, needs_own_folder=True),
    ),
    "clinc150": (_text_sets("clinc150"), _Form(("data_full.json",), _read_clinc150)),
    "stackoverflow": (
        _text_sets("stackoverflow"),
        _Form(("title_StackOverflow.txt", "label_StackOverflow.txt"), _read_stackoverflow),
    ),
}

# -- downloads -----------------------------------------------------------------------------------

_REGISTRY = Path(__file__).parent / "registry.txt"
_ATTEMPTS = 4


def _download_all(name: str, folders: list[Path]) -> None:
    """Fetch the files of a data set that the last of the folders lacks."""
    try:
        import pooch
        from requests import RequestException
    except ImportError as error:
        raise PRCutError("Downloads need pooch: pip install 'prcut[bench]'.") from error
    fetcher = pooch.create(folders[-1].parent, base_url="", retry_if_failed=_ATTEMPTS - 1)
    fetcher.load_registry(_REGISTRY)
    files = [file for file in fetcher.registry_files if file.startswith(f"{name}/")]
    looked = f"{name} was not found (looked in {', '.join(map(str, folders))})"
    if not files:
        raise PRCutError(
            f"{looked} and cannot be downloaded: no publisher of its images of 32 by 32 is known "
            f"with a checksum. Put {_FORMS[name][0].files[0]} into the folder named by PRCUT_DATA."
        )
    names = [Path(file).name for file in files]
    remedy = f"Put {', '.join(names)} into {folders[-1]} or the folder named by PRCUT_DATA."
    for file in files:
        failed = f"{looked} and {fetcher.get_url(file)} failed {_ATTEMPTS} times, the last with: "
        try:
            fetcher.fetch(file)
        except RequestException as error:
            raise PRCutError(f"{failed}{error}. Check the network. {remedy}") from error
        except ValueError as error:
            raise CorruptFileError(f"{failed}{error} Nothing was kept. {remedy}") from error
