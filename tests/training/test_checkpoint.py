import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prcut import Assigner
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.runtime.folder import Folder
from prcut.training.checkpoint import load_checkpoint, save_checkpoint
from prcut.training.settings import TrainConfig
from prcut.training.state import TrainState

CONFIG = TrainConfig(max_steps=10, batch_size=8)


def trained(seed: int = 0, hidden: tuple[int, ...] = (5,)) -> tuple[Assigner, TrainState]:
    """An assigner and its state after one made-up step."""
    assigner = Assigner(4, 3, hidden, generator=torch.Generator().manual_seed(seed))
    state = TrainState.start(assigner, CONFIG)
    assigner(torch.ones(2, 4)).sum().backward()
    state.optimizer.step(1e-3)
    state.cluster_mass(torch.tensor([[0.5, 0.25, 0.25]]))
    state.step = 1
    return assigner, state


def saved(path: Path) -> Folder:
    folder = Folder(path)
    save_checkpoint(folder, *trained(), CONFIG)
    return folder


def test_everything_comes_back(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    assigner, state = trained(seed=1)
    assert load_checkpoint(folder, assigner, state, CONFIG)
    expected, expected_state = trained()
    for name, value in expected.state_dict().items():
        assert torch.equal(assigner.state_dict()[name], value)
    assert torch.equal(state.cluster_mass.running, expected_state.cluster_mass.running)
    for number, values in expected_state.optimizer.state.items():
        for name, value in values.items():
            assert torch.equal(state.optimizer.state[number][name], value)
    assert state.step == 1
    assert state.records == []


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assigner, state = trained()
    assert not load_checkpoint(Folder(tmp_path / "new"), assigner, state, CONFIG)


def test_a_later_checkpoint_takes_the_place_of_the_first(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    assigner, state = trained()
    state.step = 7
    save_checkpoint(folder, assigner, state, CONFIG)
    assert folder.names() == ["checkpoint-000000007.safetensors", "checkpoint.json"]


def test_killed_between_the_two_files_the_first_stays_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path)
    assigner, state = trained(seed=1)
    state.step = 7
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(folder, assigner, state, CONFIG)
    assert load_checkpoint(folder, assigner, state, CONFIG)
    assert state.step == 1


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    other = replace(CONFIG, learning_rate=1.0, seed=3)
    with pytest.raises(InvalidInputError, match="made with another learning_rate and seed; choose"):
        load_checkpoint(folder, *trained(), other)


def change(folder: Folder, **changes: object) -> None:
    record = folder.read_json("checkpoint.json")
    folder.write_json("checkpoint.json", {**record, **changes})


@pytest.mark.parametrize("broken", ["flip", "absent", "two files", "not a dict"])
def test_broken_checkpoints_are_refused(tmp_path: Path, broken: str) -> None:
    folder = saved(tmp_path)
    tensors = tmp_path / "checkpoint-000000001.safetensors"
    content = bytearray(tensors.read_bytes())
    if broken == "flip":
        content[-1] ^= 1
        tensors.write_bytes(content)
    elif broken == "absent":
        tensors.unlink()
    elif broken == "two files":
        change(folder, files={"../x": {"size": 1, "sha256": ""}})
    else:
        (tmp_path / "checkpoint.json").write_text(json.dumps([1]))
    with pytest.raises(CorruptFileError):
        load_checkpoint(folder, *trained(), CONFIG)


def test_another_assigner_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    with pytest.raises(CorruptFileError, match="does not fit this run"):
        load_checkpoint(folder, *trained(hidden=(6,)), CONFIG)
