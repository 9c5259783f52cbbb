"""A trained assigner as a folder that is safe to load from strangers: tensors and JSON, no pickle.

===================== ======================================================================
``model.safetensors`` the assigner's tensors
``config.json``       their description: format, sizes, checksums, and what the caller adds
``README.md``         a Hugging Face model card; written once, then the user's to edit
===================== ======================================================================

The network that ``config.json`` declares is built without memory, on torch's ``meta`` device, and
then takes the tensors of the file: a forged folder takes no more memory than its bytes on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import prcut
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.runtime.folder import Folder, check_format, parsing, plan_key, whole_number
from prcut.training.assigner.network import Assigner

_FORMAT = 1
_TENSORS, _CONFIG, _CARD = "model.safetensors", "config.json", "README.md"
MODEL_FILES = [_TENSORS, _CONFIG, _CARD]
_KEYS = {"kind", "n_features", "n_clusters", "hidden", "bottleneck"}
_DTYPES = {"torch.float16", "torch.bfloat16", "torch.float32", "torch.float64"}


class LoadedModel(NamedTuple):
    """An assigner on the CPU, in evaluation mode, and the description it was saved with."""

    assigner: Assigner
    description: dict[str, Any]


def save_model(path: str | Path, assigner: Assigner, description: Mapping[str, Any]) -> None:
    """Save an assigner as a folder, replacing a model that is there.

    A process killed at any moment leaves the old model, the new one, or a folder without
    ``config.json``, which :func:`load_model` rejects: the old ``config.json`` is removed when the
    new tensors are written but not yet in place, and the new one is written last. If the disk is
    full, the old model stays.

    Parameters
    ----------
    path : str or path
        A local folder or a URI such as ``s3://bucket/folder``; created where it is absent.
    assigner : Assigner
    description : mapping
        JSON values, such as parameters and scores; :func:`load_model` returns it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as path:
    ...     save_model(path, Assigner(4, 3), {"score": 0.5})
    ...     assigner, description = load_model(path)
    >>> assigner.n_features, description
    (4, {'score': 0.5})
    """
    from safetensors.torch import save

    sizes = _sizes(assigner)
    tensors = {
        name: value.detach().cpu().contiguous() for name, value in assigner.state_dict().items()
    }
    try:
        _assemble(sizes, tensors)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the assigner was altered after it was made: {error}.") from error
    config = {
        "format": _FORMAT,
        "library": "prcut",
        "version": prcut.__version__,
        "assigner": sizes,
        "description": _as_json(description),
    }
    folder = Folder(path)
    replaces = _check_target(folder)
    content = save(tensors)

    def chunks() -> Iterator[bytes]:
        yield content
        # the new tensors are written but not yet in place: the old model ends here
        if replaces:
            folder.remove(_CONFIG)

    written = {_TENSORS: folder.write_bytes(_TENSORS, chunks())}
    if not folder.exists(_CARD):
        # without sizes and scores, since it stays when another model is saved over this one
        folder.write_bytes(
            _CARD, iter([files("prcut.training.assigner").joinpath("model_card.md").read_bytes()])
        )
    config["files"] = written
    folder.write_json(_CONFIG, {**config, "checksum": plan_key(config)})


def load_model(path: str | Path) -> LoadedModel:
    """Load a model that :func:`save_model` wrote, bit for bit; nothing in it is executed.

    Parameters
    ----------
    path : str or path
        A local folder or a URI.

    Returns
    -------
    LoadedModel

    Raises
    ------
    InvalidInputError
        ``path`` holds no model of prcut, or one in a later format.
    CorruptFileError
        A file is cut off, altered or forged; the message names it.
    """
    folder = Folder(path)
    try:
        return _load(folder)
    except CorruptFileError as error:
        said = str(error).rstrip(".")
        raise CorruptFileError(f"{said}. Save or download the model again.") from error


def _load(folder: Folder) -> LoadedModel:
    from safetensors.torch import load

    config = _read_config(folder)
    if not folder.exists(_TENSORS):
        raise CorruptFileError(f"{folder.path}/{_TENSORS} is missing.")
    with parsing(f"{folder.path}/{_TENSORS}"):
        content = folder.read_bytes(_TENSORS)
        found = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        if (expected := config["files"][_TENSORS]) != found:
            raise CorruptFileError(
                f"{folder.path}/{_TENSORS} is cut off or altered: {found}, {_CONFIG} says "
                f"{expected}."
            )
        assigner = _assemble(config["assigner"], load(content))
        if not assigner.is_finite:
            raise ValueError("it gives NaN or infinity in place of logits")
    return LoadedModel(assigner.eval(), config["description"])


def _assemble(sizes: Mapping[str, Any], tensors: dict[str, Tensor]) -> Assigner:
    """Build an assigner of these sizes from these tensors, or raise an error for ``parsing``."""
    # every layer has at least a weight and a bias; a forged list of a million layers is not built
    if 2 * (len(sizes["hidden"]) + 1) > len(tensors):
        n_layers = len(sizes["hidden"])
        raise ValueError(f"it has {len(tensors)} tensors, too few for {n_layers} hidden layers")
    dtypes = sorted({str(tensor.dtype) for tensor in tensors.values()})
    if len(dtypes) > 1 or dtypes[0] not in _DTYPES:
        raise ValueError(f"its dtypes are {', '.join(dtypes)}, expected one floating dtype")
    with torch.device("meta"):
        assigner = Assigner(**{name: sizes[name] for name in _KEYS if name != "kind"})
    assigner.load_state_dict(tensors, strict=True, assign=True)
    return assigner


def _sizes(assigner: object) -> dict[str, Any]:
    """Return the numbers that an assigner is built from."""
    # a subclass or a wrapper may compute something else from the same tensors
    if type(assigner) is not Assigner:
        raise InvalidInputError(
            f"assigner is of type {type(assigner).__name__}, expected Assigner; pass the module "
            "inside a wrapper."
        )
    return {
        "kind": "assigner",
        "n_features": assigner.n_features,
        "n_clusters": assigner.n_clusters,
        "hidden": list(assigner.hidden),
        "bottleneck": assigner.bottleneck,
    }


def _as_json(description: Mapping[str, Any]) -> Any:
    if not isinstance(description, Mapping):
        raise InvalidInputError(
            f"description is of type {type(description).__name__}, expected a dict."
        )
    try:
        text = json.dumps(dict(description), allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"description must hold JSON values only: {error}; use str keys, plain numbers, and "
            "None for numbers that are not finite."
        ) from error
    return json.loads(text)


def _check_target(folder: Folder) -> bool:
    """Return whether there is a model to replace; raise an error if there is anything else."""
    folder.check_is_no_file()
    if not folder.exists(_CONFIG):
        return False
    with suppress(CorruptFileError):
        found = folder.read_json(_CONFIG)
        if isinstance(found, dict) and found.get("library") == "prcut":
            return True
    raise InvalidInputError(
        f"{folder.path}/{_CONFIG} does not belong to a prcut model; choose another folder, or "
        "remove it."
    )


def _read_config(folder: Folder) -> dict[str, Any]:
    """Read config.json and check the type of everything in it."""
    if not folder.exists(_CONFIG):
        raise InvalidInputError(
            f"{folder.path} holds no finished model (no {_CONFIG}); pass a folder that save_model "
            "wrote."
        )
    config: dict[str, Any] = folder.read_json(_CONFIG)
    with parsing(f"{folder.path}/{_CONFIG}"):
        if config.get("library") != "prcut":
            raise InvalidInputError(
                f"{folder.path}/{_CONFIG} does not belong to a prcut model "
                f"(library={config.get('library')!r}); pass a folder that save_model wrote."
            )
        check_format(folder.path, whole_number(config["format"], 1), _FORMAT)
        if config.pop("checksum", None) != plan_key(config):
            raise ValueError("it does not match its own checksum")
        # other names are never opened: they might lead out of the folder
        if list(config["files"]) != [_TENSORS]:
            raise ValueError(f"it lists the files {list(config['files'])}, expected {[_TENSORS]}")
        if not isinstance(config["description"], dict):
            raise TypeError("its description is no object")
        sizes = config["assigner"]
        if sizes.keys() != _KEYS or sizes["kind"] != "assigner":
            raise ValueError(f"it describes the assigner by {sizes}, expected {sorted(_KEYS)}")
        widths = [sizes["n_features"], sizes["n_clusters"], *sizes["hidden"]]
        for width in [*widths, 1 if sizes["bottleneck"] is None else sizes["bottleneck"]]:
            whole_number(width, 1)
    return config
