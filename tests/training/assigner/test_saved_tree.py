from pathlib import Path

import pytest
import torch

from prcut import Assigner
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.training.assigner.saved_tree import load_levels, save_levels
from prcut.training.assigner.tree import LevelAssigner


def test_a_tree_of_three_levels_comes_back(tmp_path: Path) -> None:
    inner = LevelAssigner(Assigner(3, 2), [None, Assigner(3, 2)])
    tree = LevelAssigner(Assigner(3, 3), [inner, None, Assigner(3, 4)])
    save_levels(tmp_path / "model", tree, {"score": 0.5})
    loaded, description = load_levels(tmp_path / "model")
    assert description == {"score": 0.5}
    assert loaded.n_clusters == 3 + 1 + 4
    rows = torch.randn(50, 3)
    for ours, theirs in zip(loaded.walk(rows), tree.walk(rows), strict=True):
        assert torch.equal(ours, theirs)


def test_a_folder_without_levels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no hierarchical model \(no levels\.json\)"):
        load_levels(tmp_path)


def test_a_tree_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    tree = LevelAssigner(Assigner(3, 1), [None])
    for _ in range(8):
        tree = LevelAssigner(Assigner(3, 1), [tree])
    save_levels(tmp_path, tree)
    with pytest.raises(CorruptFileError, match="has more than 8 levels"):
        load_levels(tmp_path)


def test_a_folder_of_levels_that_was_altered_is_refused(tmp_path: Path) -> None:
    tree = LevelAssigner(Assigner(3, 2), [Assigner(3, 4), None])
    save_levels(tmp_path / "model", tree)
    assert load_levels(tmp_path / "model").assigner.n_clusters == 5
    file = tmp_path / "model/levels.json"
    for content in ("{}", '{"format": 1, "children": [true], "description": {}}', "["):
        file.write_text(content)
        with pytest.raises(CorruptFileError):
            load_levels(tmp_path / "model")
    file.write_text('{"format": 99, "children": [], "description": {}}')
    with pytest.raises(InvalidInputError, match="upgrade"):
        load_levels(tmp_path / "model")
