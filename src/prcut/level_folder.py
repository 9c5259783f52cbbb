"""A model of levels as a folder: a model folder for the root and for every child.

::

    root/  child-00000/  child-00001/ …    models, or folders such as this one
    levels.json                            written last: which children there are
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prcut.assigner import Assigner
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.level_assigner import LevelAssigner
from prcut.model_folder import load_model, save_model
from prcut.storage import Folder, check_format, parsing, whole_number

__all__ = ["LEVELS_FILE", "LoadedLevels", "load_levels", "save_levels"]

LEVELS_FILE = "levels.json"
_FORMAT = 1
# deeper than this nobody splits; a forged folder cannot make loading recurse for ever
_MOST_LEVELS = 8


class LoadedLevels(NamedTuple):
    """What the folder of a model of levels holds.

    Attributes
    ----------
    assigner : LevelAssigner
    description : dict
        As :class:`prcut.model_folder.LoadedModel` has it.
    """

    assigner: LevelAssigner
    description: dict[str, Any]


def save_levels(
    path: str | Path, assigner: LevelAssigner, description: Mapping[str, Any] | None = None
) -> None:
    """Save a tree of assigners; what is there already is replaced.

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
    is_there = []
    for number, child in enumerate(assigner.children_or_none):
        is_there.append(child is not None)
        if isinstance(child, LevelAssigner):
            save_levels(f"{path}/{_child(number)}", child)
        elif child is not None:
            save_model(f"{path}/{_child(number)}", child, {})
    content = {"format": _FORMAT, "children": is_there, "description": dict(description or {})}
    folder.write_json(LEVELS_FILE, content)


def load_levels(path: str | Path, *, depth: int = 0) -> LoadedLevels:
    """Load what :func:`save_levels` wrote; nothing in it is executed."""
    folder = Folder(path)
    if not folder.exists(LEVELS_FILE):
        raise InvalidInputError(f"{path} holds no model of levels (no {LEVELS_FILE}).")
    content = folder.read_json(LEVELS_FILE)
    with parsing(f"{folder.path}/{LEVELS_FILE}"):
        found = whole_number(content["format"])
        is_there = [bool(one) for one in content["children"]]
        description = dict(content["description"])
    check_format(folder.path, found, _FORMAT)
    if depth >= _MOST_LEVELS:
        raise CorruptFileError(f"{folder.path} has more than {_MOST_LEVELS} levels.")
    root = _assigner(f"{path}/root")
    children: list[Assigner | LevelAssigner | None] = []
    for number, wanted in enumerate(is_there):
        child = f"{path}/{_child(number)}"
        if not wanted:
            children.append(None)
        elif _inside(child).exists(LEVELS_FILE):
            children.append(load_levels(child, depth=depth + 1).assigner)
        else:
            children.append(_assigner(child))
    try:
        return LoadedLevels(LevelAssigner(root, children).eval(), description)
    except InvalidInputError as error:
        raise CorruptFileError(f"{folder.path}: {error}") from error


def _inside(path: str) -> Folder:
    """A folder of the tree, refused where it is a link: one to a folder above would never end."""
    if "://" not in path and Path(path).is_symlink():
        raise CorruptFileError(f"{path} is a link, expected a folder.")
    return Folder(path)


def _assigner(path: str) -> Assigner:
    _inside(path)
    assigner = load_model(path).assigner
    if not isinstance(assigner, Assigner):
        raise CorruptFileError(f"{path} is a {type(assigner).__name__}, expected an assigner.")
    return assigner


def _child(number: int) -> str:
    return f"child-{number:05d}"
