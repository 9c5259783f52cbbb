"""A trained assigner as a folder that is safe to load from strangers: tensors and JSON, no pickle.

===================== ======================================================================
``model.safetensors`` the assigner's tensors
``config.json``       what they are: format, sizes, checksum, and the caller's description
``README.md``         a Hugging Face model card; written once, then the user's to edit
===================== ======================================================================

Nothing is built from what ``config.json`` declares before the declared sizes were compared with the
tensors that are there: a forged folder costs as much memory as its bytes on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn, TypeGuard

import torch
from torch import Tensor

import prcut
from prcut.assigner import Assigner, LogitTable
from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.storage import Folder, check_format

__all__ = ["LoadedModel", "load_from_hub", "load_model", "push_to_hub", "save_model"]

_FORMAT = 1
_TENSORS, _CONFIG, _CARD = "model.safetensors", "config.json", "README.md"
_FILES = [_TENSORS, _CONFIG, _CARD]
_KEYS = {
    "assigner": {"kind", "n_features", "n_clusters", "hidden", "bottleneck"},
    "table": {"kind", "n_samples", "n_clusters"},
}
_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
# no sizes and no scores in the card: it stays when another model is saved over this one
_CARD_TEXT = """\
---
library_name: prcut
tags: [clustering, prcut]
---

# Clusters by the probabilistic ratio cut

A trained assigner of the Python library `prcut`: it gives every row of features a probability for
each cluster. `config.json` says its sizes, how it was trained and how it scored.

```python
from prcut.model_folder import load_from_hub
assigner, description = load_from_hub("name of this repository or folder")
```

`assigner.probs(features)` are the probabilities of a float32 tensor of shape (rows, features).
"""


class LoadedModel(NamedTuple):
    """What a model folder holds.

    Attributes
    ----------
    assigner : Assigner or LogitTable
        On the CPU, in evaluation mode.
    description : dict
        What the caller of :func:`save_model` said about it, as JSON gives it back.
    """

    assigner: Assigner | LogitTable
    description: dict[str, Any]


def save_model(
    path: str | Path, assigner: Assigner | LogitTable, description: Mapping[str, Any]
) -> None:
    """Save an assigner as a folder; a model that is there is replaced.

    Killed at any moment, it leaves the old model, the new one, or a folder without ``config.json``,
    which :func:`load_model` refuses: the old ``config.json`` is removed when the new tensors are
    written but not yet in place, and the new one is written last. A disk that is full before they
    are written leaves the old model.

    Parameters
    ----------
    path : str or path
        A local folder or a URI such as ``s3://bucket/folder``; made where it is absent.
    assigner : Assigner or LogitTable
    description : mapping
        What JSON can hold, such as parameters and scores; :func:`load_model` gives it back.

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
    if difference := _difference(_shapes(sizes), tensors):
        raise InvalidInputError(f"the assigner was altered after it was made: {difference}.")
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

    def pieces() -> Iterator[bytes]:
        yield content
        # the new tensors are written but not yet in place: nothing describes the old ones any more
        if replaces:
            folder.remove(_CONFIG)

    files = {_TENSORS: folder.write_bytes(_TENSORS, pieces())}
    if not folder.exists(_CARD):
        folder.write_bytes(_CARD, iter([_CARD_TEXT.encode()]))
    folder.write_json(_CONFIG, {**config, "files": files})


def load_model(path: str | Path) -> LoadedModel:
    """Load what :func:`save_model` wrote, weights bit for bit; nothing in it is executed.

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
        ``path`` holds no model of prcut, or one of a later format.
    CorruptFileError
        A file is cut off, altered or forged; the message names it.
    """
    folder = Folder(path)
    _check_is_model(folder)
    config = _read_config(folder)
    sizes = _read_sizes(folder, config)
    tensors = _read_tensors(folder, config)
    if difference := _difference(_shapes(sizes), tensors):
        _refuse(folder, _TENSORS, f"does not fit {_CONFIG}: {difference}")
    # the initial weights are thrown away: they are not to be drawn from torch's global state
    made: dict[str, Any] = {"generator": torch.Generator()}
    made |= {name: value for name, value in sizes.items() if name != "kind"}
    assigner = LogitTable(**made) if sizes["kind"] == "table" else Assigner(**made)
    assigner.load_state_dict(tensors, assign=True)
    if not assigner.is_finite:
        _refuse(folder, _TENSORS, "gives NaN or infinity in place of logits")
    return LoadedModel(assigner.eval(), config["description"])


def push_to_hub(
    path: str | Path,
    repo_id: str,
    *,
    private: bool = False,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload a prcut model",
) -> str:
    """Upload a saved folder to the Hugging Face Hub; return the URL of the commit.

    Only the three files of a model are uploaded, whatever else is in the folder, and only when
    :func:`load_model` accepts them.

    Parameters
    ----------
    path : str or path
        A folder that :func:`save_model` wrote.
    repo_id : str
        ``"name"`` or ``"user/name"``; made where it is absent.
    private : bool
        Of a repository that is made.
    token : str, optional
        Of the Hub; None takes the one that ``hf auth login`` keeps.
    revision : str, optional
        The branch, made where it is absent; None is the main one.
    commit_message : str
    """
    hub = _import_hub()
    load_model(path)
    folder = Folder(path)
    with _hub_errors(f"uploading {folder.path} to {repo_id}"), TemporaryDirectory() as copy:
        # the Hub's client reads local files only, and the folder may be on another filesystem
        for name in filter(folder.exists, _FILES):
            Path(copy, name).write_bytes(folder.read_bytes(name))
        api = hub.HfApi(token=token, library_name="prcut", library_version=prcut.__version__)
        # the answer has the user's name where repo_id left it out
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=copy,
            revision=revision,
            commit_message=commit_message,
            allow_patterns=_FILES,
        )
    return str(commit.commit_url)


def load_from_hub(
    repo_id: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> LoadedModel:
    """Load a model from the Hugging Face Hub, or from a local folder of that name.

    Parameters
    ----------
    repo_id : str
        ``"user/name"``, or the path of a folder; a folder that is there goes before the Hub.
    revision : str, optional
        Branch, tag or commit; None is the main branch.
    token : str, optional
        Of the Hub; None takes the one that ``hf auth login`` keeps.
    cache_dir : str or path, optional
        Where downloads are kept; None is the cache of ``huggingface_hub``.
    local_files_only : bool
        Take what the cache holds, without the network.
    """
    if Path(repo_id).is_dir():
        return load_model(repo_id)
    hub = _import_hub()
    with _hub_errors(f"loading {repo_id}"):
        path = hub.snapshot_download(
            repo_id,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            allow_patterns=_FILES,
            library_name="prcut",
            library_version=prcut.__version__,
        )
    return load_model(path)


# -- what is saved ---------------------------------------------------------------------------


def _sizes(assigner: object) -> dict[str, Any]:
    """The numbers that an assigner is made from."""
    # a subclass or a wrapper may compute something else from the same tensors
    if type(assigner) is Assigner:
        return {
            "kind": "assigner",
            "n_features": assigner.n_features,
            "n_clusters": assigner.n_clusters,
            "hidden": list(assigner.hidden),
            "bottleneck": assigner.bottleneck,
        }
    if type(assigner) is LogitTable:
        return {
            "kind": "table",
            "n_samples": assigner.n_samples,
            "n_clusters": assigner.n_clusters,
        }
    raise InvalidInputError(
        f"assigner is of type {type(assigner).__name__}, expected Assigner or LogitTable; pass "
        "the module inside a wrapper."
    )


def _shapes(sizes: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of an assigner of these sizes; nothing is allocated."""
    n_clusters = sizes["n_clusters"]
    if sizes["kind"] == "table":
        return {"logits": (sizes["n_samples"], n_clusters)}
    bottleneck = [] if sizes["bottleneck"] is None else [sizes["bottleneck"]]
    widths = [sizes["n_features"], *sizes["hidden"], *bottleneck, n_clusters]
    last = len(widths) - 2
    shapes: dict[str, tuple[int, ...]] = {}
    for number, (n_in, n_out) in enumerate(pairwise(widths)):
        # a GELU follows every hidden layer and takes a number in the sequence
        layer = "head" if number == last else f"body.{2 * number}"
        shapes[f"{layer}.bias"] = (n_out,)
        if number == 0:
            shapes[f"{layer}.origin"], shapes[f"{layer}.scale"] = (n_in,), ()
        if sizes["hidden"] and number in (0, last):  # weight-normalised: length and direction
            shapes[f"{layer}.parametrizations.weight.original0"] = (n_out, 1)
            shapes[f"{layer}.parametrizations.weight.original1"] = (n_out, n_in)
        else:
            shapes[f"{layer}.weight"] = (n_out, n_in)
    return shapes


def _difference(shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> str | None:
    """The first way in which tensors are not what the sizes declare; None where they are."""
    if missing := sorted(shapes.keys() - tensors.keys()):
        return f"it lacks the tensor {missing[0]}"
    if unknown := sorted(tensors.keys() - shapes.keys()):
        return f"it holds the unknown tensor {unknown[0]}"
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            return f"{name} has shape {tuple(tensors[name].shape)}, expected {shape}"
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) > 1 or not dtypes <= _DTYPES:
        names = sorted(str(dtype) for dtype in dtypes)
        return f"its dtypes are {', '.join(names)}, expected one floating dtype"
    return None


def _as_json(description: Mapping[str, Any]) -> Any:
    if not isinstance(description, Mapping):
        raise InvalidInputError(
            f"description is of type {type(description).__name__}, expected a dict."
        )
    try:
        text = json.dumps(dict(description), allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"description must be what JSON can hold: {error}; use str keys, plain numbers, and "
            "None for what is not finite."
        ) from error
    return json.loads(text)


def _check_target(folder: Folder) -> bool:
    """Whether a model is there to be replaced; refuse to write over anything else."""
    folder.check_is_no_file()
    if not folder.exists(_CONFIG):
        return False
    try:
        is_ours = _parse(folder).get("library") == "prcut"
    except CorruptFileError:
        is_ours = False
    if not is_ours:
        raise InvalidInputError(
            f"{folder.path}/{_CONFIG} is not of a prcut model; choose another folder, or remove it."
        )
    return True


# -- what is loaded --------------------------------------------------------------------------


def _refuse(folder: Folder, name: str, why: str) -> NoReturn:
    raise CorruptFileError(f"{folder.path}/{name} {why}. Save or download the model again.")


def _check_is_model(folder: Folder) -> None:
    from pyarrow import fs

    if folder.exists(_CONFIG):
        return
    found = folder.filesystem.get_file_info(folder.path).type
    if found == fs.FileType.NotFound:
        why = "does not exist"
    elif found == fs.FileType.File:
        why = "is a file, expected a folder"
    else:
        why = f"holds no finished model (no {_CONFIG})"
    raise InvalidInputError(f"{folder.path} {why}; pass a folder that save_model wrote.")


def _parse(folder: Folder) -> dict[str, Any]:
    """The object in config.json, by the letter of JSON: no NaN, no endless nesting."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number of JSON")

    try:
        config = json.loads(folder.read_bytes(_CONFIG), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        _refuse(folder, _CONFIG, f"is not JSON: {error}")
    if not isinstance(config, dict):
        _refuse(folder, _CONFIG, f"holds a {type(config).__name__}, expected an object")
    return config


def _read_config(folder: Folder) -> dict[str, Any]:
    config = _parse(folder)
    if config.get("library") != "prcut":
        raise InvalidInputError(
            f"{folder.path}/{_CONFIG} is not of a prcut model (library={config.get('library')!r}); "
            "pass a folder that save_model wrote."
        )
    found = config.get("format")
    if not _is_positive_int(found):
        _refuse(folder, _CONFIG, f"has format={found!r}, expected a whole number >= 1")
    check_format(folder.path, found, _FORMAT)
    for name in ("assigner", "description", "files"):
        if not isinstance(config.get(name), dict):
            _refuse(folder, _CONFIG, f"lacks the object {name!r}")
    # other names are never looked at: they might lead out of the folder
    if list(config["files"]) != [_TENSORS]:
        _refuse(folder, _CONFIG, f"lists the files {list(config['files'])}, expected {[_TENSORS]}")
    return config


def _is_positive_int(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 1  # True is an int too


def _read_sizes(folder: Folder, config: Mapping[str, Any]) -> dict[str, Any]:
    """What the assigner is made from, by the letter of the format."""
    sizes: dict[str, Any] = config["assigner"]
    kind = sizes.get("kind")
    expected = _KEYS.get(kind) if isinstance(kind, str) else None
    if expected is None:
        _refuse(folder, _CONFIG, f"has assigner kind {kind!r}, expected one of {sorted(_KEYS)}")
    if sizes.keys() != expected:
        names = f"{sorted(sizes)}, expected {sorted(expected)}"
        _refuse(folder, _CONFIG, f"describes the assigner by {names}")
    for name in sorted(expected - {"kind"}):
        value = sizes[name]
        if name == "hidden":
            is_valid = isinstance(value, list) and all(map(_is_positive_int, value))
        else:
            is_valid = _is_positive_int(value) or (name == "bottleneck" and value is None)
        if not is_valid:
            _refuse(folder, _CONFIG, f"has {name}={value!r}, expected whole numbers >= 1")
    return sizes


def _read_tensors(folder: Folder, config: Mapping[str, Any]) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not folder.exists(_TENSORS):
        _refuse(folder, _TENSORS, "is missing")
    content = folder.read_bytes(_TENSORS)
    found = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    if (expected := config["files"][_TENSORS]) != found:
        _refuse(folder, _TENSORS, f"is cut off or altered: {found}, {_CONFIG} says {expected}")
    try:
        return load(content)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        _refuse(folder, _TENSORS, f"is not a safetensors file: {error}")


# -- the Hugging Face Hub --------------------------------------------------------------------


def _import_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise PRCutError(
            "the Hugging Face Hub needs huggingface_hub; pip install 'prcut[hub]'."
        ) from error
    return huggingface_hub


@contextmanager
def _hub_errors(action: str) -> Iterator[None]:
    """One worded error for whatever the Hub's client raises."""
    try:
        yield
    except PRCutError:
        raise
    # errors of the client's HTTP library come through, and every major version has another one
    except Exception as error:
        summary = str(error).strip() or type(error).__name__
        # a name that cannot be one; older clients call a failed connection a ValueError as well
        is_input = isinstance(error, ValueError) and not isinstance(error, OSError)
        kind = InvalidInputError if is_input else PRCutError
        raise kind(f"{action} failed: {summary}") from error
