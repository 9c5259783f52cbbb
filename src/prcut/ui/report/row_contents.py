"""Texts, images and classes of rows, read from the data or from files beside them.

``texts``, ``images`` and ``labels`` may each be a column of Parquet data, a file with one entry per
row (.npy, for texts also .txt), or the entries themselves; images may also be a shape, such as
``"28x28"``, if the features are pixels. Nothing that is read can run code.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prcut.curate.embed import decode_image
from prcut.curate.names import clean_text
from prcut.errors import InvalidInputError
from prcut.runtime.parquet import ParquetSource
from prcut.runtime.sources import map_npy
from prcut.ui.report.page import draw_image

# pixels as features, such as 28x28 or 32x32x3
_SHAPE = re.compile(r"\d+x\d+(x[134])?")
# characters of a text on the page
_TEXT_LENGTH = 180


def read_contents(
    source: Any, rows: np.ndarray, texts: Any = None, images: Any = None
) -> dict[int, tuple[str | None, str | None]]:
    """Read text and image of the rows in one pass; return them by row number."""
    rows = np.unique(rows)
    found: list[Any] = [None] * len(rows)
    pictures = found
    if texts is not None and len(rows):
        found = [clean_text(text, _TEXT_LENGTH) for text in read_texts(source, texts, rows)]
    if images is not None and len(rows):
        pictures = [draw_image(image) for image in read_images(source, images, rows)]
    return dict(zip(rows.tolist(), zip(found, pictures, strict=True), strict=True))


class RowLabels(NamedTuple):
    """Classes of rows: the number of each row's class, from 0, and the names of the classes."""

    codes: np.ndarray
    names: list[str]


def read_texts(source: Any, texts: Any, rows: np.ndarray) -> list[str]:
    """Read the texts of ``rows``, ascending."""
    if isinstance(texts, str | Path) and str(texts).endswith(".txt"):
        try:
            texts = Path(texts).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"{texts} cannot be read as texts: {error}") from error
    found = _values("texts", source, texts, rows)
    return ["" if value is None else str(value) for value in found]


def read_labels(source: Any, labels: Any, rows: np.ndarray) -> RowLabels:
    """Read the classes of ``rows``, ascending: whole numbers or names."""
    values = np.asarray(_values("labels", source, labels, rows))
    if values.ndim != 1 or values.dtype.kind not in "iubUS":
        raise InvalidInputError(
            f"labels have shape {values.shape} and dtype {values.dtype}, expected a whole number "
            "or a name per row; fill nulls or drop their rows."
        )
    names, codes = np.unique(values, return_inverse=True)
    return RowLabels(codes.reshape(-1), [str(name) for name in names])


def read_images(source: Any, images: Any, rows: np.ndarray) -> list[np.ndarray]:
    """Read the images of ``rows``, ascending: uint8, (height, width) or (height, width, 3).

    A column holds them encoded (PNG, JPEG, …), an array may have 1, 3 or 4 channels.
    """
    if isinstance(images, str) and _SHAPE.fullmatch(images):
        images = tuple(map(int, images.split("x")))
    if isinstance(images, tuple):
        if int(np.prod(images)) != source.n_features:
            raise InvalidInputError(
                f"images of shape {'x'.join(map(str, images))} have {int(np.prod(images))} "
                f"values, a row has n_features={source.n_features}."
            )
        return _as_images(_features(source, rows).reshape(len(rows), *images))
    found = _values("images", source, images, rows)
    if isinstance(found, np.ndarray):
        return _as_images(found)
    return [decode_image(value) for value in found]


def check_contents(source: Any, texts: Any = None, images: Any = None, labels: Any = None) -> None:
    """Reject columns and files that are not there, before any row is read."""
    nothing = np.empty(0, np.int64)
    if texts is not None:
        read_texts(source, texts, nothing)
    if images is not None:
        read_images(source, images, nothing)
    if labels is not None:
        _values("labels", source, labels, nothing)


def _values(name: str, source: Any, given: Any, rows: np.ndarray) -> Any:
    """Read entries of rows from a column, a .npy file, or a sequence."""
    if isinstance(given, str | Path) and str(given).endswith(".npy"):
        given = map_npy(Path(given))
    elif isinstance(given, str | Path):
        if not isinstance(source, ParquetSource):
            raise InvalidInputError(
                f"{name}={str(given)!r} is neither a .npy or .txt file nor a column of Parquet "
                "data; pass a file or the entries."
            )
        return source.read_values(str(given), rows)
    if len(given) != source.n_samples:
        raise InvalidInputError(
            f"{len(given)} {name} for n_samples={source.n_samples} rows; pass one per row."
        )
    if isinstance(given, np.ndarray) or hasattr(given, "iloc"):  # a column of a data frame
        return np.asarray(given)[rows]
    return [given[row] for row in rows.tolist()]


def _features(source: Any, rows: np.ndarray) -> np.ndarray:
    if isinstance(source, ParquetSource):
        return np.asarray(source.read_values(source.column, rows), np.float32)
    picked = [source.read(row, row + 1) for row in rows.tolist()]
    dense = [one if isinstance(one, np.ndarray) else one.toarray() for one in picked]
    return np.concatenate(dense).astype(np.float32)


def _as_images(values: np.ndarray) -> list[np.ndarray]:
    """Convert numbers to uint8; floats are stretched from their minimum to their maximum."""
    if values.ndim not in (3, 4) or (values.ndim == 4 and values.shape[-1] not in (1, 3, 4)):
        raise InvalidInputError(
            f"images have shape {values.shape}, expected (n_samples, height, width) or (n_samples, "
            "height, width, channels) with 1, 3 or 4 channels."
        )
    if values.dtype != np.uint8:
        values = np.asarray(values, np.float32)
        low, high = (float(f(values)) if values.size else 0.0 for f in (np.nanmin, np.nanmax))
        values = np.nan_to_num((values - low) / max(high - low, 1e-12)) * 255
        values = values.round().astype(np.uint8)
    if values.ndim == 4 and values.shape[-1] == 1:
        values = values[..., 0]
    return list(values)
