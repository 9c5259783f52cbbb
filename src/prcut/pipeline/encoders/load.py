"""Encoders by their names."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch

from prcut.errors import InvalidInputError, PRCutError
from prcut.pipeline.encoders.base import Encoder, Loader
from prcut.pipeline.encoders.hub import (
    load_sentence_transformers,
    load_transformers,
)
from prcut.pipeline.encoders.onnx_model import find_onnx, load_onnx
from prcut.pipeline.encoders.packaged import load_lite0, load_lite2, load_minilm, load_wordllama

_BOTH = ("images", "texts")
LOADERS: dict[str, tuple[tuple[str, ...], Loader]] = {
    "transformers": (_BOTH, load_transformers),
    "sentence-transformers": (("texts",), load_sentence_transformers),
    "onnx": (_BOTH, load_onnx),
    "efficientnet-lite0": (("images",), load_lite0),
    "efficientnet-lite2": (("images",), load_lite2),
    "minilm": (("texts",), load_minilm),
    "wordllama": (("texts",), load_wordllama),
}
# weights are in a package of their own
_PACKAGED = ("efficientnet-lite0", "efficientnet-lite2", "minilm", "wordllama")


def load_encoder(name: str, device: torch.device, kind: str) -> Encoder:
    """Load an encoder by its name or from local files, for ``"images"`` or ``"texts"``."""
    library, _, model = _name_library(name, kind).partition(":")
    if library not in LOADERS or bool(model) == (library in _PACKAGED):
        known = ", ".join(n if n in _PACKAGED else f"{n}:<model>" for n in LOADERS)
        raise InvalidInputError(
            f"model={name!r} is not known; choose from {known}, or the path of a local model."
        )
    kinds, load = LOADERS[library]
    if kind not in kinds:
        raise InvalidInputError(
            f"model={name!r} takes {' or '.join(kinds)}, the items are {kind}; choose another."
        )
    try:
        return load(model, device, kind)
    except PRCutError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidInputError(
            f"model={name!r} cannot be loaded: {reason}. Check its name, the path of its "
            "weights, or the network."
        ) from error


def _name_library(name: str, kind: str) -> str:
    """Put the library before the path of a local model, by the files that are there."""
    path = Path(name)
    if name in LOADERS or not path.exists():
        return name
    if kind == "texts" and (path / "modules.json").exists():
        return f"sentence-transformers:{name}"
    # models of the Hub often have an ONNX file beside torch's weights
    has_weights = any((path / one).exists() for one in ("model.safetensors", "pytorch_model.bin"))
    if find_onnx(path) is not None and not has_weights:
        return f"onnx:{name}"
    return f"transformers:{name}" if (path / "config.json").exists() else name
