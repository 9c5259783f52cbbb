"""What an encoder is, and what encoders share."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from prcut.errors import PRCutError

Images = np.ndarray | list[np.ndarray]
"""uint8 images (height, width[, 3]), of one size in an array, of any in a list."""


class Encoder(NamedTuple):
    """A trained module, and the function that encodes a batch of items with it."""

    module: nn.Module
    encode: Callable[[Any], Tensor]
    """Takes images or a list of texts, returns (n, n_features)."""
    library: str
    """Name and version of the library that computes the rows."""
    preparation: str
    """How items become numbers, where the weights do not determine it."""


Loader = Callable[[str, torch.device, str], Encoder]
"""Takes a model, a device and ``"images"`` or ``"texts"``."""


def require(module: str, package: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PRCutError(
            f"this encoder needs {package}, which cannot be imported ({error}): "
            "pip install 'prcut[embed]'."
        ) from error


def version(package: str) -> str:
    """Return the name and the version of an installed package."""
    return f"{package} {importlib.metadata.version(package)}"


def mean_token(tokens: Tensor, mask: Tensor) -> Tensor:
    """Average the tokens that are not padding."""
    mask = mask.unsqueeze(-1).to(tokens.dtype)
    return (tokens * mask).sum(1) / mask.sum(1).clamp(min=1)


def pillow_images(images: Images) -> list[Any]:
    """Return Pillow's images, all of three channels."""
    image = require("PIL.Image", "Pillow")
    return [image.fromarray(to_color(pixels)) for pixels in images]


def resize(images: Images, size: int) -> np.ndarray:
    """Resize images to ``size`` by ``size``, bicubic as Pillow does it."""
    bicubic = require("PIL.Image", "Pillow").Resampling.BICUBIC
    resized = [image.resize((size, size), bicubic) for image in pillow_images(images)]
    return np.stack([np.asarray(image) for image in resized])


def to_planes(images: np.ndarray, device: torch.device) -> Tensor:
    """Return float planes (n, 3, height, width) in 0..255."""
    return torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float()


def to_color(image: np.ndarray) -> np.ndarray:
    """Return an image of three channels; a grey one is repeated."""
    return image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2)
