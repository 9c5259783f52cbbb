"""Image encoders that only the paper's tables need: solo-learn's checkpoints, transformers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prcut.curate import embed as encoders
from prcut.errors import InvalidInputError

_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# solo-learn, solo/data/classification_dataloader.py, T_val of both CIFAR sets
_CIFAR = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)


def register_solo_learn() -> None:
    """Let ``embed`` know ``solo-learn:<checkpoint>@resnet18`` and ``transformers:<model>``."""
    encoders.LOADERS["solo-learn"] = (("images",), _load_solo_learn)
    encoders.LOADERS["transformers"] = (("images",), _load_transformers)


def _load_transformers(model: str, device: torch.device, _: str) -> encoders.Encoder:
    """Load a model of transformers, such as DINOv2 or CLIP: the row of the whole image."""
    transformers = encoders.require("transformers", "transformers")
    module = transformers.AutoModel.from_pretrained(model).eval().to(device)
    prepare = transformers.AutoImageProcessor.from_pretrained(model)

    def encode(images: list[np.ndarray]) -> Any:
        inputs = prepare(images=_pillow_images(images), return_tensors="pt").to(device)
        if hasattr(module, "get_image_features"):
            found = module.get_image_features(**inputs)
            # a tensor, or an output that holds it since version 5
            return found if isinstance(found, Tensor) else found.pooler_output
        output = module(**inputs)
        has_token = any(name.endswith("cls_token") for name, _ in module.named_parameters())
        return output.last_hidden_state[:, 0] if has_token else output.pooler_output.flatten(1)

    return encoders.Encoder(encode, encoders.identify("transformers", module))


def _load_solo_learn(model: str, device: torch.device, _: str) -> encoders.Encoder:
    """Load the backbone of a Lightning checkpoint into a ResNet of timm with the same layers."""
    path, _, arch = model.rpartition("@")
    if not path:
        raise InvalidInputError(
            f"model='solo-learn:{model}' does not say which network it is; write "
            f"solo-learn:{model}@resnet18, or the network it was trained with."
        )
    weights = _backbone_weights(Path(path))
    module = encoders.require("timm", "timm").create_model(arch, pretrained=False, num_classes=0)
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

    def encode(images: list[np.ndarray]) -> Tensor:
        as_they_are = [np.asarray(image) for image in _pillow_images(images)]
        given = np.stack(as_they_are) if is_small else _crop_center(images, 256, 224)
        rows: Tensor = module(
            (torch.from_numpy(given).to(device).permute(0, 3, 1, 2) / 255 - mean) / std
        )
        return rows

    preparation = "as they are" if is_small else "224 of 256 bilinear"
    return encoders.Encoder(encode, encoders.identify("timm", module, f"{preparation}, {colors}"))


def _backbone_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of the backbone, by their names in it; nothing else is unpickled."""
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


def _pillow_images(images: list[np.ndarray]) -> list[Any]:
    """Return Pillow's images, all of three channels."""
    image = encoders.require("PIL.Image", "Pillow")
    return [image.fromarray(pixels).convert("RGB") for pixels in images]


def _crop_center(images: list[np.ndarray], shorter: int, size: int) -> np.ndarray:
    """Resize the shorter side of images to ``shorter``; return the middle ``size`` by ``size``."""
    bilinear = encoders.require("PIL.Image", "Pillow").Resampling.BILINEAR
    height, width = images[0].shape[:2]
    scale = shorter / min(height, width)
    shape = round(width * scale), round(height * scale)
    left, top = (shape[0] - size) // 2, (shape[1] - size) // 2
    resized = [image.resize(shape, bilinear) for image in _pillow_images(images)]
    middle = [np.asarray(image)[top : top + size, left : left + size] for image in resized]
    return np.stack(middle)
