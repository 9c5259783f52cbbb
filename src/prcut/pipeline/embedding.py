"""Images and texts as vectors, computed by a pretrained encoder and cached.

Rows are computed in chunks, each sealed when it is done, so that an interrupted run can be resumed.
The result is a .npy file in half precision beside a manifest that says which encoder, which
weights, which version of its library and which items it was made from.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.pipeline.encoders import Encoder, load_encoder
from prcut.runtime.distributed import choose_device
from prcut.runtime.folder import Folder, cache_folder, plan_key
from prcut.runtime.progress import Progress, Reporter

_FORMAT = 1
# rows that an interrupted run loses at most
_CHUNK_ROWS = 1024
_RESULT = "embeddings.npy"

_Items = np.ndarray | Sequence[str]


def embed(
    items: _Items,
    encoder: str,
    *,
    batch_size: int = 64,
    device: str = "auto",
    cache: str | Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> np.ndarray:
    """Compute a vector for every image or text, or read it from the cache.

    Parameters
    ----------
    items : uint8 array or list of str
        Images (n_samples, height, width) or (n_samples, height, width, 3), or texts.
    encoder : str
        ``<library>:<model>``, or one of the two whose weights are in a package of their own:

        - ``timm:vit_base_patch14_dinov2``, ``timm:resnet10t@/path/weights.safetensors``,
          ``timm:/path/to/folder``
        - ``open_clip:ViT-L-14/openai``, ``open_clip:ViT-L-14@/path/weights.pt``
        - ``transformers:facebook/dinov2-giant`` or a folder: the first token of images, the mean
          token of texts
        - ``sentence-transformers:all-MiniLM-L6-v2`` or a folder
        - ``efficientnet-lite0`` (images) and ``minilm`` (texts)
    batch_size : int
        Items encoded at a time; changes speed and memory, and the result only by rounding.
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
    _check_items(items)
    if batch_size < 1:
        raise InvalidInputError(f"batch_size={batch_size} must be >= 1.")
    kind = "images" if isinstance(items, np.ndarray) else "texts"
    loaded = load_encoder(encoder, choose_device(device), kind)
    plan = {
        "format": _FORMAT,
        "encoder": encoder,
        "library": loaded.library,
        "preparation": loaded.preparation,
        "weights": _fingerprint_weights(loaded.module),
        "items": _fingerprint_items(items),
        "n_samples": len(items),
        "rows_per_read": _CHUNK_ROWS,
    }
    # every plan has a folder of its own: new weights or versions never meet old rows
    readable = re.sub(r"[^A-Za-z0-9-]+", "-", encoder)[-60:].strip("-")
    folder = Folder(cache or cache_folder("embeddings")) / f"{readable}-{plan_key(plan)}"
    if not _is_finished(folder, len(items)):
        folder.start(plan)
        _encode_chunks(folder, items, loaded, batch_size, on_progress)
        if not _is_finished(folder, len(items)):  # nor has another process made them meanwhile
            _join_chunks(folder, plan)
    return folder.map_array(_RESULT)


def copy_embeddings(rows: np.ndarray, out: str | None) -> tuple[str, str]:
    """Copy the result of :func:`embed` to a .npy file; return its path and that of its manifest.

    Without ``out``, return the paths in the cache.
    """
    path = Path(str(rows.filename))  # type: ignore[attr-defined]  # it is mapped from a local file
    manifest = path.with_name("manifest.json")
    if out is not None:
        folder, made = Folder(Path(out).parent), Folder(path.parent).read_json(manifest.name)
        made["files"] = {Path(out).name: folder.write_array(Path(out).name, rows)}
        path, manifest = Path(out), Path(out).with_suffix(".json")
        folder.write_json(manifest.name, made)
    return str(path), str(manifest)


def _check_items(items: Any) -> None:
    if isinstance(items, np.ndarray):
        is_image = items.ndim == 3 or (items.ndim == 4 and items.shape[3] == 3)
        if items.dtype != np.uint8 or not is_image:
            raise InvalidInputError(
                f"items have shape {items.shape} and dtype {items.dtype}, expected uint8 images of "
                "shape (n_samples, height, width) or (n_samples, height, width, 3)."
            )
    elif isinstance(items, str) or not isinstance(items, Sequence):
        raise InvalidInputError(
            f"items are a {type(items).__name__}, expected an array of images or a list of texts."
        )
    else:
        for row, text in enumerate(items):
            if not isinstance(text, str):
                raise InvalidInputError(
                    f"item {row} is a {type(text).__name__}, expected a text in every row."
                )
    if len(items) == 0:
        raise InvalidInputError("items are empty; pass at least one image or text.")


def _fingerprint_items(items: _Items) -> str:
    digest = hashlib.sha256()
    if isinstance(items, np.ndarray):
        digest.update(f"images {items.shape}".encode())
        for start in range(0, len(items), _CHUNK_ROWS):
            digest.update(np.ascontiguousarray(items[start : start + _CHUNK_ROWS]).data)
    else:
        digest.update(b"texts")
        for text in items:
            # JSON quotes a text, so that no two lists have the same bytes
            digest.update(json.dumps(text).encode())
    return digest.hexdigest()


def _fingerprint_weights(module: nn.Module) -> str:
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
        rows = _encode_chunk(chunk, encoder, batch_size, reporter)
        finite = np.isfinite(rows).all(1)
        if not finite.all():
            raise PRCutError(
                f"the encoder gave NaN, infinity or a value beyond half precision (65504) for "
                f"{int((~finite).sum())} of the items {start}..{start + len(rows) - 1}, the first "
                f"is item {start + int(finite.argmin())}; choose another encoder."
            )
        folder.seal(f"{name}.json", {f"{name}.npy": rows}, {"key": name})


def _encode_chunk(
    chunk: _Items, encoder: Encoder, batch_size: int, reporter: Reporter
) -> np.ndarray:
    """Encode items as rows in half precision, in the order of the items."""
    order = np.arange(len(chunk))
    if not isinstance(chunk, np.ndarray):
        # a batch is padded to its longest text, so texts of similar length share one
        order = np.argsort([len(text) for text in chunk], kind="stable")
    encoded = []
    for start in range(0, len(chunk), batch_size):
        taken = order[start : start + batch_size]
        batch = chunk[taken] if isinstance(chunk, np.ndarray) else [chunk[row] for row in taken]
        with torch.inference_mode():
            encoded.append(encoder.encode(batch).float().cpu().numpy())
        reporter.advance(len(taken))
    with np.errstate(over="ignore"):  # the caller names the rows that overflow
        rows: np.ndarray = np.concatenate(encoded).astype(np.float16)
    return rows[np.argsort(order)]


def _join_chunks(folder: Folder, plan: dict[str, Any]) -> None:
    """Write one file of all chunks, then the manifest that makes it valid; remove the chunks."""
    n_chunks = -(-plan["n_samples"] // _CHUNK_ROWS)
    names = [f"piece-{number:06d}.npy" for number in range(n_chunks)]
    n_features = folder.read_array(names[0], 0, 1).shape[1]
    shape = plan["n_samples"], n_features
    described = {"descr": "<f2", "fortran_order": False, "shape": shape}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, described)
    chunks = (folder.read_array(name).tobytes() for name in names)
    record = folder.write_bytes(_RESULT, chain([header.getvalue()], chunks))
    content = {"plan": plan, "n_features": n_features, "files": {_RESULT: record}}
    folder.write_json("manifest.json", content)
    for name in names:
        folder.remove(name.replace(".npy", ".json"))
        folder.remove(name)
