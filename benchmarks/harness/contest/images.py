"""Images with classes: raw pixels, spectra of pixels, and embeddings of drawings."""

from __future__ import annotations

import string
import struct
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.harness.contest.sources import (
    Rows,
    find_debian_file,
    find_package_file,
    import_reader,
)
from benchmarks.harness.datasets import load_dataset

__all__ = [
    "load_faces",
    "load_glyphs",
    "load_indian_pines",
    "load_long_tail",
    "load_openclipart",
    "load_pixels",
]

# folders of the Debian packages fonts-<name>, so that other fonts of a computer change nothing
_FONTS = ("crosextra", "dejavu", "freefont", "lato", "liberation", "open-sans", "roboto", "tlwg")
_GLYPH_SIDE, _CLIPART_SIDE = 28, 96
_MIN_DRAWINGS, _MAX_DRAWINGS = 50, 300
# some drawings unpack to gigabytes
_MAX_PIXELS = 1_000_000


def load_pixels(name: str, split: str) -> Rows:
    """Load a set of the harness's tables by its pixels."""
    dataset = load_dataset(name, split)
    return dataset.pixels(), dataset.labels


def load_long_tail() -> Rows:
    """Load MNIST with 5,000 zeros, 6 in 10 as many ones, and so on to 50 nines."""
    rows, labels = load_pixels("mnist", "train")
    chosen = [np.flatnonzero(labels == digit)[: int(5000 * 0.6**digit)] for digit in range(10)]
    kept = np.sort(np.concatenate(chosen))
    return rows[kept], labels[kept]


def load_indian_pines() -> Rows:
    """Load the labelled pixels of a hyperspectral image by their 200 bands."""
    bands = np.load(find_package_file("tensorly", "datasets/data/Indian_pines_corrected.npy"))
    truth = np.load(find_package_file("tensorly", "datasets/data/Indian_pines_gt.npy"))
    return bands[truth > 0], truth[truth > 0]


def load_faces() -> Rows:
    """Load 100 faces and 100 other pieces of photographs, 25 by 25 grey pixels."""
    path = find_package_file("scikit-image", "data/lfw_subset.npy", module="skimage")
    images = np.load(path)
    return images.reshape(len(images), -1), np.arange(len(images)) < 100


def load_glyphs() -> Rows:
    """Draw the capital letters in every font of eight families, 28 by 28 pixels."""
    fonts = find_debian_file("fonts-lato", "/usr/share/fonts/truetype")
    paths = [path for family in _FONTS for path in sorted((fonts / family).rglob("*.ttf"))]
    letters = string.ascii_uppercase
    images = [_draw_letter(path, letter) for path in paths for letter in letters]
    return np.stack(images), np.tile(list(letters), len(paths))


def _draw_letter(path: Path, letter: str) -> np.ndarray:
    """Centre a letter on a black square, as the digits of MNIST are."""
    pil_image, pil_draw = import_reader("PIL.Image"), import_reader("PIL.ImageDraw")
    font = import_reader("PIL.ImageFont").truetype(str(path), _GLYPH_SIDE - 8)
    image = pil_image.new("L", (_GLYPH_SIDE, _GLYPH_SIDE))
    centre = _GLYPH_SIDE // 2, _GLYPH_SIDE // 2
    pil_draw.Draw(image).text(centre, letter, fill=255, font=font, anchor="mm")
    return np.asarray(image, np.float32).ravel() / 255


def load_openclipart() -> Rows:
    """Load drawings by EfficientNet-Lite0; the folder is the class.

    Drawings of more than a million pixels and folders of fewer than 50 others are left out; of each
    folder the first 300 are taken.
    """
    from benchmarks.harness.encoders import embed_once

    root = find_debian_file("openclipart-png", "/usr/share/openclipart/png")
    images, classes = [], []
    for folder in sorted(path for path in root.glob("*/*") if path.is_dir()):
        paths = [
            path for path in sorted(folder.rglob("*.png")) if _count_pixels(path) <= _MAX_PIXELS
        ]
        if len(paths) >= _MIN_DRAWINGS:
            chosen = paths[:_MAX_DRAWINGS]
            images += [_read_drawing(path) for path in chosen]
            classes += [folder.relative_to(root).as_posix()] * len(chosen)
    rows = embed_once(np.stack(images), "efficientnet-lite0")
    return rows, np.array(classes)


def _count_pixels(path: Path) -> int:
    """Return width times height, which follow the first 16 bytes of a PNG file."""
    with path.open("rb") as file:
        width, height = struct.unpack(">II", file.read(24)[16:])
    return int(width * height)


def _read_drawing(path: Path) -> np.ndarray:
    """Return a drawing on a white square."""
    pil_image: Any = import_reader("PIL.Image")
    with pil_image.open(path, formats=["PNG"]) as file:
        drawing = file.convert("RGBA")
    drawing.thumbnail((_CLIPART_SIDE, _CLIPART_SIDE))
    square = pil_image.new("RGBA", (_CLIPART_SIDE, _CLIPART_SIDE), "white")
    corner = tuple((_CLIPART_SIDE - length) // 2 for length in drawing.size)
    square.alpha_composite(drawing, corner)
    return np.asarray(square.convert("RGB"))
