"""What rows stand for: their texts, images and classes, given with the data or beside them.

``texts``, ``images`` and ``labels`` may each be a column of Parquet data, a file with one entry per
row (.npy, for texts also .txt), or the entries themselves; images may also be a shape, such as
``"28x28"``, that the features are to be seen in. Nothing that is read can run code.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prcut.errors import InvalidInputError
from prcut.sources import ArraySource, ParquetSource, Source, map_npy

__all__ = ["RowLabels", "read_images", "read_labels", "read_texts"]

_SHAPE = re.compile(r"\d+x\d+(x[134])?")


class RowLabels(NamedTuple):
    """Classes of rows.

    Attributes
    ----------
    codes : int64 array, shape (n_samples,)
        Numbers of the classes, from 0.
    names : list of str
    """

    codes: np.ndarray
    names: list[str]


def read_texts(source: Source, texts: Any, rows: np.ndarray) -> list[str]:
    """Texts of ``rows``, ascending.

    Parameters
    ----------
    source : Source
    texts : str, path or sequence of str
        A column of the data, a .npy or .txt file, or the texts of all rows.
    rows : int64 array
    """
    if isinstance(texts, str | Path) and str(texts).endswith(".txt"):
        try:
            lines = Path(texts).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"{texts} cannot be read as texts: {error}") from error
        found = _pick("texts", lines, source, rows)
    else:
        found = _values("texts", source, texts, rows)
    return ["" if value is None else str(value) for value in found]


def read_labels(source: Source, labels: Any, rows: np.ndarray) -> RowLabels:
    """Classes of ``rows``, ascending: whole numbers or names.

    >>> rows = ArraySource(np.zeros((3, 1)))
    >>> read_labels(rows, ["b", "a", "b"], np.arange(3)).names
    ['a', 'b']
    """
    values = np.asarray(_values("labels", source, labels, rows))
    if values.ndim != 1 or values.dtype.kind not in "iubUS":
        raise InvalidInputError(
            f"labels have shape {values.shape} and dtype {values.dtype}, expected a whole number "
            "or a name per row, and no nulls."
        )
    names, codes = np.unique(values, return_inverse=True)
    return RowLabels(codes.reshape(-1), [str(name) for name in names])


def read_images(source: Source, images: Any, rows: np.ndarray) -> list[np.ndarray]:
    """Images of ``rows``, ascending: uint8, (height, width) or (height, width, 3).

    Parameters
    ----------
    source : Source
    images : str, path, tuple of int or array
        A Parquet column of encoded images (PNG, JPEG, …), a .npy file or array of shape
        (n_samples, height, width) with 1, 3 or 4 channels last or none, or a shape that the
        features have.
    rows : int64 array
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
    return [_decode(value) for value in found]


def _values(name: str, source: Source, what: Any, rows: np.ndarray) -> Any:
    """Entries of rows: of a column, a .npy file, or a sequence."""
    if isinstance(what, str | Path) and str(what).endswith(".npy"):
        what = map_npy(Path(what))
    elif isinstance(what, str | Path):
        if not isinstance(source, ParquetSource):
            raise InvalidInputError(
                f"{name}={str(what)!r} is no file with a known ending, and the data are no Parquet "
                "file that could have such a column."
            )
        return source.read_values(str(what), rows)
    return _pick(name, what, source, rows)


def _pick(name: str, entries: Sequence[Any], source: Source, rows: np.ndarray) -> Any:
    if len(entries) != source.n_samples:
        raise InvalidInputError(
            f"{len(entries)} {name} for n_samples={source.n_samples} rows; they must agree."
        )
    if isinstance(entries, np.ndarray) or hasattr(entries, "iloc"):  # a column of a data frame
        return np.asarray(entries)[rows]
    return [entries[row] for row in rows.tolist()]


def _features(source: Source, rows: np.ndarray) -> np.ndarray:
    if isinstance(source, ArraySource):
        return np.asarray(source.array[rows], np.float32)
    if isinstance(source, ParquetSource):
        return np.asarray(source.read_values(source.column, rows), np.float32)
    picked = [source.read(row, row + 1) for row in rows.tolist()]
    dense = [one if isinstance(one, np.ndarray) else one.toarray() for one in picked]
    return np.concatenate(dense).astype(np.float32)


def _as_images(values: np.ndarray) -> list[np.ndarray]:
    """Numbers as uint8; floats are stretched over what these images hold."""
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


def _decode(content: Any) -> np.ndarray:
    """An encoded image, or a record such as data sets of the Hugging Face Hub have."""
    from PIL import Image

    if isinstance(content, dict):
        content = content.get("bytes")
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    except (OSError, TypeError, ValueError, Image.DecompressionBombError) as error:
        raise InvalidInputError(f"a row of images is no encoded image: {error}") from error
