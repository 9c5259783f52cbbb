"""A hierarchical model as a folder: a model folder for the root and for every child.

::

    root/  child-00000/  child-00001/ …    models, or folders such as this one
    levels.json                            written last: which children exist
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.runtime.folder import Folder, check_format, parsing, whole_number
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.saved import load_model, save_model
from prcut.training.assigner.tree import LevelAssigner

LEVELS_FILE = "levels.json"
_FORMAT = 1
# nobody splits deeper than this; a forged folder cannot make loading recurse for ever
_MAX_LEVELS = 8


class LoadedLevels(NamedTuple):
    """A tree of assigners, and the description it was saved with."""

    assigner: LevelAssigner
    description: dict[str, Any]


def save_levels(
    path: str | Path, assigner: LevelAssigner, description: Mapping[str, Any] | None = None
) -> None:
    """Save a tree of assigners, replacing one that is there.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> tree = LevelAssigner(Assigner(3, 2), [Assigner(3, 4), None])
    >>> with TemporaryDirectory() as path:
    ...     save_levels(path, tree)
    ...     load_levels(path).assigner.n_clusters
    5
    """
    folder = Folder(path)
    save_model(f"{path}/root", assigner.root, {})
    has_child = []
    for number, child in enumerate(assigner.children_or_none):
        has_child.append(child is not None)
        if isinstance(child, LevelAssigner):
            save_levels(f"{path}/{_child(number)}", child)
        elif child is not None:
            save_model(f"{path}/{_child(number)}", child, {})
    content = {"format": _FORMAT, "children": has_child, "description": dict(description or {})}
    folder.write_json(LEVELS_FILE, content)


def load_levels(path: str | Path, *, depth: int = 0) -> LoadedLevels:
    """Load a tree that :func:`save_levels` wrote; nothing in it is executed."""
    folder = Folder(path)
    if not folder.exists(LEVELS_FILE):
        raise InvalidInputError(
            f"{path} holds no hierarchical model (no {LEVELS_FILE}); pass a folder that "
            "save_levels wrote."
        )
    content = folder.read_json(LEVELS_FILE)
    with parsing(f"{folder.path}/{LEVELS_FILE}"):
        found = whole_number(content["format"])
        has_child = [bool(one) for one in content["children"]]
        description = dict(content["description"])
    check_format(folder.path, found, _FORMAT)
    if depth >= _MAX_LEVELS:
        raise CorruptFileError(f"{folder.path} has more than {_MAX_LEVELS} levels.")
    root = _load_assigner(f"{path}/root")
    children: list[Assigner | LevelAssigner | None] = []
    for number, exists in enumerate(has_child):
        child = f"{path}/{_child(number)}"
        if not exists:
            children.append(None)
        elif _subfolder(child).exists(LEVELS_FILE):
            children.append(load_levels(child, depth=depth + 1).assigner)
        else:
            children.append(_load_assigner(child))
    try:
        return LoadedLevels(LevelAssigner(root, children).eval(), description)
    except InvalidInputError as error:
        raise CorruptFileError(f"{folder.path}: {error}") from error


def _subfolder(path: str) -> Folder:
    """Open a folder of the tree; refuse a link, which could lead to a folder above."""
    if "://" not in path and Path(path).is_symlink():
        raise CorruptFileError(f"{path} is a link, expected a folder.")
    return Folder(path)


def _load_assigner(path: str) -> Assigner:
    _subfolder(path)
    return load_model(path).assigner


def _child(number: int) -> str:
    return f"child-{number:05d}"
