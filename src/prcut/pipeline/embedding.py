"""Images and texts as vectors, computed by a pretrained encoder and cached.

Rows are computed in chunks, each sealed when it is done, so that an interrupted run can be resumed.
The result is a .npy file in half precision beside a manifest that says which encoder, which
weights, which version of its library and which items it was made from.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.pipeline.encoders.base import Encoder
from prcut.pipeline.encoders.load import load_encoder
from prcut.runtime.device import choose_device
from prcut.runtime.folder import Folder, cache_folder, plan_key
from prcut.runtime.progress import Progress, Reporter

_FORMAT = 1
# rows that an interrupted run loses at most
_CHUNK_ROWS = 1024
_RESULT = "embeddings.npy"

_Items = np.ndarray | Sequence[str] | Sequence[np.ndarray]


def embed(
    items: Any,
    model: str,
    *,
    batch_size: int | None = None,
    device: str = "auto",
    cache: str | Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> np.ndarray:
    """Compute a vector for every image or text, or read it from the cache.

    Parameters
    ----------
    items : uint8 array, or sequence of str or of uint8 arrays
        Images (n_samples, height, width) or (n_samples, height, width, 3), in a list also of
        different sizes; or texts, also in a column of pandas, Polars or pyarrow.
    model : str
        The path of a local model, ``<library>:<model>``, or one whose weights are in a package of
        their own:

        - ``transformers:facebook/dinov2-giant`` or a folder: the first token of images, the mean
          token of texts
        - ``sentence-transformers:all-MiniLM-L6-v2`` or a folder
        - ``onnx:/path/model.onnx``, with ``tokenizer.json`` beside it for texts
        - ``efficientnet-lite0`` and ``efficientnet-lite2`` (images), ``minilm`` and ``wordllama``
          (texts)
    batch_size : int, optional
        Items encoded at a time, by default 64 on a CPU and 256 elsewhere; changes speed and memory,
        and the result only by rounding. It is halved while the device has too little memory.
    device : str
        ``"auto"`` is CUDA where there is one.
    cache : path or URI, optional
        Where results are cached; by default ``embeddings`` in ``PRCUT_CACHE`` or the user's cache.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress` after every batch.

    Returns
    -------
    numpy.ndarray
        float16 (n_samples, n_features), mapped from the cache.
    """
    items = _as_items(items)
    kind = "texts" if isinstance(items[0], str) else "images"
    where = choose_device(device)
    batch_size = choose_batch_size(batch_size, where)
    loaded = load_encoder(model, where, kind)
    plan = {
        "format": _FORMAT,
        "encoder": model,
        "library": loaded.library,
        "preparation": loaded.preparation,
        "weights": fingerprint_weights(loaded.module),
        "items": _fingerprint_items(items),
        "n_samples": len(items),
        "rows_per_read": _CHUNK_ROWS,
    }
    # every plan has a folder of its own: new weights or versions never meet old rows
    readable = re.sub(r"[^A-Za-z0-9-]+", "-", model)[-60:].strip("-")
    folder = Folder(cache or cache_folder("embeddings")) / f"{readable}-{plan_key(plan)}"
    if not _is_finished(folder, len(items)):
        folder.start(plan)
        _encode_chunks(folder, items, loaded, batch_size, on_progress)
        if not _is_finished(folder, len(items)):  # nor has another process made them meanwhile
            _join_chunks(folder, plan)
    return folder.map_array(_RESULT)


def choose_batch_size(batch_size: int | None, device: torch.device) -> int:
    """Return how many items to encode at a time."""
    if batch_size is None:
        return 64 if device.type == "cpu" else 256
    if batch_size < 1:
        raise InvalidInputError(f"{batch_size=} must be >= 1.")
    return batch_size


def _as_items(items: Any) -> _Items:
    """Return images in an array or a list, or a list of texts; refuse anything else."""
    if isinstance(items, np.ndarray) and items.dtype.kind not in "OUT":
        is_image = items.ndim == 3 or (items.ndim == 4 and items.shape[3] == 3)
        if items.dtype != np.uint8 or not is_image:
            raise InvalidInputError(
                f"items have shape {items.shape} and dtype {items.dtype}, expected uint8 images of "
                "shape (n_samples, height, width) or (n_samples, height, width, 3)."
            )
        found: Any = items
    elif isinstance(items, str) or not hasattr(items, "__len__"):
        raise InvalidInputError(
            f"items are a {type(items).__name__}, expected an array of images or a list of texts."
        )
    else:
        as_list = getattr(items, "to_pylist", getattr(items, "tolist", None))
        found = as_list() if as_list else list(items)
        _check_list(found)
    if len(found) == 0:
        raise InvalidInputError("items are empty; pass at least one image or text.")
    return found  # type: ignore[no-any-return]


def _check_list(items: list[Any]) -> None:
    if items and isinstance(items[0], np.ndarray):
        for row, image in enumerate(items):
            if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
                raise InvalidInputError(f"item {row} is no uint8 array, expected an image.")
        return
    for row, text in enumerate(items):
        if not isinstance(text, str):
            raise InvalidInputError(
                f"item {row} is a {type(text).__name__}, expected a text in every row."
            )


def _fingerprint_items(items: _Items) -> str:
    digest = hashlib.sha256()
    if isinstance(items, np.ndarray):
        digest.update(f"images {items.shape}".encode())
        for start in range(0, len(items), _CHUNK_ROWS):
            digest.update(np.ascontiguousarray(items[start : start + _CHUNK_ROWS]).data)
    elif isinstance(items[0], np.ndarray):
        for image in items:
            digest.update(f"image {image.shape}".encode())  # type: ignore[union-attr]
            digest.update(np.ascontiguousarray(image).data)
    else:
        digest.update(b"texts")
        for text in items:
            # JSON quotes a text, so that no two lists have the same bytes
            digest.update(json.dumps(text).encode())
    return digest.hexdigest()


def fingerprint_weights(module: nn.Module) -> str:
    """Return a checksum of the names, shapes and values of a module's weights."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        if not isinstance(value, Tensor):
            continue
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        # as bytes: NumPy has no bfloat16
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _is_finished(folder: Folder, n_samples: int) -> bool:
    """Return whether the result is there and whole; a damaged one is computed anew."""
    manifest = folder.read_record("manifest.json")
    if manifest is None:
        return False
    try:
        folder.verify(manifest)
        rows = folder.map_array(_RESULT)
    except (CorruptFileError, KeyError, TypeError):
        return False
    return rows.ndim == 2 and len(rows) == n_samples and rows.dtype == np.float16


def _encode_chunks(
    folder: Folder,
    items: _Items,
    encoder: Encoder,
    batch_size: int,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    reporter = Reporter("embed", len(items), on_progress)
    for number, start in enumerate(range(0, len(items), _CHUNK_ROWS)):
        chunk = items[start : start + _CHUNK_ROWS]
        name = f"piece-{number:06d}"
        if folder.is_sealed(f"{name}.json", name):
            reporter.advance(len(chunk))
            continue
        rows = encode_chunk(chunk, encoder, batch_size, reporter.advance)
        check_half(rows, start)
        folder.seal(f"{name}.json", {f"{name}.npy": rows}, {"key": name})


def check_half(rows: np.ndarray, start: int) -> None:
    """Refuse rows that half precision does not hold; the first is item ``start``."""
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        raise PRCutError(
            f"the encoder gave NaN, infinity or a value beyond half precision (65504) for "
            f"{int((~finite).sum())} of the items {start}..{start + len(rows) - 1}, the first "
            f"is item {start + int(finite.argmin())}; choose another encoder."
        )


def encode_chunk(
    chunk: Any,
    encoder: Encoder,
    batch_size: int,
    advance: Callable[[int], None],
    load: Callable[[Any], np.ndarray] | None = None,
) -> np.ndarray:
    """Encode items as rows in half precision, in the order of the items; ``load`` decodes them."""
    order = np.arange(len(chunk))
    if isinstance(chunk[0], str) and load is None:
        # a batch is padded to its longest text, so texts of similar length share one
        order = np.argsort([len(text) for text in chunk], kind="stable")
    encoded, start = [], 0
    while start < len(chunk):
        taken = order[start : start + batch_size]
        batch = chunk[taken] if isinstance(chunk, np.ndarray) else [chunk[row] for row in taken]
        try:
            with torch.inference_mode():
                rows = encoder.encode(batch if load is None else [load(item) for item in batch])
        except torch.cuda.OutOfMemoryError:
            if batch_size == 1:
                raise
            batch_size //= 2
            continue
        encoded.append(rows.float().cpu().numpy())
        start += len(taken)
        advance(len(taken))
    with np.errstate(over="ignore"):  # the caller names the rows that overflow
        half: np.ndarray = np.concatenate(encoded).astype(np.float16)
    return half[np.argsort(order)]


def _join_chunks(folder: Folder, plan: dict[str, Any]) -> None:
    """Write one file of all chunks, then the manifest that makes it valid; remove the chunks."""
    n_chunks = -(-plan["n_samples"] // _CHUNK_ROWS)
    names = [f"piece-{number:06d}.npy" for number in range(n_chunks)]
    n_features = folder.read_array(names[0], 0, 1).shape[1]
    kind = (plan["n_samples"], n_features), np.dtype("<f2")
    record = folder.write_arrays(_RESULT, *kind, map(folder.read_array, names))
    content = {"plan": plan, "n_features": n_features, "files": {_RESULT: record}}
    folder.write_json("manifest.json", content)
    for name in names:
        folder.remove(name.replace(".npy", ".json"))
        folder.remove(name)
